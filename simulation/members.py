"""Members: the server's own `Node`, with a simulated disk, clock, timers and connections.

A crash takes memory, timers and connections; what was on its way to the disk may or may not get
there. A member that starts again reads its vote record as the server does.
"""

import random
from typing import TYPE_CHECKING, cast

from attrs import evolve

from mdserver.cluster import votes
from mdserver.cluster.messages import (
    AdminCommand,
    AdminReply,
    AnyPeerMessage,
    ClosePeer,
    MembersListed,
    PeerDown,
    PeerReceived,
    PeerUp,
    SendPeer,
)
from mdserver.cluster.node import TICK, Input
from mdserver.cluster.settings import ClusterSettings
from mdserver.cluster.wal import Checkpoint
from mdserver.core.events import Delivery, Fetched, Mark
from mdserver.core.inputs import Closed, Opened, Received, TimerDue
from mdserver.core.outputs import (
    Committed,
    Deliver,
    Disconnect,
    Output,
    Send,
    Trace,
)
from mdserver.core.settings import BrokerSettings
from simulation.cluster import Disk, Driver
from simulation.versions import named

if TYPE_CHECKING:
    from simulation.sessions import Session
    from simulation.world import World

WAL_ENTRIES_MAX = 30
BEHIND = 10  # as many bytes as hold a coordinator back keep a seed from taking more


