"""What a member does for the groups that it coordinates: number, replicate, commit, hand over."""

from collections import deque
from typing import TYPE_CHECKING

from mdserver.cluster.coordinator import Coordinator, Phase
from mdserver.cluster.forgetting import Forgetting
from mdserver.cluster.learner import MISSING
from mdserver.cluster.messages import (
    Ack,
    Acked,
    Agreed,
    Answered,
    Appended,
    Forward,
    Forwarded,
    HandOver,
    Led,
    Need,
    Needed,
    State,
    Sync,
    Synced,
    portions,
)  # fmt: skip
from mdserver.cluster.placement import ranking
from mdserver.limits import JOURNAL_HOLD_BYTES, NS_PER_S

if TYPE_CHECKING:
    from mdserver.cluster.election import Election
    from mdserver.cluster.ground import Ground
    from mdserver.cluster.learner import Learner

HAND_OVER_EVERY = NS_PER_S
FORGET_EVERY = NS_PER_S


class Leading:
    """The coordinators of one member, once they are elected.

    A coordinator that writes its log down takes no more than its disk takes: what comes beyond is
    held back, in the order of its coming.
    """

    __slots__ = (
        "_held",
        "_next_forget",
        "_next_hand_over",
        "election",
        "forgetting",
        "ground",
        "learner",
    )

    def __init__(self, ground: "Ground", election: "Election", learner: "Learner") -> None:
        self.ground = ground
        self.election = election
        self.learner = learner
        self.forgetting = Forgetting(ground.logs, ground.settings.publishers_max)
        self._held: deque[tuple[str, Forwarded]] = deque()
        self._next_hand_over = 0
        self._next_forget = 0

    def active(self, group: int, epoch: int) -> Coordinator | None:
        """This member's active coordinator of a group, if it is of that epoch."""
        coordinator = self.ground.coordinators.get(group)
        if coordinator is None or coordinator.epoch != epoch:
            return None
        return coordinator if coordinator.phase is Phase.ACTIVE else None

    def establish(self, won: list[Coordinator]) -> None:
        """Send the adopted logs; a cold start puts them under a new history id first."""
        ground = self.ground
        cold = [coordinator for coordinator in won if coordinator.cold]
        known: dict[str, int] = {}
        if cold:
            for coordinator in cold:
                known |= coordinator.incarnations
            self._renew([coordinator.group for coordinator in cold])
            ground.note(known)
        logs = (self.synced(coordinator, self._common(coordinator)) for coordinator in won)
        for items in portions(logs):
            ground.say(ground.linked(), Sync(items, known))
        for coordinator in won:
            self.own_ack(coordinator)

    def _common(self, coordinator: Coordinator) -> int:
        """From where on everybody who promised can take the log."""
        if coordinator.cold:
            return 0
        least = min(item.committed for _, item in coordinator.promises.values())
        start = min(least, coordinator.log.committed)
        # With one entry more, everybody can see that what is committed there is in it.
        return start - 1 if start > coordinator.log.base else start

    def _renew(self, groups: list[int]) -> None:
        ground = self.ground
        if not ground.durable:
            for group in groups:
                ground.views[group].history = self.election.round_history
        else:
            ground.rename(self.election.round_history, groups)
        for group in groups:
            ground.picture(group)
        if ground.admit():
            ground.store()

    def synced(self, coordinator: Coordinator, start: int, register: int = 0) -> Synced:
        """The coordinator's log from `start` on, with what stands for the rest if need be.

        A negative start asks for what stands for all that is committed.
        """
        ground, log, group = self.ground, coordinator.log, coordinator.group
        state = None
        if start < log.base:
            start = log.committed
            state = State(log.tables(), ground.export_cache(group))
        return Synced(
            group, coordinator.epoch, ground.views[group].history, start, log.since(start),
            log.runs_since(start), log.committed, coordinator.phase is Phase.ACTIVE,
            coordinator.cold and coordinator.phase is Phase.SYNCING, register, state,
        )  # fmt: skip

    def ack(self, seed: str, ack: Ack) -> None:
        """A seed holds more."""
        coordinators = self.ground.coordinators
        for item in ack.items:
            coordinator = coordinators.get(item.group)
            if coordinator is None or coordinator.epoch != item.epoch:
                continue
            agreed = coordinator.ack(seed, ack.incarnation, item.length)
            if agreed is not None:
                self._commit(coordinator, agreed)

    def _commit(self, coordinator: Coordinator, agreed: int) -> None:
        ground, group = self.ground, coordinator.group
        first = not ground.views[group].active
        if ground.tracing:
            ground.trace(
                "Activate" if first else "Commit", group, coordinator.epoch, committed=agreed
            )
        ground.learn(group, agreed)
        if coordinator.majority > 1:
            ground.agreed(Agreed(group, coordinator.epoch, agreed))
        if coordinator.held:
            for contact, answer in coordinator.due():
                ground.answer(contact, answer)
        if not first:
            return
        ground.log("active", group=group, epoch=coordinator.epoch, length=agreed)
        self.learner.follow(group)

    def own_ack(self, coordinator: Coordinator) -> None:
        """The seed of this member holds what its coordinator holds: they share the log.

        Without votes a coordinator counts on itself alone.
        """
        ground = self.ground
        if ground.me not in coordinator.seeds:
            return
        if not ground.on_disk:
            # Its vote may be what is not on the disk yet: the ack waits, as one to others would.
            group, length = coordinator.group, coordinator.log.length
            ground.acks(ground.me, Acked(group, coordinator.epoch, length), False)
            return
        agreed = coordinator.ack(ground.me, ground.votes.incarnation, coordinator.log.length)
        if agreed is not None:
            self._commit(coordinator, agreed)

    def forward(self, forward: Forward) -> None:
        """Publications for groups that this member coordinates.

        Those for another epoch are passed over: their contact learns of the newer one, and knows
        from its log which publications that has.
        """
        for item in forward.items:
            if self._held or self.ground.unwritten_bytes > JOURNAL_HOLD_BYTES:
                self._held.append((forward.contact, item))
            else:
                self._take(forward.contact, item)
        if self._held and self.ground.broker.publications.refusing is not None:
            self.refuse_held(self.ground.broker.publications.refusing)

    def _take(self, contact: str, item: Forwarded) -> None:
        coordinator = self.active(item.group, item.epoch)
        if coordinator is not None:
            self._append(coordinator, contact, item)

    def go_on(self) -> None:
        """Take what was held back, as far as the disk has taken what was on its way to it."""
        while self._held and self.ground.unwritten_bytes <= JOURNAL_HOLD_BYTES:
            self._take(*self._held.popleft())

    def refuse_held(self, reason: str) -> None:
        """Tell the contacts that nothing of what is held back was taken, because of the disk."""
        while self._held:
            contact, item = self._held.popleft()
            for ticket in range(item.first, item.first + len(item.publications)):
                answer = Answered(item.group, ticket, 0, 0, False, reason, None)
                self.ground.answer(contact, answer)

    def withdraw(self, reason: str) -> None:
        """Take back what is not committed: the only seed's disk has nothing of it, and refuses."""
        ground = self.ground
        ground.withdraw()
        for group, coordinator in ground.coordinators.items():
            if coordinator.phase is Phase.ACTIVE:
                coordinator.log.truncate(coordinator.log.committed)
                coordinator.held.clear()
            ground.outcomes(ground.contact.refused(group, reason))
            self.own_ack(coordinator)

    def _append(self, coordinator: Coordinator, contact: str, item: Forwarded) -> None:
        ground, log = self.ground, coordinator.log
        start = log.length
        runs = len(log.runs)
        self.forgetting.make_room(coordinator, item.publications, ground.now)
        for answer in coordinator.append(item.publications, contact, item.first):
            ground.answer(contact, answer)
        if log.length > start:
            self._replicate(coordinator, start, runs)

    def _replicate(self, coordinator: Coordinator, start: int, runs: int) -> None:
        ground, log = self.ground, coordinator.log
        if ground.linked():
            ground.appended(
                Appended(coordinator.group, coordinator.epoch, start, log.committed,
                         log.since(start), log.runs[runs:])
            )  # fmt: skip
        if ground.recording:
            ground.added(coordinator.group, start, log.runs[runs:])
        if ground.tracing:
            self._trace_publish(coordinator, start)
        self.own_ack(coordinator)

    def _trace_publish(self, coordinator: Coordinator, start: int) -> None:
        """The appended publications by name, and that the seed of this member holds them."""
        ground, group, log = self.ground, coordinator.group, coordinator.log
        names = [
            f"{entry.publication.publisher}#{entry.publication.number}"
            if entry.publication.number else f"{coordinator.epoch}.{at}"
            for at, entry in enumerate(log.since(start), start)
        ]  # fmt: skip
        ground.trace("Publish", group, coordinator.epoch, publications=",".join(names))
        if ground.seed is not None:
            ground.trace("Accept", group, coordinator.epoch)

    def need(self, peer: str, need: Need) -> None:
        """A member lacks something of groups; a recovering seed is registered with it."""
        items: list[Synced] = []
        returning: list[Coordinator] = []
        least = 0
        for item in need.items:
            coordinator = self.ground.coordinators.get(item.group)
            if coordinator is None or coordinator.phase is not Phase.ACTIVE:
                continue
            if item.promised > coordinator.epoch:
                # The seed promised a candidate that came to nothing: only a newer epoch has it.
                self.election.outbid(item.group, item.promised)
                continue
            if not item.recovering:
                if self._forgot(coordinator, peer, need.incarnation, item):
                    least = max(least, need.incarnation + 1)
                    continue
                if self._lacks(coordinator, peer, item):
                    continue
            register = self._register(coordinator, peer, need, item)
            if item.recovering and not register:
                least = max(least, coordinator.known.get(peer, 0))
                if need.returning and coordinator.lacks(peer, need.incarnation):
                    returning.append(coordinator)
                continue
            same = item.history == self.ground.views[item.group].history
            start = min(item.committed, coordinator.log.committed) if same else 0
            items.append(self.synced(coordinator, start, register))
        for portion in portions(items):
            self.ground.say((peer,), Sync(portion))
        if need.incarnation < least:
            # Only who promised knew of it: the seed has to hear that, and come as a newer one.
            self.ground.note({peer: least})
            self.ground.say((peer,), self.ground.greeting())
        self._take_back(peer, need.incarnation, returning)

    def _take_back(self, seed: str, incarnation: int, found: list[Coordinator]) -> None:
        """Have groups elected anew for a seed's loss, and for those that are still under way."""
        rounds: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for coordinator in found:
            readmit = {**coordinator.unregistered(), seed: incarnation}
            rounds.setdefault(tuple(readmit.items()), []).append(coordinator.group)
        for named, groups in rounds.items():
            self.election.force(groups, readmit=dict(named))

    def _forgot(self, coordinator: Coordinator, peer: str, incarnation: int, item: Needed) -> bool:
        """Whether a seed's disk was put back: it acked more than it holds."""
        if not coordinator.forgot(peer, incarnation, item.accepted, item.length):
            return False
        self.ground.log("older copy", seed=peer, group=item.group,
                        acked=coordinator.acked[peer], holds=item.length)  # fmt: skip
        return True

    def _lacks(self, coordinator: Coordinator, peer: str, item: Needed) -> bool:
        """Whether a member has as committed what is not in this log; clients then hear so."""
        ground = self.ground
        same = item.history == ground.views[item.group].history
        if not same or not coordinator.lacking(item.accepted, item.committed, item.last):
            return False
        ground.log(MISSING, member=peer, group=item.group,
                   committed=item.committed, base=coordinator.base)  # fmt: skip
        self.election.renew(item.group)
        return True

    def _register(self, coordinator: Coordinator, peer: str, need: Need, item: Needed) -> int:
        if not item.recovering or peer not in coordinator.seeds:
            return 0
        known = self.ground.votes.known
        if not coordinator.may_register(peer, need.incarnation, need.admitted, known):
            return 0
        readmitted = coordinator.readmit.get(peer) == need.incarnation
        coordinator.register(peer, need.incarnation)
        self.ground.trace(
            "Readmit" if readmitted else "Register", item.group, coordinator.epoch, seed=peer,
            registered=need.incarnation,
        )  # fmt: skip
        return need.incarnation

    def leads(self) -> list[Led]:
        """The groups that this member coordinates, for its heartbeat."""
        return [
            Led(group, coordinator.epoch, coordinator.log.length, coordinator.log.committed)
            for group, coordinator in self.ground.coordinators.items()
            if coordinator.phase is Phase.ACTIVE
        ]

    def check_quorum(self) -> None:
        """A coordinator that sees no majority of seeds stops, and says so by leading no more."""
        if self.ground.members.quorum(self.ground.now):
            return
        for group in list(self.ground.coordinators):
            self.election.depose(group)

    def forget_idle(self) -> None:
        """Forget publishers that were idle for long."""
        ground = self.ground
        if ground.now < self._next_forget:
            return
        self._next_forget = ground.now + FORGET_EVERY
        for coordinator in list(ground.coordinators.values()):
            start, runs = coordinator.log.length, len(coordinator.log.runs)
            if coordinator.phase is Phase.ACTIVE and self.forgetting.idle(coordinator, ground.now):
                self._replicate(coordinator, start, runs)

    def hurry(self) -> None:
        """Look at the next turn whether groups are to be handed over."""
        self._next_hand_over = 0

    def hand_over(self, ready: bool) -> None:
        """Ask members that should coordinate groups of this one to stand for them."""
        ground = self.ground
        if ground.now < self._next_hand_over or not ground.coordinators:
            return
        self._next_hand_over = ground.now + HAND_OVER_EVERY + self.election.delay(1)
        weights = ground.members.weights(ground.now, ready, ground.weight)
        if not weights:
            return
        wanted: dict[str, list[int]] = {}
        for group, coordinator in ground.coordinators.items():
            first = ranking(group, weights)[0]
            if coordinator.phase is Phase.ACTIVE and first != ground.me and weights[first]:
                wanted.setdefault(first, []).append(group)
        for member, groups in wanted.items():
            ground.say((member,), HandOver(groups))

    def handed(self, peer: str, hand_over: HandOver) -> None:
        """A coordinator asks this member to stand for its groups."""
        ground = self.ground
        away = ground.seed.away if ground.seed is not None else []
        self.election.force(
            group for group in hand_over.groups
            if ground.views[group].coordinator == peer and ground.views[group].active
            and group not in away
        )  # fmt: skip
