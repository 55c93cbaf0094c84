"""Work on all subjects of a partition or topic, of which there may be a million: a part in a step.

Retention may remove what a member has not read yet (`overtake`): the subscribers of each subject of
the partition are told what is missing. A topic may be deleted (`remove`): its subjects are
forgotten. While a sweep is on its way, records are read as always; the subject of such a record is
told at once (`tell`), so that the loss stands before the record.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.kafka_progress import Partition
from mdserver.cluster.kafka_records import KeyPlace, Places, split
from mdserver.core.message import Position
from mdserver.core.outputs import SetTimer
from mdserver.limits import NS_PER_MS, STEP_PAUSE_MS, SUBJECTS_PER_STEP

if TYPE_CHECKING:
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.core.replica import Replica

SWEEP = ("kafka", "sweep")
"""The timer after which a sweep goes on."""


class Sweep:
    """The subjects that are still to be looked at, and what for."""

    def __init__(self, replica: "Replica", places: Places, outgoing: "Outgoing") -> None:
        self._replica = replica
        self._places = places
        self._outgoing = outgoing
        self._lows: dict[Partition, Position] = {}
        """Partitions that retention overtook -> the position up to which messages are gone."""
        self._removed: dict[str, None] = {}
        self._subjects: list[str] = []

    @property
    def lows(self) -> dict[Partition, Position]:
        """The partitions of which subscribers are being told what is missing."""
        return self._lows

    def clear(self) -> None:
        """Forget the work: all subjects begin anew."""
        self._lows.clear()
        self._removed.clear()
        self._subjects.clear()

    def overtake(self, partition: Partition, gone: Position) -> None:
        """Begin to tell what is missing of a partition up to a position."""
        self._lows[partition] = gone
        self._begin()

    def remove(self, topic: str) -> None:
        """Begin to forget the subjects of a topic."""
        self._removed[topic] = None
        self._begin()

    def removing(self, topic: str) -> bool:
        """Return whether the subjects of a topic are being forgotten."""
        return topic in self._removed

    def _begin(self) -> None:
        """Look at all subjects, in the steps that follow."""
        # What was looked at already is looked at again, which changes nothing.
        self._subjects = self._replica.subjects()
        self._wait()

    def _wait(self) -> None:
        """Set the timer after which the next step begins."""
        at = self._outgoing.now + STEP_PAUSE_MS * NS_PER_MS
        self._outgoing.out.append(SetTimer(SWEEP, at))

    def tell(self, place: KeyPlace) -> None:
        """Tell the subscribers of a subject what is missing, if its partition was overtaken."""
        gone = self._lows.get((place.topic, place.partition))
        if gone is not None:
            self._replica.missed(place.subject, gone, self._outgoing.now, self._outgoing.out)

    def step(self) -> Sequence[str] | None:
        """Look at some subjects; return the topics that were removed once all were looked at."""
        if not self._lows and not self._removed:
            return None
        overtaken = dict.fromkeys(topic for topic, _ in self._lows)
        for _ in range(min(SUBJECTS_PER_STEP, len(self._subjects))):
            subject = self._subjects.pop()
            topic, key = split(subject)
            if topic in self._removed:
                self._replica.forget_subject(subject)
            elif topic in overtaken:
                self.tell(self._places.of(topic, key))
        if self._subjects:
            self._wait()
            return None
        removed = list(self._removed)
        self.clear()
        return removed