class Member(Driver):
    """One member over all its lives."""

    def __init__(self, world: "World", name: str, rng: random.Random) -> None:
        super().__init__(name, world.heap, Disk())
        self.world = world
        self.rng = rng
        self.record_lost = False
        self.slow = 0
        self.paused = False
        self._held: list[Input] = []
        self.sessions: dict[int, Session] = {}
        self.listed = (
            (*world.seeds, *(() if name in world.seeds else (name,)))
            if world.plan.elastic
            else world.names
        )
        self._kept_from: int | None = None
        self._sessions_made = 0
        self._requests = 0
        self.newer = False  # of the newer version of the plan's two
        self._codec = self.version.codec(world.plan.encoding)
        self.carriers |= {
            SendPeer: self._send_peer,
            Deliver: self._fan_out,
            Send: self._send,
            Disconnect: self._disconnect,
            Committed: lambda output: world.committed(self, output),
            Trace: lambda output: world.step_traced(self, output),
            ClosePeer: self._close_peer,
            AdminReply: self._operated,
        }

    # Life and death

    def start(self) -> None:
        """Start with what the disk holds."""
        if self.node is not None:
            return
        world, plan = self.world, self.world.plan
        self.version = named(plan.versions[self.newer])
        settings = BrokerSettings(
            member=self.name,
            groups=plan.groups,
            cached_messages_per_subject=plan.cached,
            publisher_secret=b"simulated",
        )
        if plan.idle:
            settings = evolve(
                settings,
                cache_expire=plan.idle,
                snapshot_expire=plan.idle,
                subject_idle=plan.idle,
            )
        cluster = ClusterSettings(
            me=self.name,
            members=self.listed,
            guaranteed=not plan.standard,
            seed_count=plan.seeds,
            suspect=plan.suspect,
            client=f"{self.name}:1",
            trace=True,
            log_kept=plan.log_kept,
            numbers_kept=plan.numbers_kept,
            writes_wal=plan.recorded,
            acks_wait_for_wal=plan.recorded,
            hold_bytes=plan.hold_bytes,
            behind_bytes=BEHIND * plan.hold_bytes,
        )
        self._codec = self.version.codec(plan.encoding)
        rng = random.Random(self.rng.getrandbits(64))
        record = self.boot(settings, cluster, "simulated", rng, recorded=plan.recorded)
        world.trace(
            {
                "name": "Start",
                "node": self.name,
                "incarnation": record.incarnation,
                "seed": self.name in world.seeds,
                "lost": self.record_lost,
                "restored": record.recorded and record.incarnation > 1,
                "promised": [vote.epoch for vote in record.promised],
            }
        )
        world.list_rules.started(self)
        self.record_lost = False
        world.cover("start")
        world.promises.started(self.name)
        self._begin()

    def _begin(self) -> None:
        self.step(TimerDue(TICK))
        self.world.links.started(self.name)

    def crash(self, kept: int) -> None:
        """Die at once. `kept`: how many of the records on their way to the disk arrive there."""
        if self.node is None:
            return
        records = kept % (len(self.votes_writing) + 1)
        wal = kept // 64 % (self.wal_writes + 1)
        for _ in range(records):
            self.world.cover("crash after the disk, before the answer")
        for _ in range(wal):
            self.world.cover("crash after the disk, before the ack")
        self.world.cover_refusals(self.node)
        self.halt(records, wal)
        self._kept_from = None
        self.paused = False
        self._held = []
        sessions, self.sessions = self.sessions, {}
        for session in sessions.values():
            session.end("the member is gone")
        self.world.links.crashed(self.name)
        self.world.cover("crash")

    def stop(self) -> None:
        """The run is over: there is nothing to end here."""

    def promised_on_disk(self, group: int) -> int:
        """The epoch that the vote file has for a group."""
        if self.disk.votes is None:
            return 0
        return votes.read(self.disk.votes).promised[group].epoch

    # Inputs

    def step(self, input: Input) -> list[Output]:  # noqa: A002 - the design's word
        """Take one step, unless the process is stopped: then later."""
        if self.node is not None and self.paused:
            self._held.append(input)
            return []
        self.world.list_rules.entering(self)
        outputs = super().step(input)
        self.world.promises.joined(self.name)
        self._flush()
        return outputs

    def pause(self) -> None:
        """Stop the process: it takes nothing, and its timers pass unseen."""
        self.paused = True

    def resume(self) -> None:
        """Go on with what came meanwhile, in its order."""
        self.paused = False
        held, self._held = self._held, []
        for input in held:  # noqa: A001 - the design's word
            self.step(input)

    def linked(self, peer: str) -> None:
        """A link is up."""
        self.step(PeerUp(peer))

    def unlinked(self, peer: str) -> None:
        """A link is gone."""
        self.step(PeerDown(peer))

    def received(self, peer: str, messages: list[AnyPeerMessage]) -> None:
        """A peer's messages arrived."""
        self.step(PeerReceived(peer, messages))

    def operate(self, action: str, member: str = "", *, force: bool = False) -> None:
        """An operator's command."""
        self._requests += 1
        self.step(AdminCommand(self._requests, action, member, force))

    def relist(self, names: tuple[str, ...]) -> None:
        """Read another list of members, which says where they are now as well."""
        self.listed = names
        if self.node is not None:
            self.step(MembersListed(names, {name: f"{name}+" for name in self.world.moves}))

    def next_session(self) -> int:
        """A number for a connection."""
        self._sessions_made += 1
        return self._sessions_made

    def opened(self, session: "Session") -> None:
        """A client connected."""
        self.sessions[session.number] = session
        self.step(Opened(session.number, "192.0.2.1"))

    def said(self, session: "Session", frame: bytes) -> None:
        """A client's frame arrived."""
        if session.number in self.sessions:
            self.step(Received(session.number, self._codec.commands(frame)))

    def closed(self, session: "Session") -> None:
        """A client's connection ended."""
        if self.sessions.pop(session.number, None) is not None:
            self.step(Closed(session.number, "gone"))

    # Outputs

    def _send_peer(self, output: SendPeer) -> None:
        self.world.list_rules.said(self, output.message)
        self.world.links.send(self.name, output.peers, output.message, self.slow)

    def _fan_out(self, output: Deliver) -> None:
        for number in output.sessions:
            self._deliver(number, output.delivery)

    def _send(self, output: Send) -> None:
        event = output.event
        kind = type(event).__name__  # an event of the version that runs
        if kind == Delivery.__name__:
            self._deliver(output.session, cast("Delivery", event))
        elif kind not in {Fetched.__name__, Mark.__name__}:
            self._queue(output.session, self._codec.event(event))

    def _close_peer(self, output: ClosePeer) -> None:
        self.world.cover("a member closed a link")
        self.world.links.cut(self.name, output.peer)

    def _operated(self, output: AdminReply) -> None:
        self.world.cover("operated" if output.refused is None else "an operator was refused")

    def _deliver(self, number: int, delivery: Delivery) -> None:
        """A message, behind the alias that it uses where the client does not know that yet."""
        session, codec = self.sessions.get(number), self._codec
        if session is None:
            return
        frame = codec.delivery(delivery)
        if self.world.plan.encoding == "binary" and delivery.alias not in (0, *session.aliases):
            session.aliases[delivery.alias] = None
            self._queue(number, codec.alias_frame(delivery.alias))
        self._queue(number, frame)

    def _queue(self, number: int, frame: bytes) -> None:
        session = self.sessions.get(number)
        if session is not None:
            session.outbox.append(frame)
            self.world.dirty.append(session)

    def _flush(self) -> None:
        dirty, self.world.dirty = self.world.dirty, []
        for session in dirty:
            if session.outbox:
                frames, session.outbox = session.outbox, []
                session.to_client(self._codec.join(frames))

    def _disconnect(self, output: Disconnect) -> None:
        session = self.sessions.pop(output.session, None)
        if session is None:
            return
        self._flush()
        session.closed_by_member(output.code, output.reason)
        self.world.cover("disconnected by the member")
        self.soon(Closed(output.session, "closed by this member"))

    # The disk

    def disk_delay(self) -> int:
        """Draw how long a write takes."""
        plan = self.world.plan
        return self.rng.randint(plan.disk_min, plan.disk_max) + self.slow

    def wal_portion(self) -> int:
        """Return how many entries the plan has the disk take at once."""
        return self.world.plan.portion

    def wal_synced(self) -> None:
        """See whether it is time to write all groups anew."""
        self._write_anew()

    def _write_anew(self) -> None:
        """Now and then all groups are written once more, one after the other, and the rest goes."""
        if self._kept_from is not None or len(self.disk.wal) < WAL_ENTRIES_MAX:
            return
        life, plan = self.life, self.world.plan
        self._kept_from = len(self.disk.wal)

        def turn(group: int) -> None:
            if self.life != life:
                return
            if self.paused:
                self.world.heap.after(plan.disk_max, lambda: turn(group))
            elif group < plan.groups:
                self.step(Checkpoint((group,)))
                self.world.heap.after(2 * plan.disk_max, lambda: turn(group + 1))
            elif not self.wal_writes:
                self.world.cover("records written anew")
                del self.disk.wal[: self._kept_from]
                self._kept_from = None
            else:
                self.world.heap.after(plan.disk_max, lambda: turn(group))

        turn(0)
