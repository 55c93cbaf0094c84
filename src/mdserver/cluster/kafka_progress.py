"""How far a member has read the topics, and under which numbering.

Members have no contact with each other, so everything that they have in common follows from what
Kafka says alone:

- A *position* is (leader epoch + 1, offset + 1) in the partition of its subject. Brokers that lost
  the end of a partition have another leader afterwards, so what follows has a higher epoch: the
  position of a lost record is never that of another one.
- The *history id* is a hash of the cluster id and, for each topic, its name, its id and its number
  of partitions. It changes exactly if the same position may mean another record: a topic was
  created again (it then has another id), or more partitions moved keys to other partitions, or
  brokers lost the end of a partition; and with it if a topic comes or goes.

Of each partition a member knows the offsets that it has read: all from `start` to `next`. What lies
before `start` it has not seen. So a client whose position is there may have missed something, and
is told so (`Span.known_up_to`).
"""

import enum
import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from attrs import Factory, define, frozen

from mdserver.core.message import Position
from mdserver.limits import KAFKA_LEADERS_KEPT


@frozen
class TopicSeen:
    """A topic as the metadata describe it. `id` is "" if the brokers are too old to tell it."""

    name: str
    id: str
    partitions: int


Topics = Mapping[str, TopicSeen]


class Change(enum.Enum):
    """What new metadata mean for the numbering of subjects."""

    NONE = "none"
    ADDED = "added"
    """There are further topics; all positions go on to mean the same records."""
    RENUMBERED = "renumbered"
    """A known topic has another id or number of partitions, so its positions mean other records."""
    LOST = "lost"
    """Brokers lost the end of a partition: other records follow under the positions of the lost."""
    REMOVED = "removed"
    """A topic was deleted; all other positions go on to mean the same records."""


def change(known: Topics, seen: Topics) -> Change:
    """Compare the topics that are consumed with those that the metadata have now.

    A topic that is missing is no change yet: brokers that just started may not know all topics.
    """
    for name, topic in known.items():
        if seen.get(name, topic) != topic:
            return Change.RENUMBERED
    return Change.ADDED if any(name not in known for name in seen) else Change.NONE


def history_of(
    cluster: str, topics: Iterable[TopicSeen], losses: Iterable[tuple[str, int, int]] = ()
) -> str:
    """Return the history id under which all members number the subjects of these topics.

    `losses` are the topic, the partition and the end of each loss of records that a member saw.
    """
    # The first line says what an epoch is: it was the partition once.
    digest = hashlib.sha256(f"epochs are of leaders\n{cluster}".encode())
    for topic in sorted(topics, key=lambda topic: topic.name):
        digest.update(f"\n{topic.name} {topic.id} {topic.partitions}".encode())
    for name, number, high in sorted(losses):
        digest.update(f"\nlost {name} {number} {high}".encode())
    return "k" + digest.hexdigest()[:27]


def position_of(leader_epoch: int, offset: int) -> Position:
    """Return the position of a record in the partition of its subject."""
    return Position(leader_epoch + 1, offset + 1)


@define
class Span:
    """What a member has read of one partition: the offsets from `start` to `next`, exclusive.

    `end` is where the partition ended when reading began; the member is ready once it is there.
    `forgotten` is the highest seq of the subjects that the member knew and has forgotten since.
    `leader_epoch` is that of the last record, and `leaders` has the first offset and the epoch of
    each leader that records were read of.
    """

    start: int
    next: int
    end: int
    forgotten: int = 0
    leader_epoch: int = -1
    leaders: list[tuple[int, int]] = Factory(list)

    def lead(self, leader_epoch: int, offset: int) -> None:
        """Note that the records from an offset on are of another leader."""
        self.leader_epoch = leader_epoch
        self.leaders.append((offset, leader_epoch))
        if len(self.leaders) > KAFKA_LEADERS_KEPT:
            del self.leaders[0]

    def leader_of(self, offset: int) -> int:
        """Return the leader epoch of the last record that was read up to an offset; -1 if none."""
        at = bisect_right(self.leaders, offset, key=_first)
        return self.leaders[at - 1][1] if at else -1

    def lost(self, position: Position) -> bool:
        """Return whether a position is of a record that brokers lost.

        Leader epochs never fall from one offset to the next. So if a record up to the position has
        a higher one, the record of the position is not before the next offset any more.
        """
        return position.epoch <= self.leader_of(position.seq - 1)

    @property
    def floor(self) -> int:
        """The seq after which this member knows all subjects of the partition."""
        return max(self.start, self.forgotten)

    @property
    def reached(self) -> bool:
        """Return whether everything was read that was there when reading began."""
        return self.next >= self.end

    def known_up_to(self, seq: int) -> int | None:
        """Return up to which seq this member can speak for a subject of which it has no record.

        `seq` is that of a client's position. None if it is ahead of this member. Otherwise nothing
        of the subject lies between the result and `next`; and if the result is greater than `seq`,
        the member does not know what lies between the two.
        """
        return None if seq > self.next else max(seq, self.floor)


def _first(leader: tuple[int, int]) -> int:
    return leader[0]


Partition = tuple[str, int]
"""A topic, and the number of one of its partitions."""


class Consumption:
    """The partitions of all topics, each with the span that was read.

    `waiting`: partitions of which what was there at the beginning was not read yet.
    """

    def __init__(self) -> None:
        self.spans: dict[Partition, Span] = {}
        self._waiting: dict[Partition, None] = {}

    def clear(self) -> None:
        """Forget all partitions: they are read anew."""
        self.spans.clear()
        self._waiting.clear()

    def expect(self, partitions: Sequence[Partition]) -> None:
        """Note that partitions are about to be read, so this member is not ready before that."""
        self._waiting.update(dict.fromkeys(partitions))

    def begin(self, partition: Partition, start: int, end: int) -> None:
        """Note that a partition is read from `start` on, and ends at `end` now."""
        self.spans[partition] = span = Span(start, start, max(start, end))
        self._look(partition, span)

    def reach(self, partition: Partition, following: int) -> None:
        """Note that everything before an offset was read; aborted transactions leave no records."""
        span = self.spans.get(partition)
        if span is not None:
            span.next = max(span.next, following)
            self._look(partition, span)

    def overtake(self, partition: Partition, low: int) -> Span | None:
        """Note that what comes next in a partition was removed up to an offset; None if it is not.

        Retention was faster than this member, which goes on at `low`.
        """
        span = self.spans.get(partition)
        if span is None or low <= span.next:
            return None
        span.start = span.next = low
        self._look(partition, span)
        return span

    def _look(self, partition: Partition, span: Span) -> None:
        """Wait for a partition no more once it was read up to where it ended."""
        if span.reached:
            self._waiting.pop(partition, None)

    def drop(self, topic: str) -> None:
        """Forget the partitions of a topic that was deleted."""
        for one in [one for one in self.spans if one[0] == topic]:
            del self.spans[one]
        for one in [one for one in self._waiting if one[0] == topic]:
            del self._waiting[one]

    def lag(self) -> int:
        """Return how many offsets are to be read until this member is ready."""
        return sum(
            max(0, self.spans[one].end - self.spans[one].next)
            for one in self._waiting
            if one in self.spans
        )

    def behind(self) -> str | None:
        """Return what keeps this member from being ready; None if it is."""
        if not self._waiting:
            return None
        topic, number = next(iter(self._waiting))
        return (
            f"reading: {len(self._waiting)} partitions (such as {number} of {topic}) are not read "
            f"up to where they ended at the start, {self.lag()} records are missing"
        )
