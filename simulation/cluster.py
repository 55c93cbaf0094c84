"""The one driver of nodes in memory: it carries out what their steps say, on simulated time.

`Driver` is one member: its node, clock, timers and disk. What goes over connections is carried out
by whoever makes one, since that is where its users differ: `simulation.members` has clients and
links with delays of their own, and `Cluster` below has as little as a test needs to say.

A node says first what has to be written down, and gets the word that it is only afterwards
(`Persist` and `Persisted`, `WriteWal` and `WalSynced`). Votes and the write-ahead log are written
apart from each other, each in the order in which that was asked for. A crash takes memory and
timers; what was on its way to the disk may or may not have got there, the earlier before the later.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from attrs import define, field

from mdserver.cluster.messages import (
    AdminCommand,
    AdminReply,
    AnyPeerMessage,
    ClosePeer,
    PeerDown,
    PeerReceived,
    PeerUp,
    Persist,
    Persisted,
    SendPeer,
)
from mdserver.cluster.node import TICK, Input, Node
from mdserver.cluster.settings import ClusterSettings, worker_of
from mdserver.cluster.statistics import NodeStatistics
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.cluster.wal import AnyWalEntry, WalSynced, WriteWal
from mdserver.codec.frames import FrameReader
from mdserver.codec.peer import MESSAGE, message_frame, messages
from mdserver.core.commands import AnyCommand, Connect, Publish, Subscribe
from mdserver.core.events import AnyEvent, Delivery, Status
from mdserver.core.inputs import Closed, Opened, Received, TimerDue, TimerKey
from mdserver.core.message import Entry
from mdserver.core.outputs import (
    CancelTimer,
    Committed,
    Deliver,
    Disconnect,
    Log,
    Output,
    Send,
    SetTimer,
)
from mdserver.core.publishers import PublisherKeys
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import group_of
from mdserver.limits import NS_PER_MS, NS_PER_S
from simulation.clock import Clock, Heap
from simulation.network import Direction
from simulation.versions import named

WAL: msgspec.msgpack.Decoder[AnyWalEntry] = msgspec.msgpack.Decoder(AnyWalEntry)


@define
class Disk:
    """What outlives a member: its vote record, None if there is none, and its write-ahead log."""

    votes: bytes | None = None
    wal: list[bytes] = field(factory=list)

    def copy(self) -> "Disk":
        """Return what is on it now."""
        return Disk(self.votes, list(self.wal))


class Driver:
    """One member; `node` is None while it is down, and `life` counts its starts and crashes.

    `votes_writing` are the vote records that are on their way to the disk.
    """

    def __init__(self, name: str, heap: Heap, disk: Disk) -> None:
        self.name = name
        self.heap = heap
        self.clock = Clock(heap)
        self.disk = disk
        self.node: Node | None = None
        self.version = named("this")
        self.life = 0
        self.votes_writing: list[bytes] = []
        self._wal_writing: list[list[bytes]] = []
        self._timers: dict[TimerKey, int] = {}
        self._timers_set = 0
        self._votes_at = 0
        self._wal_at = 0
        self._stalled_until = 0
        self.carriers: dict[type, Callable[[Any], None]] = {
            Persist: self._persist,
            WriteWal: self._write_wal,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
        }
        self._carriers = self.carriers  # by the classes of the version that runs

    @property
    def running(self) -> Node:
        """The node of a member that is up."""
        assert self.node is not None
        return self.node

    # Life and death

    def boot(
        self,
        broker: BrokerSettings,
        cluster: ClusterSettings,
        name: str,
        rng: random.Random,
        *,
        recorded: bool | None = None,
    ) -> VoteRecord:
        """Make a node of what the disk holds; return the vote record that it starts with.

        `name` is the cluster's, and `recorded` is whether this incarnation acks only what it has
        in its write-ahead log, if the record shall say something else than what it says by itself.
        """
        version = self.version
        votes: VoteRecord = version.started(self.disk.votes, self.name, name, broker.groups)
        if recorded is not None:
            if not votes.recorded:
                # A run that did not write everything down left a log that proves nothing.
                self.disk.wal = []
            votes.recorded = recorded
        self.disk.votes = version.record(votes.encode())
        self.life += 1
        wal = version.wal(self.disk.wal)
        own = version.own_value
        self.node = version.node(own(broker), rng, own(cluster), votes, wal, self.clock.now())
        self._carriers_of_version()
        return votes

    def _carriers_of_version(self) -> None:
        self._carriers = {self.version.own(kind): carry for kind, carry in self.carriers.items()}

    def boot_worker(
        self,
        broker: BrokerSettings,
        cluster: ClusterSettings,
        incarnation: int,
        rng: random.Random,
    ) -> None:
        """Make the node of a worker process, which has no disk."""
        none = [Vote() for _ in range(broker.groups)]
        votes = VoteRecord(self.name, "", incarnation, False, none, {})
        self.life += 1
        self.node = Node(broker, rng, cluster, votes, now=self.clock.now())
        self._carriers_of_version()

    def halt(self, votes: int = 0, wal: int = 0) -> None:
        """Die at once. So many of the writes that are on their way still reach the disk."""
        for record in self.votes_writing[:votes]:
            self.disk.votes = record
        for entries in self._wal_writing[:wal]:
            self.disk.wal += entries
        self.votes_writing = []
        self._wal_writing = []
        self._timers = {}
        self.node = None
        self.life += 1

    # Inputs and outputs

    def step(self, input: Input) -> list[Output]:  # noqa: A002 - the design's word
        """Take one step, and carry out what comes of it."""
        if self.node is None:
            return []
        outputs = self.node.step(self.version.own_value(input), self.clock.now())
        for output in outputs:
            carry = self._carriers.get(type(output))
            if carry is not None:
                carry(output)
        return outputs

    def soon(self, input: Input) -> None:  # noqa: A002
        """Take a step right after this one, if this life lasts."""
        life = self.life

        def go_on() -> None:
            if self.life == life:
                self.step(input)

        self.heap.after(0, go_on)

    # Timers

    def _set_timer(self, output: SetTimer) -> None:
        self._timers_set += 1
        number = self._timers[output.timer] = self._timers_set

        def due() -> None:
            if self._timers.get(output.timer) == number:
                del self._timers[output.timer]
                self.step(TimerDue(output.timer))

        self.heap.after(self.clock.true_delay(output.at), due)

    def _cancel_timer(self, output: CancelTimer) -> None:
        self._timers.pop(output.timer, None)

    # The disk

    def disk_delay(self) -> int:
        """Return how long the next write takes (ns)."""
        return 2 * NS_PER_MS

    def wal_portion(self) -> int:
        """Return how many entries of the write-ahead log are written at once, 0 for all."""
        return 0

    def wal_synced(self) -> None:
        """The node knows of more of its write-ahead log on the disk."""

    def stall(self, lasting: int) -> None:
        """The disk takes nothing for a while, neither what is on its way nor what comes."""
        self._stalled_until = max(self._stalled_until, self.heap.now + lasting)

    @property
    def wal_writes(self) -> int:
        """How many writes of the write-ahead log are on their way to the disk."""
        return len(self._wal_writing)

    def _persist(self, output: Persist) -> None:
        self._votes_at = max(self._votes_at, self.heap.now + self.disk_delay())
        self.votes_writing.append(self.version.record(output.record))

        def done() -> None:
            self.disk.votes = self.votes_writing.pop(0)
            self.step(Persisted(output.request))

        self._once_written(self._votes_at, done)

    def _write_wal(self, output: WriteWal) -> None:
        entries = [self.version.wal_entry(entry) for entry in output.entries]
        portion = self.wal_portion()
        size = portion or len(entries) or 1
        portions = [entries[at : at + size] for at in range(0, len(entries), size)] or [[]]

        def done(*, last: bool) -> None:
            self.disk.wal += self._wal_writing.pop(0)
            if last:
                self.step(WalSynced(output.request))
                self.wal_synced()

        for left, part in reversed(list(enumerate(reversed(portions)))):
            begin = max(self._wal_at, self.heap.now) if portion else self.heap.now
            self._wal_at = max(self._wal_at, begin + self.disk_delay())
            self._wal_writing.append(part)
            self._once_written(self._wal_at, partial(done, last=not left))

    def _once_written(self, at: int, done: Callable[[], None]) -> None:
        """Go on once the disk took a write, if this life lasts; writes keep their order."""
        heap, life = self.heap, self.life

        def due() -> None:
            if self.life == life and self._stalled_until > heap.now:
                heap.at(self._stalled_until, due)
            elif self.life == life:
                done()

        heap.at(at, due)


DELAY = NS_PER_MS
PUBLISHER_SECRET = b"test"
PUBLISHER_KEYS = PublisherKeys(PUBLISHER_SECRET, random.Random(1))


def known(publisher: str | None) -> Connect:
    """Return the first command of a publisher that all members know, or of somebody else.

    Its identity is its name, and the key proves that without a member that gave it.
    """
    if publisher is None:
        return Connect()
    return Connect(publisher=publisher, publisher_key=PUBLISHER_KEYS.key(publisher))


class Member(Driver):
    """A member of a `Cluster` in one of its lives, and what it said to clients and operators.

    `inboxes` has for each session the events and deliveries that it got, `said` all outputs that
    clients see, in their order.
    """

    def __init__(self, cluster: "Cluster", name: str, disk: Disk) -> None:
        super().__init__(name, cluster.heap, disk)
        self.cluster = cluster
        self.committed: dict[int, list[Entry]] = {}
        self.statuses: list[Status] = []
        self.events: list[Send] = []
        self.inboxes: dict[int, list[AnyEvent | Delivery]] = {}
        self.said: list[Deliver | Send | Disconnect] = []
        self.closed: list[Disconnect] = []
        self.answers: list[AdminReply] = []
        self.logs: list[str] = []
        self.carriers |= {
            SendPeer: lambda output: cluster.sent(name, output.peers, output.message),
            ClosePeer: lambda output: cluster.close(name, output.peer),
            Committed: self._note_committed,
            Deliver: self._note_delivered,
            Send: self._note_sent,
            Disconnect: self._disconnect,
            AdminReply: self.answers.append,
            Log: lambda output: self.logs.append(output.name),
        }

    def disk_delay(self) -> int:
        """Return how long the test has a write take."""
        return self.cluster.disk_delays.get(self.name, 2 * DELAY)

    def _note_committed(self, output: Committed) -> None:
        self.committed.setdefault(output.group, []).extend(output.entries)

    def _note_delivered(self, output: Deliver) -> None:
        self.said.append(output)
        for session in output.sessions:
            self.inboxes.setdefault(session, []).append(output.delivery)

    def _note_sent(self, output: Send) -> None:
        self.said.append(output)
        self.events.append(output)
        self.inboxes.setdefault(output.session, []).append(output.event)
        if isinstance(output.event, Status):
            self.statuses.append(output.event)

    def _disconnect(self, output: Disconnect) -> None:
        self.closed.append(output)
        self.said.append(output)
        self.soon(Closed(output.session, "gone"))


class Link:
    """One connection of two members: a way to each of them, and what reads its bytes there."""

    def __init__(self, ways: dict[str, Direction]) -> None:
        self.ways = ways
        self.readers = {name: FrameReader(frozenset((MESSAGE,))) for name in ways}


class Cluster:
    """Members, the links between them and their clients; a seed names a run.

    Links are ordered as TCP is, and a cut loses what was still on its way. `cut` are pairs of names
    that cannot have a link, `loss` are a sender and a receiver whose link swallows what is sent.
    `disks` outlive members; `disk_delays` is how long their writes take (ns), and `clocks_ahead` by
    how much a member's clock is wrong, both read as it starts.
    """

    def __init__(self, count: int = 3, groups: int = 4, seed: int = 1, **settings: Any) -> None:
        self.names = tuple(f"m{index}:1" for index in range(1, count + 1))
        self.groups = groups
        self.settings = settings
        self.broker_settings: dict[str, Any] = {}
        self.rng = random.Random(seed)
        self.heap = Heap()
        self.members: dict[str, Member] = {}
        self.disks: dict[str, Disk] = {}
        self.disk_delays: dict[str, int] = {}
        self.clocks_ahead: dict[str, int] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.cut: set[tuple[str, str]] = set()
        self.loss: set[tuple[str, str]] = set()
        self._workers_started = 0

    # Members

    def start(self, *names: str) -> None:
        """Start these members, or all of the list, with what their disks hold, and link them.

        One that is not in the list knows the others; they get to know it as it connects.
        """
        for name in names or self.names:
            disk = self.disks.setdefault(name, Disk())
            member = self.members[name] = Member(self, name, disk)
            member.clock.jump(self.heap.now + self.clocks_ahead.get(name, 0))
            broker = BrokerSettings(
                member=name,
                groups=self.groups,
                publisher_secret=PUBLISHER_SECRET,
                **self.broker_settings,
            )
            cluster = ClusterSettings(name, self.names, client=f"c-{name}", **self.settings)
            member.boot(broker, cluster, "test", random.Random(self.rng.random()))
            member.step(TimerDue(TICK))
        self._connect_all()

    def start_worker(self, member: str) -> str:
        """Start a worker of a member that runs, and link them; return its name.

        As in a server, a worker ends with its member (`kill`), and its name is used again.
        """
        self._workers_started += 1
        number = 1
        while (name := f"{member}/worker-{number}") in self.members:
            number += 1
        worker = self.members[name] = Member(self, name, Disk())
        worker.clock.jump(self.heap.now)
        broker = BrokerSettings(member=name, groups=self.groups, publisher_secret=PUBLISHER_SECRET)
        rng = random.Random(self.rng.random())
        worker.boot_worker(broker, worker_of(member, name), self._workers_started, rng)
        worker.step(TimerDue(TICK))
        self.connect(member, name)
        return name

    def workers_of(self, member: str) -> list[str]:
        """Return the workers of a member that run."""
        return [name for name in self.members if name.startswith(f"{member}/")]

    def kill(self, name: str) -> None:
        """End a member at once; nothing that is on its way to the disk gets there.

        Its workers end with it.
        """
        for worker in self.workers_of(name):
            self.kill(worker)
        self.members.pop(name).halt()
        for other in self.members:
            self.disconnect(name, other)

    def lose_votes(self, name: str) -> None:
        """Take the vote record from the disk of a member that does not run."""
        self.disks[name].votes = None

    def alive(self, member: Member) -> bool:
        """Return whether this life of a member lasts."""
        return self.members.get(member.name) is member

    # Links

    def connect(self, first: str, second: str) -> None:
        """Link two members, if they are there and nothing keeps them apart."""
        pair = (min(first, second), max(first, second))
        if pair in self.links or pair in self.cut or not all(name in self.members for name in pair):
            return
        delay = (DELAY, 2 * DELAY - 1)
        self.links[pair] = Link(
            {name: Direction(self.heap, self.rng, delay, self.heap.now) for name in pair}
        )
        for name, other in (pair, pair[::-1]):
            self.feed(name, PeerUp(other, worker="/" in other))

    def connect_later(self, delay: int, first: str, second: str) -> None:
        """Link two members in a while."""
        self.heap.after(delay, partial(self.connect, first, second))

    def disconnect(self, first: str, second: str) -> None:
        """Break a link: what is on its way is lost, and both sides notice at once."""
        pair = (min(first, second), max(first, second))
        link = self.links.pop(pair, None)
        if link is None:
            return
        for way in link.ways.values():
            way.end(self.heap.now)
        for name, other in (pair, pair[::-1]):
            if name in self.members:
                self.feed(name, PeerDown(other))

    def close(self, name: str, peer: str) -> None:
        """Break a link by a member's will; members connect again."""
        self.heap.after(0, partial(self.disconnect, name, peer))
        self.connect_later(100 * NS_PER_MS, name, peer)

    def partition(self, name: str) -> None:
        """Have a member lose all its links until `heal`."""
        for other in self.names:
            if other != name:
                self.cut.add((min(name, other), max(name, other)))
                self.disconnect(name, other)

    def heal(self) -> None:
        """Have all links again."""
        self.cut.clear()
        self.loss.clear()
        self._connect_all()

    def _connect_all(self) -> None:
        for first in self.members:
            for second in self.members:
                if first < second and "/" not in first + second:
                    self.connect(first, second)

    def sent(self, sender: str, receivers: tuple[str, ...], message: AnyPeerMessage) -> None:
        """Take what a member said to others."""
        data = message_frame(message)
        for receiver in receivers:
            self.send(sender, receiver, message, data)

    def send(self, sender: str, receiver: str, message: AnyPeerMessage, data: bytes) -> None:  # noqa: ARG002
        """Send a message over a link; a test may leave some out, or count them."""
        link = self.links.get((min(sender, receiver), max(sender, receiver)))
        if link is not None and (sender, receiver) not in self.loss:
            link.ways[receiver].send(partial(self._arrived, link, sender, receiver, data))

    def _arrived(self, link: Link, sender: str, receiver: str, data: bytes) -> None:
        self.feed(receiver, PeerReceived(sender, messages(link.readers[receiver].feed(data))))

    # Time

    def run(self, duration: int) -> None:
        """Let so much time go by (ns)."""
        end = self.heap.now + duration
        while self.heap.step(end):
            pass

    def until(self, condition: Callable[[], bool], limit: int = 20 * NS_PER_S) -> int:
        """Let time go by until a condition holds; return how much (ns)."""
        begin = self.heap.now
        while not condition():
            assert self.heap.now - begin < limit, "it did not come about in time"
            self.run(10 * NS_PER_MS)
        return self.heap.now - begin

    # Clients and operators

    def feed(self, name: str, input: Input) -> list[Output]:  # noqa: A002
        """Have a member take an input; return what it says."""
        return self.members[name].step(input)

    def open(self, name: str, session: int, publisher: str | None = None) -> None:
        """Have a session begin at a member; a publisher's identity is its name."""
        self.feed(name, Opened(session, "127.0.0.1"))
        self.say(name, session, known(publisher))

    def say(self, name: str, session: int, *commands: AnyCommand) -> None:
        """Have a session give commands."""
        self.feed(name, Received(session, list(commands)))

    def publish(self, name: str, session: int, subject: str, content: str, **more: Any) -> None:
        """Publish with the content as the id of the command."""
        self.say(name, session, Publish(subject=subject, content=content, id=content, **more))

    def subscribe(self, name: str, session: int, *subjects: str, **more: Any) -> None:
        """Subscribe to subjects."""
        self.say(name, session, Subscribe(subjects=list(subjects), **more))

    def operate(self, name: str, action: str, member: str = "", force: bool = False) -> AdminReply:
        """Give an operator's command; return the answer."""
        self.feed(name, AdminCommand(1, action, member, force))
        return self.members[name].answers[-1]

    # Looking at it

    def statistics(self, name: str) -> NodeStatistics:
        """Return what a running member holds."""
        return self.members[name].running.statistics()

    def ready(self, *names: str) -> bool:
        """Return whether these members serve, or all that run."""
        return all(self.members[name].running.unready() is None for name in names or self.members)

    def group(self, subject: str) -> int:
        """Return the group of a subject."""
        return group_of(subject, self.groups)

    def coordinator(self, group: int) -> str | None:
        """Return who the members agree coordinates a group; None while they do not."""
        seen = [
            member.running.group_statistics(group)
            for name, member in self.members.items()
            if "/" not in name  # to a worker its own member coordinates everything
        ]
        found = {one.coordinator for one in seen if one.active}
        return found.pop() if len(found) == 1 else None

    def subject_of(self, name: str) -> str:
        """Return a subject whose group this member coordinates."""
        for index in range(1000):
            subject = f"/s/{index}"
            if self.coordinator(self.group(subject)) == name:
                return subject
        raise AssertionError(f"{name} coordinates nothing")
