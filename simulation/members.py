"""Members: the server's own `Node`, with a simulated disk, clock, timers and connections.

A crash takes memory, timers and connections; what was on its way to the disk may or may not get
there. A member that starts again reads its vote record as the server does.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

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
from mdserver.cluster.node import TICK, Input, Node
from mdserver.cluster.settings import ClusterSettings
from mdserver.cluster.votes import VoteRecord, started
from mdserver.cluster.wal import AnyWalEntry, Checkpoint, WalSynced, WriteWal
from mdserver.codec.binary_form import BinaryCodec
from mdserver.codec.json_form import JsonCodec
from mdserver.core.events import Delivery, Fetched, Mark
from mdserver.core.inputs import Closed, Opened, Received, TimerDue, TimerKey
from mdserver.core.outputs import (
    CancelTimer,
    Committed,
    Deliver,
    Disconnect,
    Send,
    SetTimer,
    Trace,
)
from mdserver.core.settings import BrokerSettings
from simulation.clock import Clock

if TYPE_CHECKING:
    from simulation.sessions import Session
    from simulation.world import World

RECORDS_MAX = 30
BEHIND = 10  # as many bytes as hold a coordinator back keep a seed from taking more
RECORDS: msgspec.msgpack.Decoder[AnyWalEntry] = msgspec.msgpack.Decoder(AnyWalEntry)
CODECS: dict[str, type[JsonCodec] | type[BinaryCodec]] = {
    "json": JsonCodec,
    "binary": BinaryCodec,
}


class Member:
    """One member over all its lives; `node` is None while it is down."""

    def __init__(self, world: "World", name: str, rng: random.Random) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.clock = Clock(world.heap)
        self.node: Node | None = None
        self.life = 0
        self.disk: bytes | None = None
        self.record_lost = False
        self.slow = 0
        self.paused = False
        self._held: list[Input] = []
        self.sessions: dict[int, Session] = {}
        self._timers: dict[TimerKey, int] = {}
        self.writing: list[bytes] = []
        self.records: list[bytes] = []
        self._recording: list[list[bytes]] = []
        self._recorded_at = 0
        self._kept_from: int | None = None
        self._written_at = 0
        self._stalled_until = 0
        self._sessions_made = 0
        self._requests = 0
        self._codec = CODECS[world.plan.encoding]()
        self._handlers: dict[type, Callable[[Any], None]] = {
            SendPeer: self._send_peer,
            Persist: self._persist,
            WriteWal: self._record,
            Deliver: self._fan_out,
            Send: self._send,
            Disconnect: self._disconnect,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Committed: lambda output: world.committed(self, output),
            Trace: lambda output: world.step_traced(self, output),
            ClosePeer: self._close_peer,
            Operated: self._operated,
        }

    # Life and death

    def start(self) -> None:
        """Start with what the disk holds."""
        if self.node is not None:
            return
        world, plan = self.world, self.world.plan
        votes = started(self.disk, self.name, "simulated", plan.groups)
        if not votes.recorded:
            self.records = []
        votes.recorded = plan.recorded
        self.disk = votes.encode()
        settings = BrokerSettings(
            member=self.name,
            groups=plan.groups,
            cached_messages_per_subject=plan.cached,
            publisher_secret=b"simulated",
        )
        cluster = ClusterSettings(
            me=self.name,
            members=world.names,
            client=f"{self.name}:1",
            trace=True,
            log_kept=plan.log_kept,
            numbers_kept=plan.numbers_kept,
            writes_wal=plan.recorded,
            acks_wait_for_wal=plan.recorded,
            hold_bytes=plan.hold_bytes,
            behind_bytes=BEHIND * plan.hold_bytes,
        )
        self.life += 1
        self._codec = CODECS[plan.encoding]()
        self.node = Node(
            settings,
            random.Random(self.rng.getrandbits(64)),
            cluster,
            votes,
            [RECORDS.decode(record) for record in self.records],
            self.clock.now(),
        )
        world.trace(
            {
                "name": "Start",
                "node": self.name,
                "incarnation": votes.incarnation,
                "seed": self.name in world.seeds,
                "lost": self.record_lost,
                "restored": votes.recorded and votes.incarnation > 1,
                "promised": [vote.epoch for vote in votes.promised],
            }
        )
        world.cover("start")
        self._begin()

    def _begin(self) -> None:
        self.step(TimerDue(TICK))
        self.world.links.started(self.name)

    def crash(self, kept: int) -> None:
        """Die at once. `kept`: how many of the records on their way to the disk arrive there."""
        if self.node is None:
            return
        for record in self.writing[: kept % (len(self.writing) + 1)]:
            self.disk = record
            self.world.cover("crash after the disk, before the answer")
        for records in self._recording[: kept // 64 % (len(self._recording) + 1)]:
            self.records += records
            self.world.cover("crash after the disk, before the ack")
        self._recording = []
        self._kept_from = None
        self.node = None
        self.life += 1
        self.paused = False
        self._held = []
        self._timers = {}
        self.writing = []
        sessions, self.sessions = self.sessions, {}
        for session in sessions.values():
            session.end("the member is gone")
        self.world.links.crashed(self.name)
        self.world.cover("crash")

    def stop(self) -> None:
        """The run is over: there is nothing to end here."""

    def promised_on_disk(self, group: int) -> int:
        """The epoch that the vote file has for a group."""
        if self.disk is None:
            return 0
        return msgspec.json.decode(self.disk, type=VoteRecord).promised[group].epoch

    # Inputs

    def step(self, input: Input) -> None:  # noqa: A002 - the design's word
        """One step, and what comes of it."""
        if self.node is None:
            return
        if self.paused:
            self._held.append(input)
            return
        outputs = self.node.step(input, self.clock.now())
        for output in outputs:
            self._carry_out(output)
        self._flush()

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
        self.step(Operate(self._requests, action, member, force))

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

    def _carry_out(self, output: object) -> None:
        handler = self._handlers.get(type(output))
        if handler is not None:
            handler(output)

    def _send_peer(self, output: SendPeer) -> None:
        self.world.links.send(self.name, output.peers, output.message, self.slow)

    def _fan_out(self, output: Deliver) -> None:
        for number in output.sessions:
            self._deliver(number, output.delivery)

    def _send(self, output: Send) -> None:
        event = output.event
        if isinstance(event, Delivery):
            self._deliver(output.session, event)
        elif not isinstance(event, Fetched | Mark):
            self._queue(output.session, self._codec.event(event))

    def _close_peer(self, output: ClosePeer) -> None:
        self.world.cover("a member closed a link")
        self.world.links.cut(self.name, output.peer)

    def _operated(self, output: Operated) -> None:
        self.world.cover("operated" if output.refused is None else "an operator was refused")

    def _deliver(self, number: int, delivery: Delivery) -> None:
        """A message, behind the alias that it uses where the client does not know that yet."""
        session, codec = self.sessions.get(number), self._codec
        if session is None:
            return
        frame = codec.delivery(delivery)
        if isinstance(codec, BinaryCodec) and delivery.alias not in (0, *session.aliases):
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
        life = self.life
        self.world.heap.after(0, lambda: self._closed(life, output.session))

    def _closed(self, life: int, number: int) -> None:
        if self.life == life:
            self.step(Closed(number, "closed by this member"))

    def _cancel_timer(self, output: CancelTimer) -> None:
        self._timers.pop(output.timer, None)

    def _set_timer(self, output: SetTimer) -> None:
        token = self.world.next_token()
        self._timers[output.timer] = token
        delay = self.clock.true_delay(output.at)

        def due() -> None:
            if self._timers.get(output.timer) == token:
                del self._timers[output.timer]
                self.step(TimerDue(output.timer))

        self.world.heap.after(delay, due)

    def stall(self, lasting: int) -> None:
        """The disk takes nothing for a while, neither what is on its way nor what comes."""
        self._stalled_until = max(self._stalled_until, self.world.heap.now + lasting)

    def _once_written(self, at: int, done: Callable[[], None]) -> None:
        """Go on once the disk took a write, if this life lasts; writes keep their order."""
        heap, life = self.world.heap, self.life

        def due() -> None:
            if self.life == life and self._stalled_until > heap.now:
                heap.at(self._stalled_until, due)
            elif self.life == life:
                done()

        heap.at(at, due)

    def _persist(self, output: Persist) -> None:
        plan, heap = self.world.plan, self.world.heap
        delay = self.rng.randint(plan.disk_min, plan.disk_max) + self.slow
        self._written_at = max(self._written_at, heap.now + delay)
        self.writing.append(output.record)

        def done() -> None:
            self.disk = self.writing.pop(0)
            self.step(Persisted(output.request))

        self._once_written(self._written_at, done)

    def _record(self, output: WriteWal) -> None:
        """Records reach the disk apart from the votes, and after each other, maybe in portions."""
        plan, heap = self.world.plan, self.world.heap
        records = [msgspec.msgpack.encode(record) for record in output.entries]
        portion = plan.portion or len(records) or 1
        portions = [records[at : at + portion] for at in range(0, len(records), portion)] or [[]]

        def done(*, last: bool) -> None:
            self.records += self._recording.pop(0)
            if last:
                self.step(WalSynced(output.request))
                self._write_anew()

        for left, part in reversed(list(enumerate(reversed(portions)))):
            delay = self.rng.randint(plan.disk_min, plan.disk_max) + self.slow
            base = max(self._recorded_at, heap.now) if plan.portion else heap.now
            self._recorded_at = max(self._recorded_at, base + delay)
            self._recording.append(part)
            self._once_written(self._recorded_at, partial(done, last=not left))

    def _write_anew(self) -> None:
        """Now and then all groups are written once more, one after the other, and the rest goes."""
        if self._kept_from is not None or len(self.records) < RECORDS_MAX:
            return
        life, plan = self.life, self.world.plan
        self._kept_from = len(self.records)

        def turn(group: int) -> None:
            if self.life != life:
                return
            if self.paused:
                self.world.heap.after(plan.disk_max, lambda: turn(group))
            elif group < plan.groups:
                self.step(Checkpoint((group,)))
                self.world.heap.after(2 * plan.disk_max, lambda: turn(group + 1))
            elif not self._recording:
                self.world.cover("records written anew")
                del self.records[: self._kept_from]
                self._kept_from = None
            else:
                self.world.heap.after(plan.disk_max, lambda: turn(group))

        turn(0)
