"""The work of a member for the groups that it coordinates, many of them in one message.

Within one group `mdserver.cluster.coordinator` decides what is numbered, when it is committed and
which seeds count, and `Group` carries that out. This module has the rest of a coordinator's work:

- *Establishing* the log with which it was elected, on all members (spec: `Sync`, then `Activate`).
- *Giving members what they lack*, and *taking seeds back* that started again. Only the active
  coordinator of an epoch may do that: it alone surely holds everything that is committed, the tail
  that is just being committed included (spec: `Register`, `Readmit`, and the rule "recover from the
  coordinator only"). From then on it counts acks of the new incarnation alone ("acks are fenced").
- *Stopping* without a majority of seeds in sight, and *handing groups over* to the members that
  should coordinate them. A hand-over is an election like any other (`HandOver.tla`).
- Holding publications back while the disk is behind, and forgetting idle publishers.

docs/cluster.md, "How it works" and "Lost memory".
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import (
    Ack,
    HandOver,
    LedGroup,
    Sync,
    SyncItem,
    SyncRequest,
    portions,
)
from mdserver.cluster.part import MemberPart
from mdserver.cluster.placement import ranking
from mdserver.cluster.replies import Consequence, Unregistered
from mdserver.cluster.settings import delay
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    import random

    from mdserver.cluster.election import Election
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer

HAND_OVER_EVERY = NS_PER_S
FORGET_EVERY = NS_PER_S


@define(eq=False)
class Coordinators(MemberPart):
    """The coordinators of one member, once they are elected."""

    _storage: "StableStorage"
    _wal: "WalBuffer"
    _election: "Election"
    _rng: "random.Random"
    _next_hand_over: int = field(init=False, default=0)
    _next_forget: int = field(init=False, default=0)

    # From elected to active

    def establish(self, won: list[Coordinator]) -> None:
        """Send the adopted logs to all members; a cold start first gives them a new history id.

        With a cold start goes which incarnations promised it, so that a majority stores them before
        it acks: a seed that loses its record later is noticed by them.
        """
        cold = [coordinator for coordinator in won if coordinator.cold]
        known: dict[str, int] = {}
        if cold:
            for coordinator in cold:
                known |= coordinator.incarnations
            self._renew([coordinator.group for coordinator in cold])
            self._storage.note(known)
        logs = (
            self.groups[coordinator.group].transfer.synced(coordinator, self._common(coordinator))
            for coordinator in won
        )
        for items in portions(logs):
            self._outgoing.send(self._outgoing.linked, Sync(items, known))
        for coordinator in won:
            self.groups[coordinator.group].ack_here()

    def _common(self, coordinator: Coordinator) -> int:
        """Return the place from which on every seed that promised can take the log."""
        history = self.groups[coordinator.group].history
        if coordinator.cold or any(i.history != history for _, i in coordinator.promises.values()):
            return 0  # the log is under another history id, so that seed has nothing of it
        # What all of them have committed is the same everywhere, and need not be sent.
        least = min(item.committed for _, item in coordinator.promises.values())
        start = min(least, coordinator.log.committed)
        # The last of these goes along, so that each member can compare it with its own
        # (`GroupLog.agrees`) before it takes the log.
        return start - 1 if start > coordinator.log.base else start

    def _renew(self, groups: list[int]) -> None:
        """Put cold-started groups under the new history id; what the log holds stays."""
        if self._settings.single:
            for index in groups:
                self.groups[index].history = self._election.round_history
        else:
            self.groups.rename(self._election.round_history, groups)
        for index in groups:
            self._wal.checkpoint(self.groups[index])
        if self._storage.admit():
            self._storage.store()

    # Acks

    def ack(self, seed: str, ack: Ack) -> None:
        """Count what a seed holds of the logs of coordinators here."""
        for item in ack.items:
            self.groups[item.group].step(seed, item, ack)

    # Publications

    def take_held_back(self) -> None:
        """Number publications that were held back, until the disk is too far behind again."""
        held_back = self._wal.held_back
        while held_back and self._wal.unsynced_bytes <= self._settings.hold_bytes:
            contact, item = held_back.popleft()
            self.groups[item.group].append(contact, item)

    def drop_held_back(self, peer: str) -> None:
        """Drop the publications that are held back for a member whose link broke.

        To their contact they were lost with the link, so it forwards again those that are not in
        the log. A publication without a publisher's number cannot be recognised as a repeat, so it
        would be taken twice if both copies were taken.
        """
        held_back = self._wal.held_back
        kept = [held for held in held_back if held[0].partition("#")[0] != peer]
        if len(kept) < len(held_back):
            held_back.clear()
            held_back.extend(kept)

    def refuse_held_back(self, reason: str) -> None:
        """Refuse the publications that are held back: the disk takes nothing more."""
        while self._wal.held_back:
            contact, item = self._wal.held_back.popleft()
            self.groups[item.group].refuse(contact, item, reason)

    def withdraw(self, reason: str) -> None:
        """Take back what is not committed: the only seed's disk has nothing of it, and refuses."""
        self._storage.withdraw()
        for group in self.groups.coordinated:
            coordinator = group.coordinator
            assert coordinator is not None
            if coordinator.state is CoordinatorState.ACTIVE:
                coordinator.log.truncate(coordinator.log.committed)
                coordinator.deferred.clear()
            group.resolve(group.queue.refused(reason))
            group.ack_here()

    def forget_idle(self) -> None:
        """Have each group forget the publishers that were idle for long, every `FORGET_EVERY`."""
        now = self._outgoing.now
        if now < self._next_forget:
            return
        self._next_forget = now + FORGET_EVERY
        for coordinator in self._active():
            self.groups[coordinator.group].append()  # no publications: idle publishers alone

    # Members that lack something

    def sync_request(self, peer: str, request: SyncRequest) -> None:
        """Give a member what it lacks of groups, and take recovering seeds back with it."""
        items: list[SyncItem] = []
        returning: list[Coordinator] = []
        least = 0
        for item in request.items:
            group = self.groups[item.group]
            reply = group.step(peer, item, request)
            if isinstance(reply, SyncItem):
                items.append(reply)
            elif isinstance(reply, Unregistered):
                least = max(least, reply.least)
                if reply.readmit and group.coordinator is not None:
                    returning.append(group.coordinator)
            elif reply is Consequence.STAND:
                self._election.force([group.index])
            elif reply is Consequence.RENEW:
                self._election.renew(group.index)
        for portion in portions(items):
            self._outgoing.send((peer,), Sync(portion))
        if request.incarnation < least:
            # The seed does not know yet that this incarnation is over. `Hello.known` says so: it
            # becomes LOST, and takes a newer incarnation.
            self._storage.note({peer: least})
            self._outgoing.send((peer,), self._storage.hello())
        self._take_back(peer, request.incarnation, returning)

    def _take_back(self, seed: str, incarnation: int, found: list[Coordinator]) -> None:
        """Have groups elected anew for the loss of a seed, and for earlier ones (spec: `Readmit`).

        The quorum of the new epoch leaves these seeds out and notes their incarnations, so that no
        promise counts again that was made before the loss (spec: "promises carry notes"). Seeds
        that earlier elections named and that did not come back yet are named again, or their
        readmission would be lost with that epoch.
        """
        rounds: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for coordinator in found:
            readmit = {**coordinator.unregistered(), seed: incarnation}
            rounds.setdefault(tuple(readmit.items()), []).append(coordinator.group)
        for named, groups in rounds.items():
            self._election.force(groups, readmit=dict(named))

    # Where groups are coordinated

    def _active(self) -> Sequence[Coordinator]:
        """Return the coordinators on this member that are ACTIVE."""
        return [
            group.coordinator
            for group in self.groups
            if group.coordinator is not None and group.coordinator.state is CoordinatorState.ACTIVE
        ]

    def leads(self) -> list[LedGroup]:
        """Return the groups that this member coordinates, for its heartbeat."""
        return [
            LedGroup(one.group, one.epoch, one.log.length, one.log.committed, one.list_number)
            for one in self._active()
        ]

    def check_quorum(self) -> None:
        """Stop coordinating if no majority of seeds is in sight (check-quorum, as in raft).

        Nothing could be committed. The next heartbeat names no groups, so members on the majority's
        side elect without being refused, and clients of this member move there.
        """
        now, present = self._outgoing.now, self._members.seeds.names
        whole = self._members.quorum(now)
        for group in self.groups.coordinated:
            coordinator = group.coordinator
            assert coordinator is not None
            # One that an older list elected goes on with the majority of that one.
            by_present = coordinator.seeds == present
            if not (whole if by_present else self._members.quorum(now, coordinator.seeds)):
                self._outgoing.refuse(Guard.QUORUM_LOST)
                group.ballots.depose()

    def hurry(self) -> None:
        """Look at the next tick whether groups are to be handed over."""
        self._next_hand_over = 0

    def hand_over(self) -> None:
        """Ask members that should coordinate groups of this one to stand for them.

        The message moves nothing by itself: this member goes on until it learns of the new epoch,
        and the other one is elected like any candidate (spec: "a hand-over elects").
        """
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

    def on_hand_over(self, peer: str, hand_over: HandOver) -> None:
        """Stand for groups whose coordinator asks this member to.

        The pre-vote is skipped: seeds refuse it while they see the coordinator, which asked for
        this. A member that does not follow the group, or a seed that does not vote in it, is no
        place for it.
        """
        not_voting = self.groups.not_voting
        self._election.force(
            index
            for index in hand_over.groups
            if self.groups[index].leadership.coordinator == peer
            and self.groups[index].leadership.active
            and index not in not_voting
        )
