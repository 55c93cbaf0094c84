"""Members whose log is Kafka, while everything happens to it: `python -m simulation kafka`.

A seed draws what happens: publications whose results are lost, retries of producers that append
twice, records of others, members that lag, are killed and start, Kafka out of reach, retention and
compaction, and clients that move between members with the positions that they know. The checker of
histories judges what clients saw. Offsets have gaps, so each record that counts gets the number
that it has in its subject: a message that is left out then shows.

Topic `t` loses old records by retention, which clients have to be told. Topic `c` is compacted: of
each subject only the last record is sure to come.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field, frozen

from mdserver.cluster.kafka_messages import Reachability, RecordsRemoved
from mdserver.cluster.kafka_progress import Partition
from mdserver.cluster.kafka_records import ID, murmur2
from mdserver.core.commands import Connect, PositionAfter, Publish, Subscribe
from mdserver.core.events import Connected, Delivery, Status, StatusName
from mdserver.core.events import Reset as ResetEvent
from mdserver.core.inputs import Closed, Opened, Received
from mdserver.core.message import MessageType
from mdserver.core.outputs import Deliver, Output, Send
from simulation.checker import Checker
from simulation.history import Acked, Delivered, Gap, Published, Reset, Settled, Subscribed
from simulation.kafka_log import PARTITIONS, SimulatedLog, SimulatedMember

KEYS = (b"a", b"b", b"c/d")
TOPICS = ("t", "c")
SUBJECTS = [f"/{topic}/{key.decode()}" for topic in TOPICS for key in KEYS]
STEPS = 120
SUBSCRIBERS = 2
PUBLISHERS = 2


@frozen
class KafkaResult:
    """What came of a seed; `problems` are sentences, and none means that it passed."""

    seed: int
    problems: tuple[str, ...]
    delivered: int
    acked: int
    coverage: dict[str, int]


class CountingLog(SimulatedLog):
    """A log that knows which number each record has in its subject; repeats have none."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[tuple[str, int], int] = {}
        self._counts: Counter[str] = Counter()
        self._firsts: dict[tuple[str, bytes], int] = {}

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> int:
        """Append a record; return its offset."""
        offset = super().append(topic, partition, key, value, headers)
        subject = f"/{topic}/{(key or b'').decode()}"
        identity = dict(headers).get(ID)
        first = offset
        if identity is not None:
            first = self._firsts.setdefault((subject, identity), offset)
        if first == offset:
            self._counts[subject] += 1
            self.numbers[subject, offset + 1] = self._counts[subject]
        elif all(one.offset != first for one in self.records[topic, partition]):
            self.records[topic, partition].pop()  # see `_without_repeats`
        return offset

    def number_up_to(self, subject: str, seq: int) -> int:
        """Return the number of the last record of a subject up to a position, 0 without one."""
        return max(
            (
                number
                for (about, at), number in self.numbers.items()
                if about == subject and at <= seq
            ),
            default=0,
        )

    def retain(self, at: Partition, low: int) -> None:
        """Remove the records before an offset, and repeats of these."""
        super().retain(at, low)
        self._without_repeats(at)

    def compact(self, at: Partition) -> None:
        """Keep the last record of each key only; a repeat goes before what it repeats."""
        self._without_repeats(at)
        super().compact(at)

    def _without_repeats(self, at: Partition) -> None:
        # A member that starts later would take a repeat for the first one. That is a boundary which
        # docs/kafka.md names: repeats are found among what a member has read.
        self.records[at] = [
            one
            for one in self.records[at]
            if (f"/{one.topic}/{(one.key or b'').decode()}", one.offset + 1) in self.numbers
        ]


class Member(SimulatedMember):
    """A member that hands what it says to the clients of the world."""

    def __init__(self, world: "KafkaWorld", name: str) -> None:
        self.world = world
        self.removed: dict[Partition, int] = {}
        """Partitions of which retention removed what this member had not read -> their new low."""
        super().__init__(world.log, name)

    def step(self, given: object) -> list[Output]:
        """Give the node an input, and clients what it says."""
        if isinstance(given, RecordsRemoved):
            self.removed[given.partition] = given.low
        outputs = super().step(given)
        for output in outputs:
            match output:
                case Deliver():
                    for session in output.sessions:
                        self.world.said(self, session, output.delivery)
                case Send():
                    self.world.said(self, output.session, output.event)
        return outputs


@define(eq=False)
class SimulatedClient:
    """A client with the positions that it knows; a publisher also has a publication in flight."""

    name: str
    member: Member | None = None
    session: int = 0
    identity: tuple[str, str] | None = None
    positions: dict[str, PositionAfter] = field(factory=dict)
    number: int = 0
    flying: Publish | None = None


