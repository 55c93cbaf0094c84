"""Members of a cluster in memory, their links, disks and clock, one event at a time.

Links are FIFO as TCP is; a cut loses what was still on its way. Everything random comes from one
generator, so that a seed names a run.
"""

import heapq
import random
from collections import deque
from typing import Any

import msgspec

from mdserver.cluster.messages import (
    AnyPeerMessage,
    ClosePeer,
    Operate,
    Operated,
    PeerDown,
    PeerReceived,
    PeerUp,
    Persist,
    Persisted,
    SendPeer,
)
from mdserver.cluster.node import Node
from mdserver.cluster.settings import ClusterSettings
from mdserver.cluster.statistics import NodeStatistics
from mdserver.cluster.votes import started
from mdserver.cluster.wal import AnyWalEntry, WalSynced, WriteWal
from mdserver.core.commands import AnyCommand, Publish, Subscribe
from mdserver.core.events import Status
from mdserver.core.inputs import Closed, Opened, Received, TimerDue
from mdserver.core.message import Entry
from mdserver.core.outputs import CancelTimer, Committed, Deliver, Disconnect, Log, Send, SetTimer
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import group_of
from tests.cluster.publishers import SECRET, known

MS = 1_000_000
S = 1000 * MS
DELAY = 1 * MS
RECORDS = msgspec.msgpack.Decoder(list[AnyWalEntry])
DECODER = msgspec.msgpack.Decoder(AnyPeerMessage)


class Member:
    """One running node, what it said, and its disk (which outlives it)."""

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.timers: dict[tuple[str | int, ...], int] = {}
        self.committed: dict[int, list[Entry]] = {}
        self.statuses: list[Status] = []
        self.events: list[Send] = []
        self.inboxes: dict[int, list[Any]] = {}
        self.told: list[Deliver | Send | Disconnect] = []
        self.closed: list[Disconnect] = []
        self.answers: list[Operated] = []
        self.logs: list[str] = []

    def note(self, output: Any) -> None:
        """Keep what tests ask for later."""
        match output:
            case Committed():
                self.committed.setdefault(output.group, []).extend(output.entries)
            case Deliver():
                self.told.append(output)
                for session in output.sessions:
                    self.inboxes.setdefault(session, []).append(output.delivery)
            case Send():
                self.told.append(output)
                self.events.append(output)
                self.inboxes.setdefault(output.session, []).append(output.event)
                if isinstance(output.event, Status):
                    self.statuses.append(output.event)
            case Operated():
                self.answers.append(output)
            case Log():
                self.logs.append(output.name)


