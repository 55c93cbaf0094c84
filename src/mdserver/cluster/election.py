"""When a member stands for a group, and how a candidacy goes (docs/cluster.md, "An election").

Nothing here can lose a message: whether a candidate becomes the coordinator is decided by promises
alone (`mdserver.cluster.acceptor`), and clocks and random delays only say when to try. This module
is about liveness: a member tries soon, mostly only one does, and none disturbs a group that works:

- If a group has no coordinator, the member that should coordinate it (`placement`) stands first;
  the others wait, each a suspicion time longer than the one before it in the order.
- A candidate first asks whether the seeds would promise (the *pre-vote*, as in raft). A member
  that is cut off cannot raise epochs in vain, and its return deposes nobody.
- All groups of a round travel in one message, so the failure of a member that coordinated a
  hundred groups costs one round and one write of each vote record.
- A candidacy has a deadline. One that ran out while seeds wrote their promises doubles the time of
  the next: on slow disks short deadlines would never elect anybody.

Two kinds of candidacy skip the pre-vote, because they are meant to depose: a hand-over, which the
present coordinator asked for, and an epoch that is elected for a seed that lost its vote record.

A *cold start* is for groups in which too few seeds still vote. Once every seed is in contact, there
is no further copy to wait for: all of them promise, the best log that any of them holds is adopted,
and it gets a new history id, since acknowledged messages may be missing from it. Clients get a
reset. In the specification `Promise`, `Elect`, `ColdPromise`, `ColdElect`; docs/cluster.md, "Lost
memory".
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import define, field

from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.groups import new_history
from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import (
    Nack,
    Prepare,
    PrepareItem,
    PreVote,
    PreVoteGranted,
    PreVoteItem,
    Promise,
    PromiseItem,
)
from mdserver.cluster.part import MemberPart
from mdserver.cluster.placement import ranking
from mdserver.cluster.replies import Consequence
from mdserver.cluster.votes import RESTARTS_MAX

if TYPE_CHECKING:
    import random

    from mdserver.cluster.group import Group
    from mdserver.cluster.stable_storage import StableStorage

COLD_GRACE = 4
"""Suspicion times of full attendance before a cold start: a surviving coordinator speaks first."""

UNKNOWN_EPOCHS = 2**20
"""More than a seed may have promised beyond what the others know of."""

LATE_MAX = 4
"""The number of timeouts in a row that each double the time of the next candidacy; no more do."""


@define(eq=False)
class Election(MemberPart):
    """Decides when this member stands for groups, and runs its candidacies.

    `round_history` is the history id of the cold start under way; `first_history` that of the
    first one, if it is given. `_attended_since`: since when every seed is in contact (ns).
    `_awaiting_since`: since when seeds that are out of sight are waited for (ns).
    """

    _storage: "StableStorage"
    _rng: "random.Random"
    _attended_since: int | None = field(init=False, default=None)
    _awaiting_since: int | None = field(init=False, default=None)
    first_history: str = field(init=False, default="")
    round_history: str = field(init=False, default="")

    # When

    def look(self) -> None:
        """Stand for the groups without a coordinator of which it is this member's turn."""
        now, settings, members = self._outgoing.now, self._settings, self._members
        if settings.learner:
            return  # without its server, which alone coordinates, a worker has nothing to serve
        self._give_up()
        leaderless: list[Group] = []
        for group in self.groups:
            if group.coordinator is not None or group.led:
                group.ballots.leaderless_since = 0
                # Only a leadership that committed something ends the row of candidacies that ran
                # out of time: until then the next one needs the longer patience as well.
                if group.leadership.active:
                    group.ballots.timed_out = 0
            else:
                leaderless.append(group)
        if not leaderless:
            self._attended_since = None
            return
        not_voting = set(self.groups.not_voting)
        weights = members.weights(now)
        if not weights:
            # No member is ready yet: the seeds start the cluster, with or without a log.
            weights = {seed: 1 for seed in members.seeds.names if members.alive(seed, now)}
        mine: list[int] = []
        for group in leaderless:
            group.ballots.leaderless_since = group.ballots.leaderless_since or now
            # A seed's candidacy needs its own promise, which it cannot give while it does not vote.
            if group.index in not_voting or group.ballots.retry_at > now:
                continue
            # Those before this member in the order have their turn first, at each new try too.
            rank = self._rank(group.index, weights)
            turn = max(
                group.ballots.leaderless_since + rank * settings.suspect,
                group.ballots.no_vote_until + 2 * rank * settings.heartbeat,
            )
            # Without a majority that votes a candidacy cannot succeed. A group without a history id
            # has no log yet: it begins with a cold start.
            if turn <= now and group.votable and group.history:
                mine.append(group.index)
        if mine and not self._awaits_copies():
            self.pre_vote(mine)
        self._look_for_cold_start([group.index for group in leaderless])

    def _awaits_copies(self) -> bool:
        """Return whether to wait for seeds out of sight, since logs here may be older copies.

        A log that was read from a disk may be one that was put back, which a seed cannot see by
        itself. A seed that did not start again, or whose disk has the newer copy, holds what the
        others lack. The wait is bounded, or a seed that never comes back would end the service
        (docs/cluster.md, "Older copies").
        """
        now, settings = self._outgoing.now, self._settings
        peers = [self._members.peers[seed] for seed in self._members.seeds.others]
        unverified = self.groups.unverified or any(peer.up and peer.unverified for peer in peers)
        if not unverified or all(peer.up and peer.not_voting is not None for peer in peers):
            self._awaiting_since = None
            return False
        if self._awaiting_since is None:
            self._awaiting_since = now
        return self._awaiting_since + COLD_GRACE * settings.suspect > now

    def _rank(self, group: int, weights: dict[str, int]) -> int:
        """Return how many members come before this one in the order of placement."""
        order, me = ranking(group, weights), self._settings.me
        return order.index(me) if me in order else len(order)

    def _give_up(self) -> None:
        """End candidacies that took too long, and repeat pre-votes.

        A pre-vote may have been refused by a seed that saw the old coordinator a moment longer. To
        repeat it is free of consequences, as it changes nothing at the seeds.
        """
        again: list[PreVoteItem] = []
        for group in self.groups.coordinated:
            coordinator = group.coordinator
            assert coordinator is not None
            if coordinator.state is CoordinatorState.ACTIVE:
                continue
            if coordinator.deadline <= self._outgoing.now:
                if coordinator.state is not CoordinatorState.PRE_VOTING:  # which waits for no disk
                    group.ballots.timed_out = min(group.ballots.timed_out + 1, LATE_MAX)
                group.ballots.depose()
            elif coordinator.state is CoordinatorState.PRE_VOTING:
                again.append(group.ballots.ballot(PreVoteItem, coordinator))
        if again:
            self._outgoing.send(
                self._members.seeds.names, PreVote(again, self._members.seeds.number)
            )

    # The candidate

    def pre_vote(self, groups: list[int]) -> None:
        """Ask the seeds whether they would promise these groups; nothing changes at the seeds."""
        items: list[PreVoteItem] = []
        for index in groups:
            ballots = self.groups[index].ballots
            items.append(ballots.ballot(PreVoteItem, ballots.stand()))
        self._outgoing.send(self._members.seeds.names, PreVote(items, self._members.seeds.number))

    def force(
        self,
        groups: Iterable[int],
        *,
        cold: bool = False,
        ordered: bool = False,
        needed: int | None = None,
        readmit: dict[str, int] | None = None,
    ) -> None:
        """Ask for promises without a pre-vote: this candidacy is meant to depose.

        `needed` is how many seeds have to promise, by default a majority; `ordered`: an operator
        ordered the cold start; `readmit`: seeds that lost their record -> the incarnations that
        this election takes back.
        """
        items: list[PrepareItem] = []
        for index in groups:
            ballots = self.groups[index].ballots
            coordinator = ballots.stand()
            coordinator.cold = cold
            coordinator.needed = needed or coordinator.majority
            coordinator.readmit = readmit or {}
            coordinator.prepare_at_once()
            items.append(ballots.ballot(PrepareItem, coordinator))
        if items:
            number = self._members.seeds.number
            prepare = Prepare(items, readmit or {}, cold, ordered, number)
            self._outgoing.send(self._members.seeds.names, prepare)

    def pre_vote_granted(self, seed: str, granted: PreVoteGranted) -> None:
        """Ask for promises in the groups in which a majority of seeds would give them."""
        items: list[PrepareItem] = []
        for item in granted.items:
            reply = self.groups[item.group].step(seed, item)
            if isinstance(reply, PrepareItem):
                items.append(reply)
        if items:
            seeds = self._members.seeds
            prepare = Prepare(items, {}, False, list_number=seeds.number)
            self._outgoing.send(seeds.names, prepare)

    def promise(self, seed: str, promise: Promise) -> list[Coordinator]:
        """Count a seed's promises; return the coordinators that thereby adopted the best log.

        That is the action `Elect` of the specification, `ColdElect` in a cold start.
        """
        won: list[Coordinator] = []
        for item in promise.items:
            group = self.groups[item.group]
            reply = group.step(seed, item, promise)
            if isinstance(reply, PromiseItem):
                if reply.history and reply.history != group.history:
                    self.groups.reset(reply.history, [group.index])
                won.append(group.ballots.adopt(reply))
            elif reply is Consequence.RENEW:
                self.renew(group.index)
        return won

    def nack(self, seed: str, nack: Nack) -> None:
        """Give up candidacies and coordinators for whose groups a newer epoch is known."""
        for item in nack.items:
            self.groups[item.group].step(seed, item)

    # Cold start

    def renew(self, index: int) -> None:
        """Put the log that is held here under a new history id: it lacks what was acknowledged.

        Positions of different histories are never compared: clients get a reset, so the loss does
        not pass unnoticed (spec: "a cold start is a new history"). A majority has to promise, as at
        any election.
        """
        group = self.groups[index]
        lost = any(peer.up and peer.record_lost for peer in self._members.peers.values())
        if lost or group.ballots.retry_at > self._outgoing.now:
            # The promise of a seed that lost its record says too little. What led here comes again,
            # and with it this call.
            return
        group.ballots.newest_epoch = max(
            group.ballots.newest_epoch, self._highest_promise(ordered=False)
        )
        self.round_history = new_history(self._rng, group.ballots.newest_epoch + 1)
        self.force([index], cold=True, needed=self._members.seeds.majority)

    def _look_for_cold_start(self, leaderless: list[int]) -> None:
        """Start groups anew once every seed is in contact and still too few of them vote.

        With a seed out of contact its copy may be the best one: then waiting is right, or an
        operator decides (spec: "every seed attends").
        """
        settings, now = self._settings, self._outgoing.now
        if not self._members.seeds.include_me or not self._full_attendance():
            self._outgoing.refuse(Guard.COLD_INCOMPLETE)
            self._attended_since = None
            return
        if self._attended_since is None:
            self._attended_since = now
        fresh = not self._storage.votes.admitted and not any(
            peer.admitted for peer in self._members.peers.values()
        )
        grace = 0 if fresh else COLD_GRACE * settings.suspect
        # In a cluster that ran before, a coordinator that survived may still be taking seeds back.
        if self._attended_since + grace > now:
            return
        if self._members.seeds.names[0] != settings.me:
            return  # one candidate is enough: each needs the promises of all seeds
        self.cold_start(leaderless)

    def cold_start(self, groups: Iterable[int], needed: int | None = None) -> None:
        """Start groups anew that have no majority that votes; every seed has to promise.

        Only an operator may set `needed` lower, to the seeds that are left. Groups are left alone
        for now if this member is a candidate for them, promised one lately, or can elect in the
        usual way. A coordinator of this member without a majority is deposed by the new candidacy.
        """
        now = self._outgoing.now
        silent = [
            index
            for index in groups
            if not self._stands(index)
            and self.groups[index].ballots.retry_at <= now
            and self.groups[index].ballots.no_vote_until <= now
            and not self.groups[index].votable
        ]
        if silent:
            ordered = needed is not None
            highest = self._highest_promise(ordered)
            for index in silent:
                group = self.groups[index]
                group.ballots.newest_epoch = max(group.ballots.newest_epoch, highest)
            # No seed promised any epoch above: the id is newer than those of all earlier rounds.
            self.round_history = self.first_history or new_history(self._rng, highest + 1)
            needed = needed or len(self._members.seeds.names)
            self.force(silent, cold=True, ordered=ordered, needed=needed)

    def _stands(self, index: int) -> bool:
        """Return whether this member is a candidate for a group."""
        coordinator = self.groups[index].coordinator
        return coordinator is not None and coordinator.state is not CoordinatorState.ACTIVE

    def _highest_promise(self, ordered: bool) -> int:
        """Return an epoch above which no seed promised any.

        A seed that lost its record cannot say what it promised. The result is then a guess, far
        above what the others know of.
        """
        storage, peers = self._storage, self._members.peers
        highest = max(
            [vote.epoch for vote in storage.votes.promised]
            + [peer.promised for peer in peers.values()]
        )
        admitted = [
            storage.admitted if seed == self._settings.me else peers[seed].admitted
            for seed in self._members.seeds.names
        ]
        whole = all(admitted) or not (any(admitted) or ordered)
        if whole:
            return highest
        # A record that is an older copy, or a new one, forgot the leaps of earlier losses as well.
        # Each loss that others know of raised the incarnation, so their number tells those leaps.
        votes = storage.votes
        here = [votes.incarnation, *votes.known.values()]
        incarnations = here + [max(peer.incarnation, peer.newest) for peer in peers.values()]
        losses = max(incarnation // RESTARTS_MAX for incarnation in incarnations)
        return highest + UNKNOWN_EPOCHS * (1 + losses)

    def _full_attendance(self) -> bool:
        """Return whether every seed is in sight, has said how it stands, and has its record."""
        members = self._members
        if (
            not members.seeds.include_me
            or self.groups.record_lost
            or not self.groups.standing_known
        ):
            return False
        return all(
            members.alive(seed, self._outgoing.now)
            and members.peers[seed].standing_known
            and members.peers[seed].not_voting is not None
            and not members.peers[seed].record_lost
            for seed in members.seeds.others
        )
