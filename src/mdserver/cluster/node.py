"""`Node.step` is the only way into the broker and the cluster (docs/design.md)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mdserver.cluster import messages as say
from mdserver.cluster.ground import Ground
from mdserver.cluster.guaranteed import Guaranteed
from mdserver.cluster.operating import Operating
from mdserver.cluster.records import AnyRecord, Conclude, Picture, Recorded
from mdserver.cluster.restoring import restore
from mdserver.cluster.settings import alone
from mdserver.cluster.standard import Standard
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.core.commands import AnyCommand, Publish
from mdserver.core.events import Move
from mdserver.core.inputs import (
    Authorized,
    Closed,
    Opened,
    Received,
    RulesChanged,
    TimerDue,
    Trouble,
    Writability,
)
from mdserver.core.message import Entry, Qos
from mdserver.core.outputs import Disconnect, Output, Send, SetTimer
from mdserver.core.proposal import Outcome, Proposal
from mdserver.core.subjects import group_of
from mdserver.limits import CLOSE_NO_QUORUM, NS_PER_S

if TYPE_CHECKING:
    import random

    from mdserver.cluster.settings import ClusterSettings
    from mdserver.core.settings import BrokerSettings

Input = (
    Opened | Received | Closed | Writability | TimerDue | Authorized | RulesChanged | Trouble
    | say.PeerUp | say.PeerDown | say.PeerReceived | say.Persisted | say.Operate
    | Recorded | Picture | Conclude
)  # fmt: skip

TICK = ("cluster", "tick")
MOVE_DELAY_MS = 200


class Node:
    """One member: its broker and its part of the cluster.

    Without `cluster` it is a single server: a cluster of one seed, elected at once, that needs no
    vote record. `votes` is the record to start with (`votes.started`), already on the disk.
    `records` are those that this member wrote down before, as far as they can be relied on; they
    are read at `now`. Raises RecordsError where they do not fit.
    `step` is synchronous, never re-entered, and never raises for what a client or a peer sent.
    """

    def __init__(
        self,
        settings: "BrokerSettings",
        rng: "random.Random",
        cluster: "ClusterSettings | None" = None,
        votes: VoteRecord | None = None,
        records: Sequence[AnyRecord] = (),
        now: int = 0,
    ) -> None:
        cluster = cluster or alone(settings.member)
        votes = votes or VoteRecord(
            cluster.me, "", 1, False, [Vote() for _ in range(settings.groups)], {}
        )
        self.ground = Ground(settings, cluster, votes, rng)
        self.broker = self.ground.broker
        self.mode = (Guaranteed if cluster.guaranteed else Standard)(self.ground)
        self._operating = Operating(self.ground, self.mode.election, self.mode.leading)
        self._sessions: dict[int, None] = {}
        self._started = False
        self._unserved = 0
        self._handlers: dict[type, Callable[[str, Any], None]] = {
            say.Hello: self._hello,
            say.Heartbeat: self._heartbeat,
            say.Forward: lambda _, message: self.mode.leading.forward(message),
            say.Answer: self._answer,
            say.Unplaced: self._unplaced,
            say.Readmit: lambda *_: self._operating.readmitted(),
            say.Weigh: lambda _, message: self._operating.weighed(message),
            **self.mode.handlers,
        }
        held = restore(self.ground, records, now) if records else []
        if not self.ground.durable:
            self.ground.first_history = self.ground.views[0].history or self.ground.first_history
            self.mode.election.cold_start(range(settings.groups))
            self.mode.election.force(held)
            self._settle()
            self.ground.joined = True

    @property
    def history(self) -> str:
        """The history id that a new session is told."""
        return self.broker.history

    @property
    def settled(self) -> bool:
        """Whether every group has a coordinator that this member follows."""
        return all(view.active for view in self.ground.views)

    def step(self, input: Input, now: int) -> list[Output]:  # noqa: A002 - the design's word
        """Take one input; returns what the driver carries out, in order."""
        ground = self.ground
        out = ground.out
        ground.now = now
        if not self._started:
            self._start()
        match input:
            case Received():
                self._received(input)
            case say.PeerReceived():
                self._receive(input)
            case TimerDue():
                self._timer(input)
            case Writability():
                self.broker.writability(input, now, out)
            case Opened() | Closed() | Authorized() | RulesChanged():
                self._session(input)
            case say.Persisted() | Recorded() | Picture() | Conclude() | Trouble():
                self._disk(input)
            case say.Operate():
                self._operating.operate(input)
            case say.PeerUp() | say.PeerDown():
                self._link(input)
        self._settle()
        ground.out = []
        return out

    def _start(self) -> None:
        ground = self.ground
        self._started = True
        if not ground.durable:
            # Its disk is the majority: what was read from it is committed, and needs no free byte.
            for group, log in enumerate(ground.logs):
                ground.learn(group, log.length)
        ground.out.append(SetTimer(TICK, ground.now))

    def _settle(self) -> None:
        """Handle what this member says to itself, and let out what was collected."""
        ground = self.ground
        while True:
            while ground.local:
                message = ground.local.popleft()
                self._handlers[type(message)](ground.me, message)
            if not ground.flush():
                return

    def _disk(self, input: say.Persisted | Recorded | Picture | Conclude | Trouble) -> None:  # noqa: A002
        match input:
            case say.Persisted():
                self.ground.stored(input.request)
            case Recorded():
                self.ground.recorded(input.request)
                self.mode.leading.go_on()
            case Picture():
                for group in input.groups:
                    self.ground.picture(group)
            case Conclude():
                self.ground.note_learned(at_once=True)
            case Trouble():
                self.broker.trouble = input.reason
                refusing = input.reason if input.refusing else None
                self.broker.publications.refusing = refusing
                if refusing is not None:
                    self.mode.leading.refuse_held(refusing)
                if input.withdrawn and input.reason is not None:
                    self.mode.leading.withdraw(input.reason)

    # Clients

    def _received(self, input: Received) -> None:  # noqa: A002
        if input.session not in self._sessions:
            return
        for run in publish_runs(input.commands):
            ground = self.ground
            proposals = self.broker.received(input.session, run, ground.now, ground.out)
            if proposals:
                self._propose(proposals)

    def _session(self, input: Opened | Closed | Authorized | RulesChanged) -> None:  # noqa: A002
        ground = self.ground
        if isinstance(input, RulesChanged):
            self.broker.rules_changed(input)
            return
        if isinstance(input, Authorized):
            proposals = self.broker.authorized(input, ground.now, ground.out)
            if proposals:
                self._propose(proposals)
        elif isinstance(input, Closed):
            if self._sessions.pop(input.session, 0) is None:
                self.broker.closed(input, ground.now, ground.out)
        else:
            reason = self.unready()
            if reason is not None:
                ground.out.append(Disconnect(input.session, CLOSE_NO_QUORUM, reason))
                return
            self._sessions[input.session] = None
            self.broker.opened(input, ground.now, ground.out)

    def _propose(self, proposals: list[Proposal]) -> None:
        """Give every proposal a ticket of its group, and forward those that can be now."""
        ground = self.ground
        groups = len(ground.logs)
        by_group: dict[int, list[Proposal]] = {}
        unplaced: list[Proposal] = []
        for proposal in proposals:
            publication = proposal.publication
            if publication.qos is Qos.STANDARD:
                unplaced.append(proposal)
                continue
            group = group_of(publication.subject, groups)
            batch = by_group.get(group)
            if batch is None:
                by_group[group] = [proposal]
            else:
                batch.append(proposal)
        for group, batch in by_group.items():
            ground.outcomes(ground.contact.take(group, batch))
            ground.forward_next(group)
        if unplaced:
            message = say.Unplaced([proposal.publication for proposal in unplaced])
            self._unplaced(ground.me, message)
            ground.say(ground.linked(), message)
            ground.outcomes([Outcome(proposal.origin) for proposal in unplaced])

    def _unplaced(self, peer: str, message: say.Unplaced) -> None:  # noqa: ARG002
        ground = self.ground
        for publication in message.publications:
            group = group_of(publication.subject, len(ground.logs))
            self.broker.committed(group, [Entry(0, 0, publication)], ground.now, ground.out)

    def _answer(self, peer: str, answer: say.Answer) -> None:  # noqa: ARG002
        ground = self.ground
        found = [ground.contact.answered(item) for item in answer.items]
        ground.outcomes([outcome for outcome in found if outcome is not None])
        for group in dict.fromkeys(item.group for item in answer.items):
            ground.forward_next(group)

    # Members

    def _link(self, input: say.PeerUp | say.PeerDown) -> None:  # noqa: A002
        ground = self.ground
        known = input.peer in ground.members.peers
        if known and ground.members.peers[input.peer].up:
            self.mode.learner.link_lost(input.peer)
            ground.members.down(input.peer)
        if isinstance(input, say.PeerUp):
            ground.members.up(input.peer, ground.now)
            ground.relink()
            ground.say((input.peer,), ground.greeting())
            ground.say((input.peer,), self._pulse())
        else:
            ground.relink()
            self.mode.look()

    def _receive(self, input: say.PeerReceived) -> None:  # noqa: A002
        ground = self.ground
        peer = ground.members.peers.get(input.peer)
        if peer is None or not peer.up:
            return
        peer.heard = ground.now
        for message in input.messages:
            if not peer.greeted and not isinstance(message, say.Hello):
                ground.out.append(say.ClosePeer(input.peer, "the first message is a Hello"))
                return
            handler = self._handlers.get(type(message))
            if handler is None:
                reason = f"{type(message).__name__} says nothing in this delivery mode"
                ground.out.append(say.ClosePeer(input.peer, reason))
                return
            handler(input.peer, message)

    def _hello(self, peer: str, hello: say.Hello) -> None:
        ground = self.ground
        least = ground.votes.known.get(peer, 0) if hello.admitted else 0
        if not ground.members.hello(peer, hello) or hello.incarnation < least:
            reason = f"incarnation {hello.incarnation} of {peer} is older than a known one"
            self.mode.outdated(peer, hello)
            ground.out.append(say.ClosePeer(peer, reason))
            return
        for name in hello.linked:
            if ground.members.stranger(name):
                ground.out.append(say.Meet(name))
        self.mode.greeted(peer, hello)

    def _heartbeat(self, peer: str, heartbeat: say.Heartbeat) -> None:
        if self.ground.members.heartbeat(peer, heartbeat):
            self.mode.rebalance()
        self.mode.heartbeat(peer, heartbeat)

    def _pulse(self) -> say.Heartbeat:
        ground = self.ground
        seed, members = ground.seed, ground.members
        promised = max(vote.epoch for vote in ground.votes.promised)
        return say.Heartbeat(
            ground.joined, ground.admitted, ground.sure, seed is not None and seed.lost,
            ground.weight, promised, seed.away if seed is not None else [],
            self.mode.leading.leads(), members.hears(ground.now), members.sees(ground.now),
            members.misses, ground.following.whole and self.unready() is None,
            seed is not None and any(seed.doubted),
        )  # fmt: skip

    # Time

    def _timer(self, due: TimerDue) -> None:
        ground = self.ground
        if due.timer[0] == "broker":
            self.broker.timer(due, ground.now, ground.out)
            return
        given_up = ground.contact.expired(ground.now, ground.settings.publish_timeout)
        if given_up:
            ground.outcomes(given_up)
            for group in range(len(ground.views)):
                ground.forward_next(group)
        self.mode.leading.forget_idle()
        ground.note_learned()
        if not ground.durable:
            ground.out.append(SetTimer(TICK, ground.now + NS_PER_S))
            return
        ground.members.forget_gone(ground.now)
        if ground.members.look(ground.now):
            self.mode.rebalance()
        self.mode.tick()
        ground.following.look()
        self._operating.insist()
        ground.say(ground.linked(), self._pulse())
        self._serve_or_move()
        ground.out.append(SetTimer(TICK, ground.now + self.mode.election.delay(0.5)))

    def unready(self) -> str | None:
        """Why this member serves no clients now; None if it does."""
        return self.mode.unready() if self.ground.durable else None

    def drained(self) -> str | None:
        """Why no more clients should come although those that are here are served."""
        if self.ground.weight:
            return None
        return "drained by an operator (`mdserver cluster drain --undo` takes that back)"

    def elsewhere(self) -> list[str]:
        """Where clients can go instead: the client addresses of the other members."""
        return [peer.client for peer in self.ground.members.peers.values() if peer.client]

    def missed(self) -> str | None:
        """Why the cluster would take no publications without this member; None if it would."""
        if not self.ground.durable or self.ground.seed is None:
            return None
        return self._operating.breaks(self.ground.me)

    def _serve_or_move(self) -> None:
        """Without a quorum or some groups for a while: clients are sent to where they are."""
        ground = self.ground
        reason = self.unready()
        if reason is None or not self._sessions:
            self._unserved = 0
            return
        self._unserved = self._unserved or ground.now
        if ground.now - self._unserved < ground.settings.suspect:
            return
        why, servers = "no-quorum", self.elsewhere()
        if reason == ground.following.unready():
            why, servers = "rebalance", ground.following.servers()
        for session in self._sessions:
            event = Move(delay_ms=MOVE_DELAY_MS, reason=why, servers=servers or None)
            ground.out.append(Send(session, event))
            ground.out.append(Disconnect(session, CLOSE_NO_QUORUM, reason))


def publish_runs(commands: Sequence[AnyCommand]) -> list[Sequence[AnyCommand]]:
    """Split commands so that publications and other commands never mix in one run."""
    runs: list[Sequence[AnyCommand]] = []
    start = 0
    for index in range(1, len(commands)):
        if isinstance(commands[index], Publish) != isinstance(commands[start], Publish):
            runs.append(commands[start:index])
            start = index
    if commands:
        runs.append(commands[start:] if start else commands)
    return runs
