"""When a member stands for a group, and how a candidacy goes (docs/cluster.md, "Elections").

Clocks and random delays decide only when to try; what may happen then is decided by promises. One
message carries all groups of a round, so that the failure of a member costs one round.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mdserver.cluster.coordinator import Coordinator, Phase
from mdserver.cluster.learner import MISSING, lacks, runs_from
from mdserver.cluster.messages import (
    Ballot,
    Canvass,
    Nack,
    Prepare,
    Promise,
    Promised,
    Refusal,
    State,
    Support,
    portions,
)  # fmt: skip
from mdserver.cluster.placement import ranking
from mdserver.cluster.seed import STEP_TRACES

if TYPE_CHECKING:
    from mdserver.cluster.ground import Ground

COLD_GRACE = 4
"""Suspicion times of full attendance before a cold start: a surviving coordinator speaks first."""

UNKNOWN_EPOCHS = 2**20
"""More than a seed may have promised beyond what the others know of."""

LATE_MAX = 4
"""How often a candidacy that ran out of time doubles the time of the next: slow disks need that."""


class Election:
    """Candidacies of this member, and its answers as a seed to those of others.

    `retry`: until when a group is not tried again (ns). `newest`: the highest epoch heard of.
    `late`: how many candidacies in a row ran out of time, since a coordinator was last in sight.
    `_doubting`: since when (ns) seeds that are out of sight are waited for.
    """

    __slots__ = ("_doubting", "attended", "ground", "late", "newest", "retry", "round_history")

    def __init__(self, ground: "Ground") -> None:
        self.ground = ground
        groups = len(ground.logs)
        self.retry = [0] * groups
        self.late = [0] * groups
        self.newest = [vote.epoch for vote in ground.votes.promised] or [0] * groups
        self.attended: int | None = None
        self._doubting: int | None = None
        self.round_history = ""

    # When

    def look(self, ready: bool) -> None:
        """Stand for the groups without a coordinator that are this member's to take."""
        ground = self.ground
        self._give_up()
        orphans: list[int] = []
        for group, view in enumerate(ground.views):
            if group in ground.coordinators or ground.led(group):
                view.orphaned = 0
                if view.active:
                    self.late[group] = 0
            else:
                orphans.append(group)
        if not orphans:
            self.attended = None
            return
        away = set(ground.seed.away) if ground.seed is not None else set()
        weights = ground.members.weights(ground.now, ready, ground.weight)
        if not weights:
            # Nobody is ready yet: the seeds start the cluster, whoever has a log of the group.
            weights = {seed: 1 for seed in ground.settings.seeds
                       if ground.members.alive(seed, ground.now)}  # fmt: skip
        mine: list[int] = []
        for group in orphans:
            view = ground.views[group]
            view.orphaned = view.orphaned or ground.now
            if group in away or self.retry[group] > ground.now:
                continue
            # Those before this member in the order have their turn first, at each new try too.
            rank = self._rank(group, weights)
            turn = max(view.orphaned + rank * ground.settings.suspect,
                       view.quiet + 2 * rank * ground.settings.heartbeat)  # fmt: skip
            if turn <= ground.now and self.votable(group) and view.history:
                mine.append(group)
        if mine and not self._doubts():
            self.canvass(mine)
        self._cold_start(orphans)

    def _doubts(self) -> bool:
        """Whether to wait for seeds out of sight: logs as disks had them may be older copies.

        A seed that did not start again, or has the newer copy, holds what the others lack.
        """
        ground, members = self.ground, self.ground.members
        peers = [members.peers[seed] for seed in ground.settings.seeds if seed != ground.me]
        own = ground.seed is not None and any(ground.seed.doubted)
        doubted = own or any(peer.up and peer.doubted for peer in peers)
        if not doubted or all(peer.up and peer.away is not None for peer in peers):
            self._doubting = None
            return False
        if self._doubting is None:
            self._doubting = ground.now
        return self._doubting + COLD_GRACE * ground.settings.suspect > ground.now

    def _rank(self, group: int, weights: dict[str, int]) -> int:
        order = ranking(group, weights)
        return order.index(self.ground.me) if self.ground.me in order else len(order)

    def votable(self, group: int) -> bool:
        """Whether a majority of seeds is in sight and votes in a group."""
        return 2 * len(self.voting(group)) > len(self.ground.settings.seeds)

    def voting(self, group: int) -> list[str]:
        """The seeds in sight that vote in a group."""
        ground = self.ground
        away = ground.seed.away if ground.seed is not None else []
        return ground.members.voting(group, away, ground.now)

    def delay(self, turns: float) -> int:
        """A random time of about `turns` heartbeats (ns)."""
        return int(self.ground.settings.heartbeat * (turns + self.ground.rng.random()))

    def _give_up(self) -> None:
        """End candidacies that took too long; ask again those who would not support one yet."""
        ground = self.ground
        again: list[Ballot] = []
        for group, coordinator in list(ground.coordinators.items()):
            if coordinator.phase is Phase.ACTIVE:
                continue
            if coordinator.deadline <= ground.now:
                if coordinator.phase is not Phase.CANVASSING:  # which waits for no disk
                    self.late[group] = min(self.late[group] + 1, LATE_MAX)
                self.depose(group)
            elif coordinator.phase is Phase.CANVASSING:
                again.append(self._ballot(coordinator))
        if again:
            ground.say(ground.settings.seeds, Canvass(again))

    def depose(self, group: int, epoch: int = 0) -> None:
        """Stop being a group's candidate or coordinator, and wait a little before a new try."""
        ground = self.ground
        coordinator = ground.coordinators.pop(group, None)
        self.newest[group] = max(self.newest[group], epoch)
        if coordinator is not None:
            coordinator.stop()
            ground.trace("Stop", group, coordinator.epoch)
            self.retry[group] = ground.now + self.delay(0)

    # The candidate

    def _stand(self, group: int) -> Coordinator:
        ground = self.ground
        self.depose(group)
        epoch = max(self.newest[group], ground.logs[group].epoch, ground.views[group].epoch,
                    ground.votes.promised[group].epoch if ground.seed else 0) + 1  # fmt: skip
        self.newest[group] = epoch
        patience = (ground.settings.suspect + self.delay(3)) << self.late[group]
        deadline = ground.now + patience
        coordinator = Coordinator(group, epoch, ground.logs[group], ground.settings.seeds, deadline)
        coordinator.own = ground.me if ground.seed is not None else ""
        ground.coordinators[group] = coordinator
        return coordinator

    def canvass(self, groups: list[int]) -> None:
        """Ask the seeds whether they would promise these groups."""
        ballots = [self._ballot(self._stand(group)) for group in groups]
        self.ground.say(self.ground.settings.seeds, Canvass(ballots))

    def _ballot(self, coordinator: Coordinator) -> Ballot:
        group, log = coordinator.group, coordinator.log
        return Ballot(group, coordinator.epoch, log.committed, self.ground.views[group].history)

    def force(
        self,
        groups: Iterable[int],
        *,
        cold: bool = False,
        ordered: bool = False,
        needed: int | None = None,
        readmit: dict[str, int] | None = None,
    ) -> None:
        """Ask for promises without a canvass: this candidacy is meant to depose."""
        ballots: list[Ballot] = []
        for group in groups:
            coordinator = self._stand(group)
            coordinator.cold = cold
            coordinator.needed = needed or coordinator.majority
            coordinator.readmit = readmit or {}
            coordinator.prepare_at_once()
            ballots.append(self._ballot(coordinator))
        if ballots:
            prepare = Prepare(ballots, readmit or {}, cold, ordered)
            self.ground.say(self.ground.settings.seeds, prepare)

    def support(self, seed: str, support: Support) -> None:
        """A seed would promise."""
        ballots: list[Ballot] = []
        for ballot in support.ballots:
            coordinator = self.ground.coordinators.get(ballot.group)
            if coordinator is None or coordinator.epoch != ballot.epoch:
                continue
            if coordinator.supported(seed):
                ballots.append(self._ballot(coordinator))
        if ballots:
            self.ground.say(self.ground.settings.seeds, Prepare(ballots, {}, False))

    def promise(self, seed: str, promise: Promise) -> list[Coordinator]:
        """A seed promised; returns the coordinators that thereby adopted the best log."""
        won: list[Coordinator] = []
        for item in promise.items:
            coordinator = self.ground.coordinators.get(item.group)
            if coordinator is None or coordinator.epoch != item.epoch:
                continue
            if item.doubted:
                coordinator.awaited = self.voting(item.group)
            best = coordinator.promised(seed, promise.incarnation, promise.known, item)
            if best is None:
                continue
            if self._contradicts(coordinator, best):
                self.depose(item.group)
                self.retry[item.group] = 0
                self.renew(item.group)
                continue
            self._adopt(coordinator, best)
            won.append(coordinator)
        return won

    def _contradicts(self, coordinator: Coordinator, best: Promised) -> bool:
        """Whether the best log lacks what is committed here: some seed's disk is an older copy."""
        ground, group = self.ground, coordinator.group
        if coordinator.cold or best.history != ground.views[group].history:
            return False
        if not lacks(best, coordinator.log):
            return False
        ground.log(MISSING, group=group, member=ground.me,
                   committed=coordinator.log.committed, base=best.length)  # fmt: skip
        return True

    def outbid(self, group: int, promised: int) -> None:
        """Stand again with an epoch above what a seed promised to somebody."""
        self.newest[group] = max(self.newest[group], promised)
        self.force([group])

    def _adopt(self, coordinator: Coordinator, best: Promised) -> None:
        ground, group, log = self.ground, coordinator.group, coordinator.log
        view = ground.views[group]
        if best.history and best.history != view.history:
            ground.renew(best.history, [group])
        if best.state is not None and best.start > log.committed:
            ground.install(group, best.start, best.state)
        log.truncate(log.committed)
        skipped = log.committed - best.start
        log.append(best.entries[skipped:], runs_from(best.runs, log.committed))
        coordinator.adopted()
        ground.trace("Elect", group, coordinator.epoch, promises=",".join(coordinator.incarnations),
                     cold=coordinator.cold)  # fmt: skip
        view.follow(ground.me, coordinator.epoch)
        if ground.seed is not None:
            step = ground.seed.takes(group, coordinator.epoch, 0, coordinator.cold)
            assert step is not None, "a candidate's own seed promised it"
            ground.seed.take(group, step, coordinator.epoch, ground.me)
            ground.trace(STEP_TRACES[step], group, coordinator.epoch)
            ground.held(group, best.start, best.entries, best.runs, best.state)

    def nack(self, nack: Nack) -> None:
        """Somebody knows a newer epoch."""
        for item in nack.items:
            self.newest[item.group] = max(self.newest[item.group], item.promised)
            coordinator = self.ground.coordinators.get(item.group)
            if coordinator is None or coordinator.epoch != item.epoch:
                continue
            if item.promised >= item.epoch and item.candidate != self.ground.me:
                self.depose(item.group, item.promised)

    # The seed

    def canvassed(self, candidate: str, canvass: Canvass) -> None:
        """Would this seed promise? Not while it sees a coordinator, or expects one soon."""
        ground = self.ground
        if ground.seed is None:
            return
        yes = [
            ballot for ballot in canvass.ballots
            if not ground.seed.refuses(ballot.group, ballot.epoch, cold=False)
            and (candidate == ground.me or not ground.led(ballot.group))
            and ground.views[ballot.group].quiet <= ground.now
        ]  # fmt: skip
        newer = [
            Refusal(ballot.group, ballot.epoch, vote.epoch, vote.candidate)
            for ballot in canvass.ballots
            if (vote := ground.votes.promised[ballot.group]).epoch >= ballot.epoch
        ]
        if newer:
            ground.say((candidate,), Nack(newer))
        if yes:
            ground.say((candidate,), Support(yes))

    def prepare(self, candidate: str, prepare: Prepare) -> None:
        """Promise what may be promised; refuse the rest by name of the newer epoch."""
        ground = self.ground
        if ground.seed is None or ground.me in prepare.readmit:
            return
        if prepare.cold and not prepare.ordered and not ground.sure:
            return
        refused: list[Refusal] = []
        promised: list[Ballot] = []
        for ballot in prepare.ballots:
            if ground.seed.refuses(ballot.group, ballot.epoch, prepare.cold):
                vote = ground.votes.promised[ballot.group]
                refused.append(Refusal(ballot.group, ballot.epoch, vote.epoch, vote.candidate))
                continue
            if candidate != ground.me:
                self.depose(ballot.group, ballot.epoch)
            ground.seed.promise(ballot.group, ballot.epoch, candidate, prepare.cold)
            ground.views[ballot.group].quiet = (
                ground.now + ground.settings.suspect + ground.disk_time
            )
            ground.trace("Promise", ballot.group, ballot.epoch, candidate=candidate,
                         cold=prepare.cold)  # fmt: skip
            promised.append(ballot)
        if refused:
            ground.say((candidate,), Nack(refused))
        if not promised:
            return
        if prepare.cold and ground.sure and not (ground.seed.lost or ground.seed.returning):
            ground.votes.admitted = True
        if not ground.note(prepare.readmit):
            ground.store()
        for items in portions(self._promised(ballot) for ballot in promised):
            ground.say_stored(
                candidate, Promise(ground.votes.incarnation, dict(ground.votes.known), items)
            )

    def _promised(self, ballot: Ballot) -> Promised:
        ground, group = self.ground, ballot.group
        log, history = ground.logs[group], ground.views[group].history
        held = ballot.committed if ballot.history == history else 0
        start, state = min(held, log.length), None
        if start < log.base:
            start = log.committed
            state = State(log.tables(), ground.export_cache(group))
        return Promised(
            group, ballot.epoch, log.epoch, log.length, log.committed, history, start,
            log.since(start), log.runs_since(start), state,
            ground.seed is not None and ground.seed.doubted[group],
        )  # fmt: skip

    # Cold start

    def renew(self, group: int) -> None:
        """Put the log that is held here under a new history id: it lacks what was acknowledged.

        A majority has to promise, as at any election; clients are told of a reset.
        """
        ground = self.ground
        lost = any(peer.up and peer.lost for peer in ground.members.peers.values())
        if lost or self.retry[group] > ground.now:
            return  # asked for again; the promise of a seed that lost its record says too little
        self.newest[group] = max(self.newest[group], self._highest_promise(ordered=False))
        self.round_history = ground.new_history(self.newest[group] + 1)
        self.force([group], cold=True, needed=ground.settings.majority)

    def _cold_start(self, orphans: list[int]) -> None:
        """With every seed in contact and no majority left that votes, waiting brings nothing."""
        ground = self.ground
        if not ground.seed or not self._full_attendance():
            self.attended = None
            return
        if self.attended is None:
            self.attended = ground.now
        fresh = not ground.votes.admitted and not any(
            peer.admitted for peer in ground.members.peers.values()
        )
        grace = 0 if fresh else COLD_GRACE * ground.settings.suspect
        if self.attended + grace > ground.now:
            return
        if ground.settings.seeds[0] != ground.me:
            return
        self.cold_start(orphans)

    def cold_start(self, orphans: Iterable[int], needed: int | None = None) -> None:
        """Start groups anew that have no majority that votes; every seed has to promise.

        Only an operator may set `needed` lower, to the seeds that are left. Groups that somebody is
        a candidate for are left alone for now; a coordinator without a majority ends with it.
        """
        ground = self.ground
        groups = [
            group for group in orphans
            if not self._stands(group) and self.retry[group] <= ground.now
            and ground.views[group].quiet <= ground.now and not self.votable(group)
        ]  # fmt: skip
        if groups:
            ordered = needed is not None
            highest = self._highest_promise(ordered)
            for group in groups:
                self.newest[group] = max(self.newest[group], highest)
            # No seed promised any epoch above: the id is newer than those of all earlier rounds.
            self.round_history = ground.first_history or ground.new_history(highest + 1)
            needed = needed or len(ground.settings.seeds)
            self.force(groups, cold=True, ordered=ordered, needed=needed)

    def _stands(self, group: int) -> bool:
        """Whether this member is a candidate for a group."""
        coordinator = self.ground.coordinators.get(group)
        return coordinator is not None and coordinator.phase is not Phase.ACTIVE

    def _highest_promise(self, ordered: bool) -> int:
        """An epoch above which no seed promised any: a guess where one cannot say so any more."""
        ground, peers = self.ground, self.ground.members.peers
        highest = max([vote.epoch for vote in ground.votes.promised]
                      + [peer.promised for peer in peers.values()])  # fmt: skip
        admitted = [
            ground.admitted if seed == ground.me else peers[seed].admitted
            for seed in ground.settings.seeds
        ]  # fmt: skip
        whole = all(admitted) or not (any(admitted) or ordered)
        return highest if whole else highest + UNKNOWN_EPOCHS

    def _full_attendance(self) -> bool:
        ground = self.ground
        members = ground.members
        if ground.seed is None or ground.seed.lost or not ground.sure:
            return False
        others = [seed for seed in ground.settings.seeds if seed != ground.me]
        return all(
            members.alive(seed, ground.now)
            and members.peers[seed].sure
            and members.peers[seed].away is not None
            and not members.peers[seed].lost
            for seed in others
        )