class Cluster:
    """The whole of it; `now` starts at the Unix epoch of 2023 or so."""

    def __init__(self, count: int = 3, groups: int = 4, seed: int = 1, **settings: Any) -> None:
        self.names = tuple(f"m{index}:1" for index in range(1, count + 1))
        self.groups = groups
        self.settings = settings
        self.rng = random.Random(seed)
        self.now = 1_700_000_000 * S
        self.members: dict[str, Member] = {}
        self.disks: dict[str, bytes] = {}
        self.disk_delays: dict[str, int] = {}
        self.wrong: dict[str, int] = {}
        """By how much (ns) a member's clock is ahead; set before it starts."""
        self.records: dict[str, list[AnyWalEntry]] = {}
        self.links: dict[tuple[str, str], deque[bytes]] = {}
        self.cut: set[tuple[str, str]] = set()
        self.events: list[tuple[int, int, Any]] = []
        self.counter = 0
        self.generation: dict[tuple[str, str], int] = {}
        self.loss: set[tuple[str, str]] = set()
        self.last: dict[tuple[str, str], int] = {}

    # Members

    def start(self, *names: str) -> None:
        for name in names or self.names:
            votes = started(self.disks.get(name), name, "test", self.groups)
            self.disks[name] = votes.encode()
            cluster = ClusterSettings(name, self.names, client=f"c-{name}", **self.settings)
            broker = BrokerSettings(member=name, groups=self.groups, publisher_secret=SECRET)
            node = Node(
                broker,
                random.Random(self.rng.random()),
                cluster,
                votes,
                RECORDS.decode(msgspec.msgpack.encode(self.records.get(name, []))),
                self.clock(name),
            )
            member = Member(name, node)
            self.members[name] = member
            self.carry_out(
                member, member.node.step(TimerDue(("cluster", "tick")), self.clock(name))
            )
        for first in self.members:
            for second in self.members:
                if first < second:
                    self.connect(first, second)

    def clock(self, name: str) -> int:
        """What a member's clock shows."""
        return self.now + self.wrong.get(name, 0)

    def add(self, name: str) -> None:
        """A member that the others do not have in their list."""
        self.start(name)

    def kill(self, name: str) -> None:
        del self.members[name]
        for other in list(self.members):
            self.disconnect(name, other)

    def connect(self, first: str, second: str) -> None:
        pair = (first, second) if first < second else (second, first)
        if pair in self.links or pair in self.cut:
            return
        self.links[pair] = deque()
        self.generation[pair] = self.generation.get(pair, 0) + 1
        for name, other in (pair, pair[::-1]):
            self.feed(name, PeerUp(other))

    def disconnect(self, first: str, second: str) -> None:
        pair = (first, second) if first < second else (second, first)
        if self.links.pop(pair, None) is None:
            return
        self.generation[pair] += 1
        for name, other in (pair, pair[::-1]):
            if name in self.members:
                self.feed(name, PeerDown(other))

    def partition(self, name: str) -> None:
        """A member loses all its links until `heal`."""
        for other in self.names:
            if other != name:
                self.cut.add((min(name, other), max(name, other)))
                self.disconnect(name, other)

    def heal(self) -> None:
        self.cut.clear()
        self.loss.clear()
        for first in self.members:
            for second in self.members:
                if first < second:
                    self.connect(first, second)

    # Events

    def at(self, time: int, what: Any) -> None:
        self.counter += 1
        heapq.heappush(self.events, (time, self.counter, what))

    def feed(self, name: str, input: Any) -> list[Any]:  # noqa: A002
        member = self.members[name]
        outputs = member.node.step(input, self.clock(name))
        self.carry_out(member, outputs)
        return outputs

    def carry_out(self, member: Member, outputs: list[Any]) -> None:
        for output in outputs:
            match output:
                case SendPeer():
                    data = msgspec.msgpack.encode(output.message)
                    for peer in output.peers:
                        self.send(member.name, peer, data)
                case SetTimer():
                    due = output.at - self.wrong.get(member.name, 0)
                    member.timers[output.timer] = due
                    self.at(due, ("timer", member, output.timer))
                case CancelTimer():
                    member.timers.pop(output.timer, None)
                case Persist() | WriteWal():
                    delay = self.disk_delays.get(member.name, 2 * DELAY)
                    self.at(self.now + delay, ("written", member, output))
                case ClosePeer():
                    self.at(self.now, ("close", member.name, output.peer))
                case Disconnect():
                    member.closed.append(output)
                    member.told.append(output)
                    self.at(self.now, ("closed", member, output.session))
                case _:
                    member.note(output)

    def send(self, source: str, target: str, data: bytes) -> None:
        pair = (source, target) if source < target else (target, source)
        if pair not in self.links or (source, target) in self.loss:
            return
        delay = DELAY + self.rng.randrange(DELAY)
        due = max(self.now + delay, self.last.get((source, target), 0))
        self.last[source, target] = due
        self.at(due, ("deliver", source, target, self.generation[pair], data))

    def happen(self, what: Any) -> None:
        match what:
            case ("deliver", source, target, generation, data):
                pair = (source, target) if source < target else (target, source)
                if self.generation[pair] == generation and target in self.members:
                    self.feed(target, PeerReceived(source, [DECODER.decode(data)]))
            case ("timer", member, timer):
                if self.alive(member) and member.timers.get(timer) == self.now:
                    del member.timers[timer]
                    self.feed(member.name, TimerDue(timer))
            case ("written", member, output):
                if self.alive(member):
                    self.written(member, output)
            case ("closed", member, session):
                if self.alive(member):
                    self.feed(member.name, Closed(session, "gone"))
            case ("close", source, target):
                self.disconnect(source, target)
                self.at(self.now + 100 * MS, ("connect", source, target))
            case ("connect", source, target):
                if source in self.members and target in self.members:
                    self.connect(source, target)

    def written(self, member: Member, output: Persist | WriteWal) -> None:
        """What was on its way to the disk is there."""
        if isinstance(output, Persist):
            self.disks[member.name] = output.record
            self.feed(member.name, Persisted(output.request))
        else:
            self.records.setdefault(member.name, []).extend(output.entries)
            self.feed(member.name, WalSynced(output.request))

    def alive(self, member: Member) -> bool:
        return self.members.get(member.name) is member

    def run(self, duration: int) -> None:
        end = self.now + duration
        while self.events and self.events[0][0] <= end:
            self.now, _, what = heapq.heappop(self.events)
            self.happen(what)
        self.now = end

    def until(self, condition: Any, limit: int = 20 * S) -> int:
        """Run until a condition holds; returns how long it took (ns)."""
        begin = self.now
        while not condition():
            assert self.now - begin < limit, "it did not come about in time"
            self.run(10 * MS)
        return self.now - begin

    # What tests ask

    def statistics(self, name: str) -> NodeStatistics:
        """What a running member holds."""
        return self.members[name].node.statistics()

    def ready(self, *names: str) -> bool:
        return all(self.members[name].node.unready() is None for name in names or self.members)

    def open(self, name: str, session: int, publisher: str | None = None) -> None:
        self.feed(name, Opened(session, "127.0.0.1"))
        self.feed(name, Received(session, [known(publisher)]))

    def say(self, name: str, session: int, *commands: AnyCommand) -> None:
        self.feed(name, Received(session, list(commands)))

    def publish(self, name: str, session: int, subject: str, content: str, **more: Any) -> None:
        self.say(name, session, Publish(subject=subject, content=content, id=content, **more))

    def subscribe(self, name: str, session: int, *subjects: str, **more: Any) -> None:
        self.say(name, session, Subscribe(subjects=list(subjects), **more))

    def operate(self, name: str, action: str, member: str = "", force: bool = False) -> Operated:
        self.feed(name, Operate(1, action, member, force))
        return self.members[name].answers[-1]

    def coordinator(self, group: int) -> str | None:
        """Who the members agree coordinates a group; None while they do not."""
        found = {
            member.node.group_statistics(group).coordinator
            for member in self.members.values()
            if member.node.group_statistics(group).active
        }
        return found.pop() if len(found) == 1 else None

    def group(self, subject: str) -> int:
        return group_of(subject, self.groups)

    def subject_of(self, name: str) -> str:
        """A subject whose group this member coordinates."""
        for index in range(1000):
            subject = f"/s/{index}"
            if self.coordinator(self.group(subject)) == name:
                return subject
        raise AssertionError(f"{name} coordinates nothing")
