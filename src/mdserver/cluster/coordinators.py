"""What a member does with the groups that it coordinates: establish, replicate, commit, hand over.

`mdserver.cluster.coordinator` decides (what is numbered, when it is committed, who may count); this
is where its decisions meet the group's log, the other members and the disk of this one.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.forgetting import Forgetting
from mdserver.cluster.guards import Guard
from mdserver.cluster.log import MISSING
from mdserver.cluster.messages import (
    AcceptItem,
    Ack,
    AckItem,
    AnswerItem,
    CommitItem,
    Forward,
    ForwardItem,
    HandOver,
    LedGroup,
    Sync,
    SyncItem,
    SyncRequest,
    SyncRequestItem,
    portions,
)
from mdserver.cluster.part import MemberPart
from mdserver.cluster.placement import ranking
from mdserver.cluster.settings import delay
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    import random

    from mdserver.cluster.election import Election
    from mdserver.cluster.group import Group
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer
    from mdserver.core.broker import Broker

HAND_OVER_EVERY = NS_PER_S
FORGET_EVERY = NS_PER_S


@define(eq=False)
class Coordinators(MemberPart):
    """The coordinators of one member, once they are elected.

    A coordinator that writes its log down takes no more than its disk takes: what comes beyond is
    held back (`_held_back`), in the order in which it came.
    """

    _broker: "Broker"
    _storage: "StableStorage"
    _wal: "WalBuffer"
    _election: "Election"
    _rng: "random.Random"
    _forgetting: Forgetting = field(init=False)
    _held_back: deque[tuple[str, ForwardItem]] = field(init=False, factory=deque)
    _next_hand_over: int = field(init=False, default=0)
    _next_forget: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        logs = [group.log for group in self.groups]
        self._forgetting = Forgetting(logs, self._settings.publishers_max)

    # From elected to active

    def establish(self, won: list[Coordinator]) -> None:
        """Send the adopted logs; a cold start puts them under a new history id first."""
        cold = [coordinator for coordinator in won if coordinator.cold]
        known: dict[str, int] = {}
        if cold:
            for coordinator in cold:
                known |= coordinator.incarnations
            self._renew([coordinator.group for coordinator in cold])
            self._storage.note(known)
        logs = (self.synced(coordinator, self._common(coordinator)) for coordinator in won)
        for items in portions(logs):
            self._outgoing.send(self._outgoing.linked, Sync(items, known))
        for coordinator in won:
            self.ack_here(coordinator)

    def _common(self, coordinator: Coordinator) -> int:
        """Return from where on everybody who promised can take the log."""
        if coordinator.cold:
            return 0
        least = min(item.committed for _, item in coordinator.promises.values())
        start = min(least, coordinator.log.committed)
        # With one entry more, everybody can see that what is committed there is in it.
        return start - 1 if start > coordinator.log.base else start

    def _renew(self, groups: list[int]) -> None:
        if self._settings.single:
            for index in groups:
                self.groups[index].history = self._election.round_history
        else:
            self.groups.rename(self._election.round_history, groups)
        for index in groups:
            self._wal.checkpoint(self.groups[index])
        if self.groups.admit():
            self._storage.store()

    def synced(self, coordinator: Coordinator, start: int, register: int = 0) -> SyncItem:
        """Return the coordinator's log from `start` on, after a state if that is needed.

        A negative start asks for what stands for all that is committed.
        """
        group, log = self.groups[coordinator.group], coordinator.log
        start, state = group.tail_or_state(start)
        return SyncItem(
            group.index,
            coordinator.epoch,
            group.history,
            start,
            log.since(start),
            log.runs_since(start),
            log.committed,
            coordinator.state is CoordinatorState.ACTIVE,
            coordinator.cold and coordinator.state is CoordinatorState.SYNCING,
            register,
            state,
        )

    # Acks and commits

    def ack(self, seed: str, ack: Ack) -> None:
        """A seed holds more."""
        for item in ack.items:
            coordinator = self.groups[item.group].coordinator
            # An ack of another epoch is about another log, even if the places are the same.
            if coordinator is None or coordinator.epoch != item.epoch:
                self._outgoing.refuse(Guard.ACK_EPOCH)
                continue
            agreed = coordinator.ack(seed, ack.incarnation, item.length)
            if agreed is not None:
                self._commit(coordinator, agreed)

    def ack_here(self, coordinator: Coordinator) -> None:
        """Count this member's own seed: it holds what its coordinator holds, they share the log.

        Without votes a coordinator counts on itself alone.
        """
        me = self._settings.me
        if me not in coordinator.seeds:
            return
        if not self._storage.on_disk:
            # Its vote may be what is not on the disk yet: the ack waits, as one to others would.
            item = AckItem(coordinator.group, coordinator.epoch, coordinator.log.length)
            self._storage.ack(me, item, changed=False)
            return
        incarnation = self._storage.votes.incarnation
        agreed = coordinator.ack(me, incarnation, coordinator.log.length)
        if agreed is not None:
            self._commit(coordinator, agreed)

    def _commit(self, coordinator: Coordinator, agreed: int) -> None:
        group = self.groups[coordinator.group]
        first = not group.leadership.active
        if group.tracing:
            group.trace("Activate" if first else "Commit", coordinator.epoch, committed=agreed)
        group.commit(agreed)
        if coordinator.majority > 1:
            self._outgoing.commit(CommitItem(group.index, coordinator.epoch, agreed))
        if coordinator.held:
            for contact, answer in coordinator.due():
                self._outgoing.answer(contact, answer)
        if first:
            self._outgoing.log("active", group=group.index, epoch=coordinator.epoch, length=agreed)
            group.follow()

    # Publications

    def forward(self, peer: str, forward: Forward) -> None:  # noqa: ARG002
        """Take publications for groups that this member coordinates.

        Those for another epoch are passed over: their contact learns of the newer one, and knows
        from its log which publications that has.
        """
        for item in forward.items:
            if self._held_back or (
                self._wal.enabled and self._wal.unsynced_bytes > self._settings.hold_bytes
            ):
                self._held_back.append((forward.contact, item))
            else:
                self._take(forward.contact, item)
        if self._held_back and self._broker.publications.refusing is not None:
            self.refuse_held_back(self._broker.publications.refusing)

    def _take(self, contact: str, item: ForwardItem) -> None:
        coordinator = self.groups[item.group].coordinator
        if (
            coordinator is None
            or coordinator.epoch != item.epoch
            or coordinator.state is not CoordinatorState.ACTIVE
        ):
            self._outgoing.refuse(Guard.FORWARD_EPOCH)
            return
        log = coordinator.log
        start, runs = log.length, len(log.runs)
        self._forgetting.make_room(coordinator, item.publications, self._outgoing.now)
        for answer in coordinator.append(item.publications, contact, item.first):
            self._outgoing.answer(contact, answer)
        if log.length > start:
            self._replicate(coordinator, start, runs)

    def _replicate(self, coordinator: Coordinator, start: int, runs: int) -> None:
        """Send and write down the entries from `start` on, and the runs from number `runs` on."""
        group, log = self.groups[coordinator.group], coordinator.log
        if self._outgoing.linked:
            self._outgoing.accept(
                AcceptItem(
                    group.index,
                    coordinator.epoch,
                    start,
                    log.committed,
                    log.since(start),
                    log.runs[runs:],
                )
            )
        if self._wal.enabled:
            self._wal.appended(group, start, log.runs[runs:])
        if group.tracing:
            self._trace_publish(group, coordinator, start)
        self.ack_here(coordinator)

    def _trace_publish(self, group: "Group", coordinator: Coordinator, start: int) -> None:
        """Trace the appended publications by name, and that the seed of this member holds them."""
        names = [
            f"{entry.publication.publisher}#{entry.publication.number}"
            if entry.publication.number
            else f"{coordinator.epoch}.{at}"
            for at, entry in enumerate(coordinator.log.since(start), start)
        ]
        group.trace("Publish", coordinator.epoch, publications=",".join(names))
        if group.acceptor is not None:
            group.trace("Accept", coordinator.epoch)

    def take_held_back(self) -> None:
        """Take what was held back, as far as the disk has taken what was on its way to it."""
        while self._held_back and self._wal.unsynced_bytes <= self._settings.hold_bytes:
            self._take(*self._held_back.popleft())

    def refuse_held_back(self, reason: str) -> None:
        """Tell the contacts that nothing of what is held back was taken, because of the disk."""
        while self._held_back:
            contact, item = self._held_back.popleft()
            for ticket in range(item.first, item.first + len(item.publications)):
                answer = AnswerItem(item.group, ticket, 0, 0, False, reason, None)
                self._outgoing.answer(contact, answer)

    def withdraw(self, reason: str) -> None:
        """Take back what is not committed: the only seed's disk has nothing of it, and refuses."""
        self._storage.withdraw()
        for group in self.groups.coordinated:
            coordinator = group.coordinator
            assert coordinator is not None
            if coordinator.state is CoordinatorState.ACTIVE:
                coordinator.log.truncate(coordinator.log.committed)
                coordinator.held.clear()
            group.resolve(group.queue.refused(reason))
            self.ack_here(coordinator)

    def forget_idle(self) -> None:
        """Forget publishers that were idle for long."""
        now = self._outgoing.now
        if now < self._next_forget:
            return
        self._next_forget = now + FORGET_EVERY
        for coordinator in self._active():
            start, runs = coordinator.log.length, len(coordinator.log.runs)
            if self._forgetting.idle(coordinator, now):
                self._replicate(coordinator, start, runs)

    # Members that lack something

    def sync_request(self, peer: str, request: SyncRequest) -> None:
        """A member lacks something of groups; a recovering seed is registered with it."""
        items: list[SyncItem] = []
        returning: list[Coordinator] = []
        least = 0
        for item in request.items:
            group = self.groups[item.group]
            coordinator = group.coordinator
            if coordinator is None or coordinator.state is not CoordinatorState.ACTIVE:
                continue
            if item.promised > coordinator.epoch:
                # The seed promised a candidate that came to nothing. It takes no lower epoch any
                # more, so only a newer one has it back.
                self._outgoing.refuse(Guard.SEED_PROMISED_NEWER)
                self._election.outbid(item.group, item.promised)
                continue
            if not item.recovering:
                if self._holds_less(coordinator, peer, request.incarnation, item):
                    least = max(least, request.incarnation + 1)
                    continue
                if self._lacks(coordinator, peer, item):
                    continue
            register = self._register(coordinator, peer, request, item)
            if item.recovering and not register:
                least = max(least, coordinator.known.get(peer, 0))
                if request.returning and coordinator.lacks(peer, request.incarnation):
                    returning.append(coordinator)
                continue
            same = item.history == group.history
            start = min(item.committed, coordinator.log.committed) if same else 0
            items.append(self.synced(coordinator, start, register))
        for portion in portions(items):
            self._outgoing.send((peer,), Sync(portion))
        if request.incarnation < least:
            # Only those who promised knew of it: the seed has to hear that, and come back newer.
            self._storage.note({peer: least})
            self._outgoing.send((peer,), self._storage.hello())
        self._take_back(peer, request.incarnation, returning)

    def _take_back(self, seed: str, incarnation: int, found: list[Coordinator]) -> None:
        """Have groups elected anew for a seed's loss, and for those that are still under way."""
        rounds: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for coordinator in found:
            readmit = {**coordinator.unregistered(), seed: incarnation}
            rounds.setdefault(tuple(readmit.items()), []).append(coordinator.group)
        for named, groups in rounds.items():
            self._election.force(groups, readmit=dict(named))

    def _holds_less(
        self, coordinator: Coordinator, peer: str, incarnation: int, item: SyncRequestItem
    ) -> bool:
        """Return whether a seed's disk was put back: it acked more than it holds."""
        if not coordinator.holds_less(peer, incarnation, item.accepted, item.length):
            return False
        self._outgoing.refuse(Guard.SEED_HOLDS_LESS)
        self._outgoing.log(
            "older copy",
            seed=peer,
            group=item.group,
            acked=coordinator.acked[peer],
            holds=item.length,
        )
        return True

    def _lacks(self, coordinator: Coordinator, peer: str, item: SyncRequestItem) -> bool:
        """Return whether a member has as committed what is not in this log.

        Acknowledged messages are missing here then, so clients have to hear of a new history.
        """
        same = item.history == self.groups[item.group].history
        if not same or not coordinator.lacking(item.accepted, item.committed, item.last):
            return False
        self._outgoing.refuse(Guard.LEARNER_HOLDS_MORE)
        self._outgoing.log(
            MISSING,
            member=peer,
            group=item.group,
            committed=item.committed,
            base=coordinator.base,
        )
        self._election.renew(item.group)
        return True

    def _register(
        self, coordinator: Coordinator, peer: str, request: SyncRequest, item: SyncRequestItem
    ) -> int:
        """Count a recovering seed from now on; return its incarnation, 0 if it does not count."""
        if not item.recovering or peer not in coordinator.seeds:
            return 0
        known = self._storage.votes.known
        if not coordinator.may_register(peer, request.incarnation, request.admitted, known):
            return 0
        readmitted = coordinator.readmit.get(peer) == request.incarnation
        coordinator.register(peer, request.incarnation)
        self.groups[item.group].trace(
            "Readmit" if readmitted else "Register",
            coordinator.epoch,
            seed=peer,
            registered=request.incarnation,
        )
        return request.incarnation

    # Where groups are coordinated

    def _active(self) -> Sequence[Coordinator]:
        return [
            group.coordinator
            for group in self.groups
            if group.coordinator is not None and group.coordinator.state is CoordinatorState.ACTIVE
        ]

    def leads(self) -> list[LedGroup]:
        """Return the groups that this member coordinates, for its heartbeat."""
        return [
            LedGroup(one.group, one.epoch, one.log.length, one.log.committed)
            for one in self._active()
        ]

    def check_quorum(self) -> None:
        """Stop if no majority of seeds is in sight; the next heartbeat says so by leading nothing.

        Nothing could be committed. Members on the majority's side elect without being refused, and
        clients here are told to go there.
        """
        if self._members.quorum(self._outgoing.now):
            return
        for group in self.groups.coordinated:
            self._outgoing.refuse(Guard.QUORUM_LOST)
            self.groups.depose(group.index)

    def hurry(self) -> None:
        """Look at the next turn whether groups are to be handed over."""
        self._next_hand_over = 0

    def hand_over(self) -> None:
        """Ask members that should coordinate groups of this one to stand for them."""
        now, me = self._outgoing.now, self._settings.me
        coordinated = self.groups.coordinated
        if now < self._next_hand_over or not coordinated:
            return
        self._next_hand_over = now + HAND_OVER_EVERY + delay(self._settings, self._rng, 1)
        weights = self._members.weights(now)
        if not weights:
            return
        wanted: dict[str, list[int]] = {}
        for coordinator in self._active():
            first = ranking(coordinator.group, weights)[0]
            if first != me and weights[first]:
                wanted.setdefault(first, []).append(coordinator.group)
        for member, groups in wanted.items():
            self._outgoing.send((member,), HandOver(groups))

    def handed(self, peer: str, hand_over: HandOver) -> None:
        """Stand for groups whose coordinator asks this member to."""
        not_voting = self.groups.not_voting
        self._election.force(
            index
            for index in hand_over.groups
            if self.groups[index].leadership.coordinator == peer
            and self.groups[index].leadership.active
            and index not in not_voting
        )
