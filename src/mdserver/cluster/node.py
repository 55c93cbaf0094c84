"""One member as a state machine: `Node.step` is the only way into the broker and the cluster.

A step takes one input (what clients or members sent, a timer, a finished disk write) and the time,
and returns outputs that the driver carries out in order. It does no I/O and reads no clock, as
etcd's raft does with `Ready`; so the same code runs in the server, in the simulator and in tests,
and a run is repeated by its inputs. Two rules of the protocol are kept by the order of outputs:

- What has to be on the disk before a message leaves is requested before it, and the message waits
  in `mdserver.cluster.stable_storage` until the driver reports the write.
- What a member says to itself is handled to the end within the step, so that a group whose
  coordinator is here needs no code of its own, and a single server is a cluster of one seed.

What depends on the delivery mode is in `mdserver.cluster.guaranteed` and
`mdserver.cluster.standard`; whether clients are served is in `mdserver.cluster.service`.
docs/design.md; docs/cluster.md, "How it works".
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mdserver.cluster import messages as msg
from mdserver.cluster.acceptor import Voter
from mdserver.cluster.admin import AdminCommands
from mdserver.cluster.at_most_once import AtMostOnce
from mdserver.cluster.coordinators import Coordinators
from mdserver.cluster.election import Election
from mdserver.cluster.following import Following
from mdserver.cluster.forgetting import Forgetting
from mdserver.cluster.group import Group
from mdserver.cluster.groups import Groups, new_history
from mdserver.cluster.guaranteed import Guaranteed
from mdserver.cluster.guards import Guard
from mdserver.cluster.learner import Learner
from mdserver.cluster.membership import Membership
from mdserver.cluster.mode import Mode
from mdserver.cluster.outgoing import Outgoing
from mdserver.cluster.pending import PendingPublications, contact_name
from mdserver.cluster.relisting import Relisting
from mdserver.cluster.seeds import Seeds
from mdserver.cluster.service import Service
from mdserver.cluster.settings import alone, delay
from mdserver.cluster.single import ShortWay
from mdserver.cluster.stable_storage import StableStorage
from mdserver.cluster.standard import Standard
from mdserver.cluster.statistics import (
    GroupStatistics,
    NodeStatistics,
    group_statistics,
    node_statistics,
)
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.cluster.wal import AnyWalEntry, Checkpoint, ConcludeWal, WalBuffer, WalSynced
from mdserver.cluster.wal_replay import replay
from mdserver.cluster.workers import Workers
from mdserver.core.broker import Broker
from mdserver.core.commands import AnyCommand, Publish
from mdserver.core.inputs import (
    Announce,
    Authorized,
    Closed,
    Opened,
    Received,
    RulesChanged,
    TimerDue,
    Trouble,
    Writability,
)
from mdserver.core.message import Qos
from mdserver.core.outputs import Disconnect, Output, SetTimer
from mdserver.core.proposal import Outcome, Proposal
from mdserver.core.subjects import group_of
from mdserver.limits import CLOSE_NO_QUORUM, NS_PER_S

if TYPE_CHECKING:
    import random

    from mdserver.cluster.settings import ClusterSettings
    from mdserver.core.settings import BrokerSettings

Input = (
    Opened
    | Received
    | Closed
    | Writability
    | TimerDue
    | Authorized
    | RulesChanged
    | Trouble
    | Announce
    | msg.PeerUp
    | msg.PeerDown
    | msg.PeerReceived
    | msg.Persisted
    | msg.AdminCommand
    | msg.MembersListed
    | WalSynced
    | Checkpoint
    | ConcludeWal
)

START_BITS = 52
"""Bits of the random number of a start: exact in every JSON reader, and unique in practice."""

TICK = ("cluster", "tick")


class Node:
    """One member: its broker and its part of the cluster.

    Without `cluster` it is a single server: a cluster of one seed, elected at once, that needs no
    vote record. `votes` is the record to start with (`votes.started`), already on the disk. `wal`
    are the entries that this member wrote down before, as far as they can be relied on; they are
    replayed at `now`. Raises WalError if they do not fit.
    `step` is synchronous, never re-entered, and never raises for what a client or a peer sent.
    """

    def __init__(
        self,
        settings: "BrokerSettings",
        rng: "random.Random",
        cluster: "ClusterSettings | None" = None,
        votes: VoteRecord | None = None,
        wal: Sequence[AnyWalEntry] = (),
        now: int = 0,
    ) -> None:
        cluster = cluster or alone(settings.member)
        votes = votes or VoteRecord(
            cluster.me, "", 1, False, [Vote() for _ in range(settings.groups)], {}
        )
        self.settings = cluster
        # A single server has nobody to tell of it.
        start = 0 if cluster.single else 1 + rng.getrandbits(START_BITS)
        first_history = new_history(rng) if cluster.single else ""
        self.broker = broker = Broker(settings, first_history, rng)
        self.seeds = seeds = Seeds(cluster.me, cluster.seeds, votes if cluster.guaranteed else None)
        self.members = members = Membership(cluster, seeds)
        contact = contact_name(cluster.me, votes.incarnation, start)
        self.pending = pending = PendingPublications(contact, cluster.numbers_kept)
        self.wal = WalBuffer(
            enabled=cluster.writes_wal and seeds.include_me,
            acks_wait=cluster.acks_wait_for_wal,
        )
        self.outgoing = out = Outgoing(cluster.me, votes, pending, self.wal)
        self.storage = storage = StableStorage(votes, cluster, out, self.wal, start)
        forgetting = Forgetting((), cluster.publishers_max)
        self.workers = workers = Workers(cluster, broker, out, votes.incarnation)
        self._at_most_once = AtMostOnce(broker, out, workers)
        common_to_groups = (
            cluster,
            broker,
            members,
            pending,
            out,
            storage,
            self.wal,
            forgetting,
            workers if cluster.workers else None,
            rng,
        )
        self.groups = groups = Groups(
            [Group(index, *common_to_groups) for index in range(settings.groups)],
            cluster,
            broker,
            members,
            out,
            storage,
            self.wal,
            rng,
        )
        workers.groups = groups
        self._short_way = ShortWay(groups, cluster, broker, out, pending)
        common = (groups, cluster, members, out)  # of all parts, see `MemberPart`
        self.following = Following(*common, storage)
        self._sessions: dict[int, None] = {}
        self.service = Service(
            *common, broker, self.following, workers, self._sessions, self.unready
        )
        self._rng = rng
        self._election = election = Election(*common, storage, rng)
        learner = Learner(*common, storage, self.wal)
        sequencer = Coordinators(*common, storage, self.wal, election, rng)
        self.relisting = Relisting(*common, storage, self.wal, election)
        self.mode: Mode
        if cluster.guaranteed:
            voter = Voter(*common, storage)
            self.mode = Guaranteed(
                *common,
                self.following,
                learner,
                sequencer,
                storage,
                voter,
                election,
                self.relisting,
            )
        else:
            self.mode = Standard(*common, self.following, learner, sequencer, rng)
        self.admin = AdminCommands(
            *common, broker, storage, election, self.following, self.relisting
        )
        self._started = False
        self._handlers: dict[type, Callable[[str, Any], None]] = {
            msg.Hello: self._hello,
            msg.Heartbeat: self._heartbeat,
            msg.Forward: self._forward,
            msg.ForwardReply: self._answer,
            msg.StandardBatch: self._at_most_once.take,
            msg.Readmit: lambda *_: self.admin.readmitted(),
            msg.SetWeight: lambda _, message: self.admin.set_weight(message),
            **self.mode.handlers,
        }
        if cluster.learner:
            self._handlers[msg.ServerState] = self.service.take
        out.now = now
        held: list[int] = []
        if (
            wal and seeds.include_me
        ):  # what a member wrote down that is a seed no more counts no more
            held = replay(wal, groups, broker, out, unverified=not cluster.single)
        if cluster.single:
            self._coordinate_alone(groups[0].history or first_history, held)
        self._first_write = self.wal.needed
        """The write that brings what this start noted to the disk, with the history id."""

    def _coordinate_alone(self, history: str, held: list[int]) -> None:
        """Coordinate all groups at once: a single server is a majority, and has nobody to ask.

        Groups of which a log was read go on with it, under its history id; the rest starts cold.
        """
        self._election.first_history = history
        self._election.cold_start(range(len(self.groups)))
        self._election.force(held)
        self._run_local()
        self.members.joined = True

    @property
    def history(self) -> str:
        """Return the history id for new sessions."""
        return self.broker.history

    @property
    def settled(self) -> bool:
        """Return whether every group has a coordinator that this member follows."""
        return all(group.leadership.active for group in self.groups)

    @property
    def refused(self) -> dict[Guard, int]:
        """Return how often each guard of the protocol refused something since the start."""
        return dict(self.outgoing.refusals.counts)

    def step(self, input: Input, now: int) -> list[Output]:  # noqa: A002 - the design's word
        """Take one input at a time `now` (ns); return the driver's outputs, in order."""
        outgoing = self.outgoing
        out = outgoing.out
        outgoing.now = now
        if not self._started:
            self._start()
        match input:
            case Received():
                self._received(input)
            case msg.PeerReceived():
                self._receive(input)
            case TimerDue():
                self._timer(input)
            case Writability():
                self.broker.writability(input, now, out)
            case Opened() | Closed() | Authorized() | RulesChanged() | Announce():
                self._session(input)
            case msg.Persisted() | WalSynced() | Checkpoint() | ConcludeWal() | Trouble():
                self._disk(input)
            case msg.AdminCommand():
                self.admin.carry_out(input)
            case msg.PeerUp() | msg.PeerDown() | msg.MembersListed():
                self._link(input)
        # What this member publishes to groups that it coordinates itself comes first: it is part of
        # what the step says, and its own messages may follow from it.
        here = outgoing.forwards_here
        jumped = self.workers.jumped
        while here or outgoing.local or outgoing.collected or self.wal.entries or jumped:
            if here:
                item = here.popleft()
                self.groups[item.group].step(self.pending.contact, item)
            else:
                self._run_local()
        outgoing.out = []
        return out

    def _start(self) -> None:
        """Begin, in the first step: its outputs are the first that the driver takes."""
        self._started = True
        if self.settings.single:
            # Its disk is the majority: what was read from it is committed, and needs no free byte.
            for group in self.groups:
                group.commit(group.log.length)
        self.outgoing.out.append(SetTimer(TICK, self.outgoing.now))

    def _run_local(self) -> None:
        """Handle what this member says to itself, and send what was collected, to the end."""
        outgoing = self.outgoing
        while True:
            while outgoing.local:
                message = outgoing.local.popleft()
                self._handlers[type(message)](outgoing.me, message)
            outgoing.flush()
            if self.workers.jumped:
                self.workers.give_states()
            if not outgoing.local:
                return

    def _disk(
        self,
        input: msg.Persisted | WalSynced | Checkpoint | ConcludeWal | Trouble,  # noqa: A002
    ) -> None:
        """Handle what the driver says of the disk: writes that are done, wishes, and trouble."""
        match input:
            case msg.Persisted():
                self.storage.stored(input.request)
            case WalSynced():
                self.storage.wal_synced(input.request)
                self.mode.sequencer.take_held_back()
            case Checkpoint():
                for index in input.groups:
                    self.wal.checkpoint(self.groups[index])
            case ConcludeWal():
                self.wal.note_committed(self.outgoing.now, at_once=True)
            case Trouble():
                self.broker.trouble = input.reason
                refusing = input.reason if input.refusing else None
                self.broker.publications.refusing = refusing
                if refusing is not None:
                    self.mode.sequencer.refuse_held_back(refusing)
                if input.withdrawn and input.reason is not None:
                    self.mode.sequencer.withdraw(input.reason)
                self.service.tell_workers()

    # Clients

    def _received(self, input: Received) -> None:  # noqa: A002
        """Handle what a client sent; commands take effect in the order in which they came."""
        if input.session not in self._sessions:
            return
        commands = input.commands
        for run in publish_runs(commands) if len(commands) > 1 else (commands,):
            outgoing = self.outgoing
            proposals = self.broker.received(input.session, run, outgoing.now, outgoing.out)
            if proposals:
                self._propose(proposals)

    def _session(
        self,
        input: Opened | Closed | Authorized | RulesChanged | Announce,  # noqa: A002
    ) -> None:
        """Handle a session that opens or closes, new rights, and what the server announces."""
        if isinstance(input, Announce):
            self._at_most_once.publish(input.publications)
            return
        if isinstance(input, RulesChanged):
            self.broker.rules_changed(input, self.outgoing.now, self.outgoing.out)
            return
        if isinstance(input, Authorized):
            proposals = self.broker.authorized(input, self.outgoing.now, self.outgoing.out)
            if proposals:
                self._propose(proposals)
        elif isinstance(input, Closed):
            if self._sessions.pop(input.session, 0) is None:
                self.broker.closed(input, self.outgoing.now, self.outgoing.out)
        else:
            reason = self.unready()
            if reason is not None:
                self.outgoing.out.append(Disconnect(input.session, CLOSE_NO_QUORUM, reason))
                return
            self._sessions[input.session] = None
            self.broker.opened(input, self.outgoing.now, self.outgoing.out)

    def _propose(self, proposals: list[Proposal]) -> None:
        """Hand every proposal to its group, which forwards it or commits it at once."""
        groups = len(self.groups)
        by_group: dict[int, list[Proposal]] = {}
        standard: list[Proposal] = []
        at_most_once = Qos.STANDARD
        numbered = False
        for proposal in proposals:
            publication = proposal.publication
            if publication.qos is at_most_once:
                standard.append(proposal)
                continue
            if publication.number:
                numbered = True
            group = group_of(publication.subject, groups)
            batch = by_group.get(group)
            if batch is None:
                by_group[group] = [proposal]
            else:
                batch.append(proposal)
        short = not numbered and self._short_way.open
        for group, batch in () if short else by_group.items():
            self.groups[group].propose(batch)
        if standard:
            self._at_most_once.publish([proposal.publication for proposal in standard])
            self._resolve([Outcome(proposal.origin) for proposal in standard])
        # The shortcut comes last, so that the order is that of the full path: what is forwarded
        # there is committed after the STANDARD publications of its step.
        if short and by_group:
            self._short_way.publish(by_group)

    def _resolve(self, outcomes: Iterable[Outcome]) -> None:
        """Tell publishers the outcomes of their publications."""
        self.broker.resolve(outcomes, self.outgoing.now, self.outgoing.out)

    def _forward(self, peer: str, forward: msg.Forward) -> None:  # noqa: ARG002
        """Hand publications of a contact to their groups, whose coordinators are here."""
        for item in forward.items:
            self.groups[item.group].step(forward.contact, item)

    def _answer(self, peer: str, answer: msg.ForwardReply) -> None:
        """Take a coordinator's answers to publications of this member's clients."""
        for item in answer.items:
            self.groups[item.group].step(peer, item)
        # With these results nothing of a group may be on its way any more: the next batch goes.
        for group in dict.fromkeys(item.group for item in answer.items):
            self.groups[group].propose()

    # Members

    def _link(self, input: msg.PeerUp | msg.PeerDown | msg.MembersListed) -> None:  # noqa: A002
        """Handle a link that is up or gone, or a new list of those with whom there should be one.

        A new link ends the one before it.
        """
        if isinstance(input, msg.MembersListed):
            self.members.relist(input)
            return
        if isinstance(input, msg.PeerUp) and input.worker:
            self.service.tell_workers()  # the state of the last tick may be over
            self.workers.up(input.peer, joined=self.members.joined)
            return
        if input.peer in self.workers.contacts:
            self.workers.down(input.peer)
            return
        known = input.peer in self.members.peers
        if known and self.members.peers[input.peer].up:
            self.mode.link_lost(input.peer)
            self.members.down(input.peer)
        if isinstance(input, msg.PeerUp):
            self.members.up(input.peer, self.outgoing.now)
            self.outgoing.linked = self.members.linked()
            self.outgoing.send((input.peer,), self.storage.hello())
            if not self.settings.learner:
                self.outgoing.send((input.peer,), self._pulse())
        else:
            self.outgoing.linked = self.members.linked()
            self.mode.member_unreachable()

    def _receive(self, input: msg.PeerReceived) -> None:  # noqa: A002
        """Handle the messages of one read of a link; close links that break the protocol."""
        if input.peer in self.workers.contacts:
            for message in input.messages:
                batch = self.workers.receive(input.peer, message)
                if batch is not None:
                    self._at_most_once.take(input.peer, batch)
            return
        peer = self.members.peers.get(input.peer)
        if peer is None or not peer.up:
            return
        peer.heard = self.outgoing.now
        for message in input.messages:
            if not peer.greeted and not isinstance(message, msg.Hello):
                self.outgoing.out.append(msg.ClosePeer(input.peer, "the first message is a Hello"))
                return
            handler = self._handlers.get(type(message))
            if handler is None:
                reason = f"{type(message).__name__} says nothing in this delivery mode"
                self.outgoing.out.append(msg.ClosePeer(input.peer, reason))
                return
            handler(input.peer, message)

    def _hello(self, peer: str, hello: msg.Hello) -> None:
        """Note who a member is; refuse one of an incarnation older than a known one.

        Its record is an older copy, and may lack promises that others rely on.
        """
        least = self.storage.votes.known.get(peer, 0) if hello.admitted else 0
        if not self.members.hello(peer, hello) or hello.incarnation < least:
            reason = f"incarnation {hello.incarnation} of {peer} is older than a known one"
            self.mode.outdated(peer, hello)
            self.outgoing.out.append(msg.ClosePeer(peer, reason))
            return
        if not hello.forgets and any(group.log.floor.seq for group in self.groups):
            # It would give numbers of forgotten subjects a second time (`Membership.all_forget`).
            reason = f"{peer} is of an earlier version, and does not know of forgotten subjects"
            self.outgoing.out.append(msg.ClosePeer(peer, reason))
            return
        if not hello.relists and self.seeds.changed:
            self.relisting.shut_out(peer)
            return
        for name in hello.linked:
            if self.members.stranger(name):
                self.outgoing.out.append(msg.PeerDiscovered(name))
        self.mode.greeted(peer, hello)

    def _heartbeat(self, peer: str, heartbeat: msg.Heartbeat) -> None:
        """Note what a member says of itself, and have the mode compare its groups."""
        if self.members.heartbeat(peer, heartbeat):
            self.mode.rebalance()
        self.mode.heartbeat(peer, heartbeat)

    def _pulse(self) -> msg.Heartbeat:
        """Return the heartbeat: what this member says of itself now."""
        groups, members, now = self.groups, self.members, self.outgoing.now
        promises = [vote.epoch for vote in self.storage.votes.promised]
        number, seeds, next_seeds = self.relisting.told
        return msg.Heartbeat(
            members.joined,
            self.storage.admitted,
            groups.standing_known,
            groups.record_lost,
            members.weight,
            max(promises),
            groups.not_voting,
            self.mode.sequencer.leads(),
            members.hears(now),
            members.sees(now),
            members.misses,
            self.following.follows_all and self.unready() is None,
            groups.unverified,
            self.following.behind_in_all(),
            number,
            seeds if number > 1 else (),
            next_seeds,
            groups[0].acceptor is not None,
            self.relisting.unwritten,
            self.seeds.may_name,
            () if groups[0].acceptor is None or members.all_serve else promises,
        )

    # Time

    def _timer(self, due: TimerDue) -> None:
        """Handle a timer: one of the broker, or the tick of the cluster."""
        if due.timer[0] == "broker":
            self.broker.timer(due, self.outgoing.now, self.outgoing.out)
            return
        for group in self.groups:
            if group.queue.proposals:
                group.give_up(self.settings.publish_timeout)
        self.mode.sequencer.forget_idle()
        self.wal.note_committed(self.outgoing.now)
        if self.settings.single:
            self.service.tell_workers()
            self.outgoing.out.append(SetTimer(TICK, self.outgoing.now + NS_PER_S))
            return
        self.members.forget_gone(self.outgoing.now)
        # Workers see their server only, and nobody expects more of them.
        if not self.settings.learner and self.members.look(self.outgoing.now):
            self.mode.rebalance()
        self.mode.tick()
        self.following.look()
        self.admin.tick()
        if not self.settings.learner:  # whose server watches its process
            self.outgoing.send(self.outgoing.linked, self._pulse())
        self.service.look()
        self.service.tell_workers()
        self.outgoing.out.append(
            SetTimer(TICK, self.outgoing.now + delay(self.settings, self._rng, 0.5))
        )

    def statistics(self) -> NodeStatistics:
        """Return what this member holds now, as values that do not change."""
        settled = self.relisting.settled
        votes, linked = self.storage.votes, self.outgoing.linked
        return node_statistics(self.groups, votes, linked, self.seeds, settled=settled)

    def group_statistics(self, index: int) -> GroupStatistics:
        """Return what this member holds of one group now."""
        return group_statistics(self.groups[index])

    def unready(self) -> str | None:
        """Return why this member serves no clients now; None if it does."""
        if self.settings.single:
            return self._unwritten()
        return self.service.told.unready or self.mode.unready()

    def _unwritten(self) -> str | None:
        """Return that a single server has not written its history id down yet; None if it has.

        If clients were told an id that is not on the disk, and the server crashed, they would be
        told of a reset although nothing was lost. While the disk takes nothing, clients are served
        all the same: operators were told, and that may last.
        """
        if self.wal.synced >= self._first_write or self.broker.trouble is not None:
            return None
        return "the history id of this server is not on its disk yet"

    def away(self) -> str | None:
        """Return why a log that is kept elsewhere cannot be reached; None if it can be."""
        return None

    def needed_for_quorum(self) -> str | None:
        """Return why the cluster would take no publications without this member, or None."""
        if self.settings.single or not self.seeds.include_me:
            return None
        return self.admin.breaks(self.settings.me)


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
