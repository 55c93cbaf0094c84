"""`ClusterEngine = kafka`: the topics of a Kafka cluster are the log that members share.

A publication becomes a record (`mdserver.cluster.kafka_records`), and its publisher is answered
when Kafka has acknowledged it (`mdserver.cluster.kafka_producing`). Every member reads every topic,
and what it reads is what subscribers get, so all of them have the same messages under the same
positions (`mdserver.cluster.kafka_progress`).

    state of a member      what happens                           to
    no topics known        the metadata come                      READING, new history id
    READING                everything was read that was there     READY
    READY                  further topics                         READING them, new history id
    any                    a topic was created again, or has      READING, new history id, empty
                           more partitions, or brokers lost       cache
                           the end of one
    any                    a topic was deleted                    the same, new history id, without
                                                                  its subjects

A client may come with the position of a record that brokers lost, to a member that never saw it.
Leader epochs tell (`Span.lost`), and the client gets a reset.

Subjects of records come by themselves, so their number is bounded here: beyond `MaxSubjects` those
that are idle for longest are forgotten. A client that comes with a position of a forgotten subject
is told that it may have missed something (`Span.forgotten`).

This is the only one of the modes that numbers nothing. What is said of elections, votes and links
has no meaning here.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdserver.cluster.kafka_messages import (
    Consume,
    KafkaCounts,
    KafkaInput,
    ProductionReports,
    Reachability,
    ReadingBegun,
    RecordsLost,
    RecordsRead,
    RecordsRemoved,
    TopicsSeen,
)
from mdserver.cluster.kafka_producing import Producing
from mdserver.cluster.kafka_progress import (
    Change,
    Consumption,
    Partition,
    TopicSeen,
    change,
    history_of,
    position_of,
)
from mdserver.cluster.kafka_records import (
    KafkaRecord,
    Places,
    PoisonError,
    publication,
    split,
)
from mdserver.cluster.kafka_repeats import FORGOTTEN, Repeats
from mdserver.cluster.kafka_sweep import Sweep
from mdserver.core.message import Entry, Position, Qos
from mdserver.core.proposal import Outcome
from mdserver.limits import (
    KAFKA_ABSENT_MAX,
    KAFKA_COMPLAINTS_MAX,
    KAFKA_GONE_S,
    KAFKA_IDLE_AT_ONCE,
    KAFKA_SUBJECTS_SHARE,
    NS_PER_S,
)

if TYPE_CHECKING:
    from mdserver.cluster.messages import Heartbeat, Hello
    from mdserver.cluster.mode import Sequencer
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.pending import PendingPublications
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.core.broker import Broker
    from mdserver.core.proposal import Proposal


class KafkaMode:
    """The mode in which Kafka numbers. A `Mode`; it is given inputs of its own by `take`."""

    def __init__(
        self,
        settings: "ClusterSettings",
        broker: "Broker",
        outgoing: "Outgoing",
        pending: "PendingPublications",
        sequencer: "Sequencer",
        partitioner: str,
        *,
        holds: bool,
    ) -> None:
        self.sequencer = sequencer
        self.handlers: dict[type, Callable[[str, Any], None]] = {}
        self._settings = settings
        self._broker = broker
        self._outgoing = outgoing
        self._cluster = ""
        self._topics: dict[str, TopicSeen] = {}
        self._partitions: dict[str, int] = {}
        self._places = Places(self._partitions, partitioner, broker.settings.groups)
        self._missing: tuple[str, ...] = ()
        self._gone: dict[str, int] = {}
        """Topics that are missing, though they were there -> since when (ns)."""
        self._losses: dict[tuple[str, int, int], None] = {}
        """Topic, partition and end of each loss that this member saw; part of the history id."""
        self._lost: dict[Partition, int] = {}
        """Losses that may as well mean that a topic was created again."""
        self._sweep = Sweep(broker.replica, self._places, outgoing)
        self._subjects_max = int(broker.settings.subjects_max * KAFKA_SUBJECTS_SHARE)
        self._absent: OrderedDict[str, None] = OrderedDict()
        """Subjects that may be known by the word of a client alone, oldest first."""
        self._absent_max = min(KAFKA_ABSENT_MAX, broker.settings.subjects_max // 40)
        self._consumption = Consumption()
        self._repeats = Repeats()
        self._producing = Producing(
            broker,
            outgoing,
            pending,
            self._partitions,
            self._places,
            self._consumption,
            self._repeats,
        )
        self._ready = False
        self.away: str | None = "Kafka has not answered yet"
        """Why Kafka cannot be reached; None if it can be."""
        self._holds = holds
        """Whether publications wait while Kafka is away."""
        self._records = self._poison = self._strays = self._repeated = 0
        self._complaints = 0
        self._takers: dict[type, Callable[[Any], None]] = {
            TopicsSeen: self._topics_seen,
            ReadingBegun: self._reading_begun,
            RecordsRead: self._records_read,
            RecordsRemoved: self._records_removed,
            RecordsLost: self._records_lost,
            ProductionReports: self._producing.reported,
            Reachability: self._reachability,
        }

    def take(self, input: KafkaInput) -> None:  # noqa: A002 - as `Node.step`
        """Take what Kafka says."""
        self._takers[type(input)](input)

    def counts(self) -> KafkaCounts:
        """Return what was counted."""
        return KafkaCounts(
            self._records,
            self._poison,
            self._strays,
            self._repeated,
            len(self._producing),
            self._consumption.lag(),
        )

    # Publications

    def propose(self, proposals: "Sequence[Proposal]") -> None:
        """Have publications produced, in order, or answer why not."""
        self._producing.propose(proposals, self._refusing())

    def _refusing(self) -> str | None:
        """Return why no publications are taken; None if they are, be it to wait for Kafka."""
        # Without topics nobody knows what a subject belongs to, so there is nothing to hold.
        return None if self._holds and self._topics else self.away

    # Records

    def _records_read(self, read: RecordsRead) -> None:
        """Show subscribers what was read, and answer the publishers of what has a number."""
        by_group: dict[int, list[Entry]] = {}
        outcomes: list[Outcome] = []
        spans = self._consumption.spans
        for record in read.records:
            span = spans.get((record.topic, record.partition))
            if span is None or record.offset < span.next:
                continue  # read before, or of a topic that is read anew by now
            if record.leader_epoch != span.leader_epoch:
                span.lead(record.leader_epoch, record.offset)
            span.next = record.offset + 1
            self._records += 1
            try:
                self._read_one(record, by_group, outcomes)
            except PoisonError as error:
                self._poison += 1
                if self._complains():
                    self._outgoing.log("poison record", **_found(record), reason=str(error))
        self._show(by_group)
        self._producing.resolve(outcomes)
        for partition, following in read.reached.items():
            self._consumption.reach(partition, following)
        self._forget(self._broker.replica.forget_oldest(self._subjects_max), complain=True)
        self._look_ready()

    def _forget(self, forgotten: Sequence[tuple[str, Position]], *, complain: bool = False) -> None:
        """Note which subjects were forgotten: nobody can say what they missed of these."""
        for subject, at in forgotten:
            topic, key = split(subject)
            if topic in self._partitions:
                span = self._consumption.spans.get((topic, self._places.of(topic, key).partition))
                if span is not None:
                    span.forgotten = max(span.forgotten, at.seq)
        if forgotten and complain and self._complains():
            self._outgoing.log("subjects forgotten", subjects=len(forgotten))

    def _read_one(
        self, record: KafkaRecord, by_group: dict[int, list[Entry]], outcomes: list[Outcome]
    ) -> None:
        """Add what a record says to the entries of its group. Raises PoisonError."""
        place = self._places.of(record.topic, record.key)
        stray = place.partition != record.partition
        settings = self._broker.settings
        published = publication(record, place, settings.message_bytes_max, stray=stray)
        position = position_of(record.leader_epoch, record.offset)
        if stray:
            self._strays += 1
            if self._complains():
                self._outgoing.log("stray record", **_found(record), expected=place.partition)
        elif published.number:
            line = (place.topic, place.partition, place.group, published.publisher)
            earlier = self._repeats.take(line, published.number, position)
            outcomes += self._producing.read(line, published.number, position, earlier)
            if earlier is not None:
                self._repeated += 1
                return
        if published.qos is Qos.STANDARD:
            position = FORGOTTEN
            if not self._ready:
                return  # at most once, and these were sent before this member began
        if self._sweep.lows and not stray:
            self._show(by_group)
            self._sweep.tell(place)
        entry = Entry(position.epoch, position.seq, published)
        by_group.setdefault(place.group, []).append(entry)
        if record.value is None and not stray:
            self._show(by_group)
            self._broker.replica.forget_snapshot(place.subject)

    def _show(self, by_group: dict[int, list[Entry]]) -> None:
        """Have subscribers receive the entries, and begin new lists of them."""
        if by_group:
            now, out = self._outgoing.now, self._outgoing.out
            self._broker.replica.committed_in(list(by_group.items()), now, out, ordered=False)
            by_group.clear()

    def _complains(self) -> bool:
        """Return whether a record that is not as it should be is logged: the first of a second."""
        self._complaints += 1
        return self._complaints <= KAFKA_COMPLAINTS_MAX

    def _records_removed(self, removed: RecordsRemoved) -> None:
        """Tell subscribers of a partition what they missed, because retention removed it."""
        topic, number = removed.partition
        span = self._consumption.overtake(removed.partition, removed.low)
        if span is None:
            return
        self._outgoing.log("records removed", topic=topic, partition=number, low=removed.low)
        # What was removed may be of a later leader, of which nothing was read here.
        gone = position_of(max(0, span.leader_epoch), removed.low - 1)
        self._sweep.overtake(removed.partition, gone)
        self._look_ready()

    def _records_lost(self, lost: RecordsLost) -> None:
        """Note a loss; what it means shows when the topics were looked at once more."""
        span = self._consumption.spans.get(lost.partition)
        if span is not None and lost.high < span.next:
            self._lost[lost.partition] = lost.high

    def sweep_on(self) -> None:
        """Go on with work on all subjects; forget topics whose subjects are all forgotten."""
        removed = self._sweep.step()
        if not removed:
            return
        self._lost = {at: high for at, high in self._lost.items() if at[0] not in removed}
        for topic in removed:
            del self._topics[topic]
            self._gone.pop(topic, None)
            self._consumption.drop(topic)
            self._repeats.drop(topic)
        self._renumbered(Change.REMOVED)
        history = self._history()
        groups = range(self._broker.settings.groups)
        self._broker.rename(history, groups, self._outgoing.now, self._outgoing.out)
        self._outgoing.out.append(Consume([], anew=False, whole=(), ended=tuple(removed)))
        self._look_ready()

    def stand_for(self, subject: str, after: Position) -> bool:
        """Prepare for a client that comes with a position of a subject under this numbering.

        The subject may be unknown here although this member has read beyond the position: nothing
        came after it, or retention removed what it names. The client must not wait for it then.
        Returns False if the position is of a record that brokers lost.
        """
        topic, key = split(subject)
        if topic not in self._partitions:
            return True
        try:
            place = self._places.of(topic, key)
        except PoisonError:
            return True
        span = self._consumption.spans.get((topic, place.partition))
        if span is None:
            return True
        if span.lost(after):
            return False
        known = span.known_up_to(after.seq)
        if known is not None:
            at = Position(after.epoch, known)
            replica = self._broker.replica
            replica.note_absent(subject, at, span.floor, self._outgoing.now)
            self._absent[subject] = None
            if len(self._absent) > self._absent_max:
                replica.forget_absent(self._absent.popitem(last=False)[0])
        return True

    # Topics

    def _topics_seen(self, seen: TopicsSeen) -> None:
        """Compare the topics with those that are read, and read what is new."""
        topics = {topic.name: topic for topic in seen.topics}
        self._missing = seen.missing
        self._cluster = seen.cluster
        what = change(self._topics, topics) if self._topics else Change.RENUMBERED
        lost = self._take_losses(topics)
        if lost and what is not Change.RENUMBERED:
            what = Change.LOST
        self._look_for_gone(topics)
        if what is Change.NONE or not topics:
            self._look_ready()
        elif what is Change.ADDED:
            self._read_further(topics)
        else:
            self._read_anew(topics, what)

    def _take_losses(self, topics: Mapping[str, TopicSeen]) -> bool:
        """Return whether partitions lost their ends. One of a topic created again lost nothing.

        What was lost of a topic that was not seen just now is known once it is seen again.
        """
        before = len(self._losses)
        for (name, number), high in self._lost.items():
            if name in topics and topics[name] == self._topics.get(name):
                self._outgoing.log("records lost", topic=name, partition=number, high=high)
                self._losses[name, number, high] = None
        self._lost = {at: high for at, high in self._lost.items() if at[0] not in topics}
        return len(self._losses) > before

    def _look_for_gone(self, topics: Mapping[str, TopicSeen]) -> None:
        """Begin to forget topics that were deleted.

        Those that the configuration names are waited for, and so are all topics if none is there:
        the properties may name another cluster by now.
        """
        now = self._outgoing.now
        self._gone = {
            name: self._gone.get(name, now)
            for name in self._topics
            if name not in topics and name not in self._missing
        }
        for name, since in self._gone.items():
            if topics and since + KAFKA_GONE_S * NS_PER_S <= now and not self._sweep.removing(name):
                self._sweep.remove(name)

    def _history(self) -> str:
        """Return the history id of the topics that are read."""
        return history_of(self._cluster, self._topics.values(), self._losses)

    def _renumbered(self, what: Change) -> None:
        """Note that `_topics` has changed."""
        self._partitions.clear()
        self._partitions.update({name: topic.partitions for name, topic in self._topics.items()})
        self._places.forget()
        self._outgoing.log(
            "topics", topics=len(self._topics), change=what.value, history=self._history()
        )

    def _read_further(self, topics: dict[str, TopicSeen]) -> None:
        """Read further topics from their beginning, beside the others."""
        now, out = self._outgoing.now, self._outgoing.out
        fresh = [topic for topic in topics.values() if topic.name not in self._topics]
        self._topics = {**self._topics, **topics}
        self._renumbered(Change.ADDED)
        self._broker.rename(self._history(), range(self._broker.settings.groups), now, out)
        partitions = _partitions(fresh)
        self._consumption.expect(partitions)
        whole = tuple(topic.name for topic in fresh)
        out.append(Consume(partitions, anew=False, whole=whole))

    def _read_anew(self, topics: dict[str, TopicSeen], what: Change) -> None:
        """Read all topics as a start does: positions mean other records than before."""
        known = self._topics
        whole = tuple(
            name
            for name, topic in topics.items()
            if known and (name not in known or known[name].id != topic.id)
        )
        self._losses = {
            loss: None for loss in self._losses if topics.get(loss[0]) == known.get(loss[0])
        }
        self._topics = topics
        self._lost.clear()
        self._gone.clear()
        self._sweep.clear()
        self._renumbered(what)
        self._consumption.clear()
        self._repeats.clear()
        self._ready = False
        self._broker.reset(self._history(), None, self._outgoing.now, self._outgoing.out)
        self._producing.give_up(
            "Kafka lost records"
            if what is Change.LOST
            else "the topic was created anew or got more partitions"
        )
        partitions = _partitions(topics.values())
        self._consumption.expect(partitions)
        self._outgoing.out.append(Consume(partitions, anew=True, whole=whole))

    def _reading_begun(self, begun: ReadingBegun) -> None:
        """Note from where to where partitions are read; some may be of a topic that is gone."""
        for partition, (start, end) in begun.offsets.items():
            if partition[1] < self._partitions.get(partition[0], 0):
                self._consumption.begin(partition, start, end)
        self._look_ready()

    def _look_ready(self) -> None:
        """Serve clients once everything was read that was there at the start."""
        if self._ready or not self._topics or self._missing:
            return
        if self._consumption.behind() is None:
            self._ready = True
            self._outgoing.log("joined", groups=self._broker.settings.groups)

    def _reachability(self, reachability: Reachability) -> None:
        """Refuse or hold publications while Kafka is away; the cache serves subscribers."""
        before, self.away = self.away, reachability.reason
        self._broker.publications.refusing = self._refusing()
        if self.away is not None and before is None:
            self._outgoing.log("kafka away", reason=self.away)
        elif self.away is None and before is not None and self._topics:
            self._outgoing.log("kafka back")

    # `Mode`

    def tick(self) -> None:
        """Give up publications that wait for too long; called once a second."""
        self._complaints = 0
        self._forget(self._broker.replica.forget_idle(KAFKA_IDLE_AT_ONCE))
        self._producing.give_up_overdue(self._settings.publish_timeout)

    def unready(self) -> str | None:
        """Return why this member serves no clients now; None if it does."""
        if self._ready:
            return None
        if self._missing:
            return f"there is no topic {self._missing[0]}: create it, or correct `topics`"
        if not self._topics:
            return self.away or "no topic matches `topics.regex`"
        return self._consumption.behind()

    def greeted(self, peer: str, hello: "Hello") -> None:
        """Do nothing: members have no links."""

    def outdated(self, peer: str, hello: "Hello") -> None:
        """Do nothing: members have no links."""

    def heartbeat(self, peer: str, heartbeat: "Heartbeat") -> None:
        """Do nothing: members have no links."""

    def link_lost(self, peer: str) -> None:
        """Do nothing: members have no links."""

    def member_unreachable(self) -> None:
        """Do nothing: members have no links."""

    def rebalance(self) -> None:
        """Do nothing: members have no groups to hand over."""


def _partitions(topics: Iterable[TopicSeen]) -> list[Partition]:
    """Return all partitions of topics."""
    return [(topic.name, number) for topic in topics for number in range(topic.partitions)]


def _found(record: KafkaRecord) -> dict[str, str | int | bool | None]:
    """Return where a record is, for the server log."""
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}