class KafkaWorld:
    """The log, its members and their clients under one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"kafka {seed}")
        self.at = 0
        self.coverage: Counter[str] = Counter()
        self.checker = Checker(majority_kept=False, gaps_exact=True)
        self.log = CountingLog()
        for topic in TOPICS:
            self.log.create(topic)
        self.sessions = 0
        self.clients: dict[tuple[Member, int], SimulatedClient] = {}
        self.members = [Member(self, f"m{number}") for number in range(3)]
        for member in self.members:
            member.read()
        self.subscribers = [SimulatedClient(f"s{number}") for number in range(SUBSCRIBERS)]
        self.publishers = [SimulatedClient(f"p{number}") for number in range(PUBLISHERS)]
        self.acked = 0
        self.others = 0

    # Clients

    def connect(self, client: SimulatedClient) -> None:
        """Move a client to a member that serves clients, if there is one."""
        ready = [member for member in self.members if member.node.unready() is None]
        if not ready:
            return
        if client.member is not None:
            self.leave(client)
        member = self.rng.choice(ready)
        self.sessions += 1
        client.member, client.session = member, self.sessions
        self.clients[member, client.session] = client
        member.step(Opened(client.session, "127.0.0.1"))
        publisher, key = client.identity or (client.name, None)
        command = Connect(publisher=publisher, publisher_key=key)
        member.step(Received(client.session, [command]))
        if client in self.subscribers:
            for subject in SUBJECTS:
                if subject not in client.positions:
                    low = member.removed.get(self._partition(subject), 0)
                    gone = self.log.number_up_to(subject, low)
                    self.checker.see(Subscribed(self.at, client.name, subject, gone))
            command_ = Subscribe(subjects=list(SUBJECTS), positions=dict(client.positions))
            member.step(Received(client.session, [command_]))
        elif client.flying is not None:
            self.coverage["repeats"] += 1
            member.step(Received(client.session, [client.flying]))

    def leave(self, client: SimulatedClient) -> None:
        """End a client's session."""
        member = client.member
        assert member is not None
        del self.clients[member, client.session]
        client.member = None
        member.step(Closed(client.session, "moved"))

    def said(self, member: Member, session: int, event: object) -> None:
        """Take what a member says to a client."""
        client = self.clients.get((member, session))
        if client is None:
            return
        match event:
            case Connected(publisher=str() as publisher, publisher_key=str() as key):
                client.identity = publisher, key
            case Delivery():
                self._delivered(client, member, event)
            case Status():
                self._status(client, member, event)
            case ResetEvent():
                for subject in event.subjects:
                    client.positions.pop(subject, None)
                    self.checker.see(Reset(self.at, client.name, subject, event.history))

    def _delivered(self, client: SimulatedClient, member: Member, event: Delivery) -> None:
        entry = event.entry
        subject, history = entry.publication.subject, member.node.history
        known = client.positions.get(subject)
        if known is not None and known.history == history and entry.seq <= known.seq:
            self.coverage["dropped by position"] += 1
            return
        client.positions[subject] = PositionAfter(history, entry.epoch, entry.seq)
        self.checker.see(
            Delivered(
                self.at,
                client.name,
                entry.publication.content.decode(),
                subject,
                history,
                1,
                self.log.numbers.get((subject, entry.seq), 10**6 + entry.seq),
                snapshot=event.type is MessageType.SNAPSHOT,
                conflated=subject.startswith("/c/"),
            )
        )

    def _status(self, client: SimulatedClient, member: Member, event: Status) -> None:
        if event.status is StatusName.DATA_RESYNC and event.subject is not None:
            self.coverage["told of a gap"] += 1
            assert event.missing is not None
            last = self.log.number_up_to(event.subject, event.missing.last.seq)
            self.checker.see(Gap(self.at, client.name, event.subject, max(1, last)))
        flying = client.flying
        if flying is None or event.closure != flying.closure:
            return
        if event.status is StatusName.PUBLISH_OK:
            client.flying = None
            self.acked += 1
            number = self.log.numbers.get((flying.subject, event.seq or 0), 0)
            history, content = member.node.history, flying.content or ""
            epoch = 1 if event.seq else 0
            self.checker.see(Acked(self.at, content, flying.subject, history, epoch, number))
        elif event.status is StatusName.PUBLISH_FAILED:
            self.coverage["failed"] += 1

    # What happens

    def publish(self, client: SimulatedClient, subject: str | None = None) -> None:
        """Have a publisher publish once more, if its last publication has its result."""
        if client.member is None:
            self.connect(client)
        if client.member is None or client.flying is not None:
            return
        client.number += 1
        subject = subject or self.rng.choice(SUBJECTS)
        content = f"{client.name}.{client.number}"
        client.flying = Publish(
            subject=subject, content=content, closure=content, number=client.number
        )
        self.checker.see(Published(self.at, content, subject, client.name, client.number))
        client.member.step(Received(client.session, [client.flying]))

    def deliver(self, member: Member) -> None:
        """Have the log take what a member produced; acknowledgements and retries may go wrong."""
        lost, again = self.rng.random() < 0.2, self.rng.random() < 0.2
        self.coverage["lost acknowledgements"] += lost and bool(member.produced)
        self.coverage["retries of producers"] += again and bool(member.produced)
        member.deliver(report=not lost, again=again)

    def other(self) -> None:
        """Append a record of a producer that knows nothing of mdserver."""
        self.others += 1
        topic, key = self.rng.choice(TOPICS), self.rng.choice(KEYS)
        content = f"other.{self.others}"
        subject = f"/{topic}/{key.decode()}"
        self.checker.see(Published(self.at, content, subject, once=False))
        self.log.append(topic, home(key), key, content.encode())

    def remove(self) -> None:
        """Let retention or compaction remove records, but for what may be repeated still."""
        flying = [self._partition(one.flying.subject) for one in self.publishers if one.flying]
        topic = self.rng.choice(TOPICS)
        at = topic, self.rng.randrange(PARTITIONS)
        if at in flying:
            return
        if topic == "t":
            self.log.retain(at, self.rng.randint(0, self.log.ends[at]))
            self.coverage["retention"] += 1
        else:
            self.log.compact(at)
            self.coverage["compaction"] += 1

    def elect(self) -> None:
        """Have another broker lead a partition, which has all of it."""
        self.log.elect((self.rng.choice(TOPICS), self.rng.randrange(PARTITIONS)))
        self.coverage["leaders"] += 1

    def _partition(self, subject: str) -> Partition:
        _, topic, key = subject.split("/", 2)
        return topic, home(key.encode())

    def reach(self, member: Member, reason: str | None) -> None:
        """Let Kafka be away for a member, or be back."""
        member.step(Reachability(reason))

    def kill(self, number: int) -> None:
        """Kill a member, and start another one in its place."""
        gone = self.members[number]
        self.coverage["kills"] += 1
        self.members[number] = Member(self, f"m{number}")
        for at, client in list(self.clients.items()):
            if at[0] is gone:
                del self.clients[at]
                client.member = None

    def step(self) -> None:
        """Let one thing happen."""
        rng = self.rng
        member = rng.choice(self.members)
        choices: list[tuple[int, Callable[[], None]]] = [
            (30, lambda: self.publish(rng.choice(self.publishers))),
            (20, partial(self.deliver, member)),
            (25, partial(member.read, rng.randint(1, 6))),
            (8, member.sweep),
            (8, self.other),
            (6, lambda: self.connect(rng.choice(self.subscribers + self.publishers))),
            (10, self.remove),
            (2, lambda: self.kill(rng.randrange(len(self.members)))),
            (2, lambda: self.reach(member, "away")),
            (4, lambda: self.reach(member, None)),
            (2, partial(member.tick, rng.choice((1, 11)))),
            (4, self.elect),
        ]
        _, chosen = zip(*choices, strict=True)
        weights = [weight for weight, _ in choices]
        self.at += 1
        rng.choices(chosen, weights)[0]()

    def settle(self) -> None:
        """Heal everything, and have each subject get a last message that everybody must see."""
        for subject in [*SUBJECTS, None]:
            for client in self.publishers:
                while client.flying is not None:
                    self._calm()
                    self.connect(client)
                    self._calm()
            if subject is not None:
                self._calm()
                self.publish(self.publishers[0], subject)
        for client in self.subscribers:
            if client.member is None:
                self.connect(client)
        self._calm()
        for client in self.subscribers:
            for subject in SUBJECTS:
                self.checker.see(Settled(self.at, client.name, subject))

    def _calm(self) -> None:
        self.at += 1
        for member in self.members:
            member.step(Reachability(None))
            member.deliver()
        for member in self.members:
            member.read()
            member.sweep()


def home(key: bytes) -> int:
    """Return the partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % PARTITIONS


def run_kafka(seed: int) -> KafkaResult:
    """Run a seed to its end, and judge it."""
    world = KafkaWorld(seed)
    for client in [*world.subscribers, *world.publishers]:
        world.connect(client)
    for _ in range(STEPS):
        world.step()
    world.settle()
    problems = tuple(f"{one.kind}: {one.what}" for one in world.checker.finish())
    return KafkaResult(seed, problems, world.checker.delivered, world.acked, dict(world.coverage))
