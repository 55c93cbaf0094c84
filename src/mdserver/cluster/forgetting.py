"""Forgetting publishers, so that their tables stay bounded.

A publisher that is known may repeat its numbers and gets their positions; one that was forgotten
begins anew, and what it repeats would be taken a second time. So it matters that all members forget
the same publishers at the same place: to forget is an entry of the log (`FORGET`), which the
coordinator writes and every member applies. It is written in two cases:

- A publisher published nothing for `IDLE`, measured by the coordinator's own clock from what it has
  seen itself (`Idleness`). The time of a publication is no measure: it is of another member's
  clock, and one that is an hour behind would have its publishers forgotten at once.
- A member knows more publishers than it should, and a new one comes: those that published nothing
  for the longest go (`Forgetting.make_room`), in groups that have more than their share.

Tables are in the order in which publishers published last, so only the first ones are looked at.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from mdserver.cluster.log import FORGET, GroupLog
from mdserver.core.message import Publication
from mdserver.limits import NS_PER_S, PUBLISHER_IDLE_S, PUBLISHERS_FORGOTTEN_AT_ONCE

if TYPE_CHECKING:
    from mdserver.cluster.coordinator import Coordinator

IDLE = PUBLISHER_IDLE_S * NS_PER_S
MARK_EVERY = 60 * NS_PER_S


class Idleness:
    """Measures, by one coordinator's own clock, for how long publishers published nothing.

    `marks`: the times (ns) at which it looked, and how long the log was then.
    """

    __slots__ = ("_since", "marks")

    def __init__(self) -> None:
        self.marks: deque[tuple[int, int]] = deque()
        self._since = -1

    def names(self, log: GroupLog, now: int, most: int) -> list[str]:
        """Return at most `most` publishers that have had no entry in the log for `IDLE`."""
        marks = self.marks
        if not marks or marks[-1][0] + MARK_EVERY <= now:
            marks.append((now, log.length))
        while marks[0][0] + IDLE <= now:
            self._since = marks.popleft()[1]
            if not marks:
                marks.append((now, log.length))
        return list(islice(log.publishers.idle(self._since), most))


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

    def make_room(
        self, coordinator: "Coordinator", coming: Sequence[Publication], now: int
    ) -> None:
        """Forget the longest idle in favour of publishers that begin, if there are too many.

        A group that has no more than its share of them forgets nobody: it may be the others that
        have too many. At most two go for each that comes, so that a step stays short.
        """
        log = coordinator.log
        table = log.publishers.table
        if len(table) + len(coming) <= self.share:
            return  # nearly always
        new = {one.publisher for one in coming if one.number == 1 and one.publisher not in table}
        if not new:
            return
        known = sum(len(other.publishers.table) for other in self.logs)
        count = min(known + len(new) - self.most, len(table) + len(new) - self.share, 2 * len(new))
        if count <= 0:
            return
        names = {one.publisher for one in coming}
        idle = (name for name in table if name not in names)
        self._forget(coordinator, list(islice(idle, count)), now)

    def _forget(self, coordinator: "Coordinator", names: Sequence[str], now: int) -> None:
        """Append entries by which all members forget these publishers, at the same place."""
        coordinator.log.number(
            coordinator.epoch,
            [Publication(FORGET, b"", publisher=name, time=now) for name in names],
            None,
        )
