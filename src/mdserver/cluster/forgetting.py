"""Forgetting publishers and subjects, so that their tables stay bounded.

A publisher that is known may repeat its numbers and gets their positions; one that was forgotten
begins anew, and what it repeats would be taken a second time. So it matters that all members forget
the same publishers at the same place: to forget is an entry of the log (`FORGET`), which the
coordinator writes and every member applies. It is written in two cases:

- A publisher published nothing for `IDLE`, measured by the coordinator's own clock from what it has
  seen itself (`Idleness`). The time of a publication is no measure: it is of another member's
  clock, and one that is an hour behind would have its publishers forgotten at once.
- A member knows more publishers than it should, and a new one comes: in groups that have more than
  their share those go (`Forgetting.make_room`) that published nothing for the longest, of the owner
  that has the most if it has more than its part (`mdserver.cluster.owners`), otherwise of all. Only
  the coordinator chooses, so another release may choose by another rule.

Tables are in the order in which publishers published last, so only the first ones are looked at.

Subjects are forgotten likewise, if the configuration says after which time (`subject_idle`): those
of which nothing is cached at the coordinator, and nothing was published for so long. The entry has
the *floor* of the group from there on, which is at least the last number of each of them. A subject
that is not in the table begins above the floor, so no number is given twice under one history id
(spec/Forget.tla; docs/cluster.md, "Forgotten subjects"). The table of subjects is in no order, so
it is looked through a part at a time (`SubjectSweep`).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from mdserver.cluster.log import FORGET, GroupLog
from mdserver.cluster.owners import owner_bound
from mdserver.core.message import Publication
from mdserver.limits import (
    NS_PER_S,
    PUBLISHER_IDLE_S,
    PUBLISHERS_FORGOTTEN_AT_ONCE,
    SUBJECTS_FORGOTTEN_BYTES,
    SUBJECTS_LOOKED_AT,
)

if TYPE_CHECKING:
    from mdserver.cluster.coordinator import Coordinator
    from mdserver.core.replica import Replica

IDLE = PUBLISHER_IDLE_S * NS_PER_S
MARKS = 60
"""A time for which something may be idle is measured in so many steps."""


class Idleness:
    """Measures, by one coordinator's own clock, for how long there were no entries of something.

    `marks`: the times (ns) at which it looked, and how long the log was then.
    """

    __slots__ = ("_idle", "_since", "marks")

    def __init__(self, idle: int = IDLE) -> None:
        self._idle = idle
        self.marks: deque[tuple[int, int]] = deque()
        self._since = -1

    def since(self, log: GroupLog, now: int) -> int:
        """Return how long the log was before all that time (ns); -1 if that is not known yet."""
        marks = self.marks
        if not marks or marks[-1][0] + self._idle // MARKS <= now:
            marks.append((now, log.length))
        while marks[0][0] + self._idle <= now:
            self._since = marks.popleft()[1]
            if not marks:
                marks.append((now, log.length))
        return self._since

    def names(self, log: GroupLog, now: int, most: int) -> list[str]:
        """Return at most `most` publishers that have had no entry in the log for that time."""
        return list(islice(log.publishers.idle(self.since(log, now)), most))


class SubjectSweep:
    """One coordinator's search for idle subjects: through the whole table, a part at a time.

    `_left` are the subjects that this turn has not looked at; the next one begins at `_next` (ns).
    """

    __slots__ = ("_idle", "_idleness", "_left", "_next")

    def __init__(self, idle: int) -> None:
        self._idle = idle
        self._idleness = Idleness(idle)
        self._left: list[str] = []
        self._next = 0

    def subjects(self, log: GroupLog, replica: "Replica", now: int) -> tuple[list[str], int]:
        """Return subjects that are idle, and the place behind which none of them has an entry."""
        place = self._idleness.since(log, now)
        if place < 0:
            return [], 0
        if not self._left and now >= self._next:
            self._next = now + self._idle // MARKS
            self._left = list(log.numbering)
        found: list[str] = []
        room = SUBJECTS_FORGOTTEN_BYTES
        for _ in range(min(SUBJECTS_LOOKED_AT, len(self._left))):
            subject = self._left.pop()
            # With an entry that is not committed it is not idle, and the numbers differ.
            if replica.unused(subject, log.numbering.get(subject, 0), place, now):
                found.append(subject)
                room -= len(subject)
                if room < 0:
                    break
        return found, place


class Forgetting:
    """Decides for all groups of one member, which knows about `most` publishers in all `logs`.

    `share` is how many of them one group may know, whatever the others do.
    """

    __slots__ = ("logs", "most", "share")

    def __init__(self, logs: Iterable[GroupLog], most: int) -> None:
        self.logs: list[GroupLog] = []
        self.most = most
        self.share = most
        for log in logs:
            self.add(log)

    def add(self, log: GroupLog) -> None:
        """Watch the log of a further group."""
        self.logs.append(log)
        self.share = self.most // len(self.logs)

    def idle(self, coordinator: "Coordinator", now: int) -> None:
        """Forget publishers that were idle for long, a bounded number of them at a time."""
        log = coordinator.log
        names = coordinator.idleness.names(log, now, PUBLISHERS_FORGOTTEN_AT_ONCE)
        if names:
            self._forget(coordinator, names, now)

    def idle_subjects(
        self, coordinator: "Coordinator", replica: "Replica", idle: int, now: int
    ) -> None:
        """Forget subjects of which nothing is cached, and nothing came for a time (ns)."""
        sweep = coordinator.sweep
        if sweep is None:
            sweep = coordinator.sweep = SubjectSweep(idle)
        subjects, place = sweep.subjects(coordinator.log, replica, now)
        if subjects:
            coordinator.log.forget_subjects(coordinator.epoch, subjects, place, now)

    def make_room(self, coordinator: "Coordinator", began: int, start: int, now: int) -> None:
        """Forget publishers in favour of those that began beyond `start` in the log, if too many.

        A group that has no more than its share of them forgets nobody: it may be the others that
        have too many. At most two go for each that `began`, so that a step stays short. Those that
        published beyond `start` stay: their results are on their way.
        """
        publishers = coordinator.log.publishers
        count = len(publishers.table) - self.share
        if count <= 0:
            return  # nearly always
        known = sum(len(other.publishers.table) for other in self.logs)
        for _ in range(min(known - self.most, count, 2 * began)):
            name = publishers.dispensable(owner_bound(self.share), start)
            if name is None:
                return
            self._forget(coordinator, [name], now)

    def _forget(self, coordinator: "Coordinator", names: Sequence[str], now: int) -> None:
        """Append entries by which all members forget these publishers, at the same place."""
        coordinator.log.number(
            coordinator.epoch,
            [Publication(FORGET, b"", publisher=name, time=now) for name in names],
            None,
        )
