"""The elections of one group, as one member takes part in them: as a seed, and as a candidate.

    candidate                                  seed
    PreVoteItem        would you promise? -->  grants it, if it sees no coordinator
    PrepareItem          please promise   -->  promises the epoch, and names its log
    adopts the best log  <-- PromiseItem       and takes nothing of a lower epoch from then on

Whether a seed may promise is decided by its `Acceptor`, whether there are enough promises by the
`Coordinator` that the candidate is. This class joins the two with the rest of the group: a
candidate stops before the seed beside it promises its log to another one, and a candidate that is
elected has the best log put in place of the group's. When a member stands is decided for all groups
together (`mdserver.cluster.election`). docs/cluster.md, "An election"; in the specification
`Promise`, `Elect`, `ColdPromise` and `ColdElect`.
"""

from typing import TYPE_CHECKING, Any, TypeVar

from mdserver.cluster.acceptor import STEP_TRACES
from mdserver.cluster.coordinator import Coordinator
from mdserver.cluster.guards import Guard
from mdserver.cluster.log import MISSING
from mdserver.cluster.messages import (
    NackItem,
    Prepare,
    PrepareItem,
    PreVoteGrantedItem,
    PreVoteItem,
    Promise,
    PromiseItem,
)
from mdserver.cluster.replies import Consequence, Reply
from mdserver.cluster.settings import delay

if TYPE_CHECKING:
    import random

    from mdserver.cluster.group import Group
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.seeds import Seeds
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer

BallotItem = PreVoteItem | PreVoteGrantedItem | PrepareItem | PromiseItem | NackItem
B = TypeVar("B", PreVoteItem, PrepareItem)


class Ballots:
    """What a member knows and does about the elections of one group. Times are in nanoseconds.

    `no_vote_until`: until when this seed supports no candidate, since it expects to hear of a
    coordinator; `leaderless_since`: since when nobody coordinates the group, 0 while somebody does;
    `retry_at`: when this member may stand again; `newest_epoch`: the highest that it heard of;
    `timed_out`: how many of its candidacies in a row ran out of time.
    """

    __slots__ = (
        "_group",
        "_outgoing",
        "_rng",
        "_seeds",
        "_settings",
        "_storage",
        "_wal",
        "leaderless_since",
        "newest_epoch",
        "no_vote_until",
        "retry_at",
        "timed_out",
    )

    def __init__(
        self,
        group: "Group",
        settings: "ClusterSettings",
        seeds: "Seeds",
        outgoing: "Outgoing",
        storage: "StableStorage",
        wal: "WalBuffer",
        rng: "random.Random",
    ) -> None:
        votes = storage.votes
        self._group = group
        self._settings = settings
        self._seeds = seeds
        self._outgoing = outgoing
        self._storage = storage
        self._wal = wal
        self._rng = rng
        self.no_vote_until = 0
        self.leaderless_since = 0
        self.retry_at = 0
        self.newest_epoch = votes.promised[group.index].epoch if votes.promised else 0
        self.timed_out = 0

    def step(self, sender: str, item: BallotItem, message: Any) -> Reply:
        """Take an item about an election; return the answer to it."""
        match item:
            case PreVoteItem():
                return self.pre_vote(sender, item)
            case PreVoteGrantedItem():
                return self.granted(sender, item)
            case PrepareItem():
                return self.prepare(sender, item, message)
            case PromiseItem():
                return self.promise(sender, item, message)
            case NackItem():
                self.refused(item)
                return None

    # The seed

    def pre_vote(self, candidate: str, item: PreVoteItem) -> PreVoteGrantedItem | NackItem | None:
        """Say whether this seed would promise a candidacy, without promising anything.

        It grants none while it sees a coordinator, or expects to hear of one soon: a member with a
        bad link must not depose a coordinator that works for the others. A candidacy of this member
        itself began because it sees no coordinator, so that is not asked again.
        """
        group, acceptor = self._group, self._group.acceptor
        if acceptor is None:
            return None
        if acceptor.refuses(item.epoch, cold=False):
            # A candidate behind the promise learns of the newer epoch, and stands above it next.
            vote = acceptor.promised
            if vote.epoch < item.epoch:
                return None
            return NackItem(group.index, item.epoch, vote.epoch, vote.candidate)
        if candidate != self._settings.me and group.led:
            self._outgoing.refuse(Guard.PRE_VOTE_LED)
            return None
        if self.no_vote_until > self._outgoing.now:
            self._outgoing.refuse(Guard.PRE_VOTE_EARLY)
            return None
        return PreVoteGrantedItem(item.group, item.epoch, item.committed, item.history)

    def prepare(
        self, candidate: str, item: PrepareItem, message: Prepare
    ) -> PromiseItem | NackItem:
        """Promise an epoch, with the part of the log that the candidate may lack; or refuse it.

        The caller stores the vote record before the promise leaves.
        """
        group, acceptor, now = self._group, self._group.acceptor, self._outgoing.now
        assert acceptor is not None
        if acceptor.refuses(item.epoch, cold=message.cold):
            vote = acceptor.promised
            below = item.epoch <= vote.epoch
            self._outgoing.refuse(Guard.PREPARE_PROMISED if below else Guard.PREPARE_NOT_VOTING)
            return NackItem(group.index, item.epoch, vote.epoch, vote.candidate)
        if candidate != self._settings.me:
            # A candidate or coordinator here shares its log with the seed: it stops before the seed
            # promises that log to another one.
            self.depose(item.epoch)
        acceptor.promise(item.epoch, candidate, cold=message.cold)
        # The candidate can go on only once this promise and those of a majority are on their disks,
        # so other candidates wait for a suspicion time and a write longer.
        self.no_vote_until = now + self._settings.suspect + self._storage.write_time
        if group.tracing:
            readmit = ",".join(f"{seed}={start}" for seed, start in message.readmit.items())
            cold = message.cold
            group.trace("Promise", item.epoch, candidate=candidate, cold=cold, readmit=readmit)
        return self._promised(item)

    def _promised(self, item: PrepareItem) -> PromiseItem:
        """Return a promise with the part of the log that the candidate may lack.

        The best log holds all that the candidate has committed (I1), so only what comes after that
        is sent.
        """
        group, log = self._group, self._group.log
        held = item.committed if item.history == group.history else 0
        start, state = group.state.tail_or_state(min(held, log.length))
        return PromiseItem(
            group.index,
            item.epoch,
            log.epoch,
            log.length,
            log.committed,
            group.history,
            start,
            log.since(start),
            log.runs_since(start),
            state,
            group.acceptor is not None and group.acceptor.unverified,
        )

    # The candidate

    def stand(self) -> Coordinator:
        """Begin a candidacy, and end an earlier one."""
        group, settings = self._group, self._settings
        self.depose()
        # Above everything heard of, so that no seed that hears of this candidacy has to refuse it.
        epoch = 1 + max(
            self.newest_epoch, group.log.epoch, group.leadership.epoch, group.promised_epoch
        )
        self.newest_epoch = epoch
        patience = (settings.suspect + delay(settings, self._rng, 3)) << self.timed_out
        deadline = self._outgoing.now + patience
        coordinator = Coordinator(group.index, epoch, group.log, self._seeds.names, deadline)
        coordinator.list_number = self._seeds.number
        coordinator.own = settings.me if self._seeds.include_me else ""
        coordinator.refusals = self._outgoing.refusals
        group.coordinator = coordinator
        return coordinator

    def ballot(self, kind: type[B], coordinator: Coordinator) -> B:
        """Return a candidacy as seeds see it, with how much they need not send of their logs."""
        group = self._group
        return kind(group.index, coordinator.epoch, group.log.committed, group.history)

    def granted(self, seed: str, item: PreVoteGrantedItem) -> PrepareItem | None:
        """Ask for promises once a majority of seeds would give them."""
        coordinator = self._group.coordinator
        if coordinator is None or coordinator.epoch != item.epoch:
            return None
        return self.ballot(PrepareItem, coordinator) if coordinator.pre_voted(seed) else None

    def promise(
        self, seed: str, item: PromiseItem, message: Promise
    ) -> PromiseItem | Consequence | None:
        """Count a seed's promise; return the one with the best log once there are enough.

        The candidate is elected then, and its member calls `adopt`.
        """
        group = self._group
        coordinator = group.coordinator
        # A promise is of one epoch: for another one it says nothing.
        if coordinator is None or coordinator.epoch != item.epoch:
            self._outgoing.refuse(Guard.PROMISE_LATE)
            return None
        if item.unverified:
            # The log may be an older copy: every seed in sight has to promise, so that a newer copy
            # is found if there is one (docs/cluster.md, "Older copies").
            coordinator.awaited = group.voting()
        best = coordinator.promised(seed, message.incarnation, message.known, item)
        if best is None:
            return None
        if best.history != group.history and best.start and best.state is None:
            # This member took a log under another history id after it asked. The seed left out the
            # part that this member held then, and no longer holds. The next candidacy will say what
            # this member holds now.
            self._outgoing.refuse(Guard.ELECTED_LACKS_BEGINNING)
            self.depose()
            return None
        if self._contradicts(coordinator, best):
            self.depose()
            self.retry_at = 0  # the cold start is no new try: it does not wait as one
            return Consequence.RENEW
        return best

    def _contradicts(self, coordinator: Coordinator, best: PromiseItem) -> bool:
        """Return whether the best log lacks what is committed here.

        A majority always holds what was committed (I1), so some seed's disk must be an older copy.
        A cold start is exempt: its log gets a new history id, under which nothing is committed yet.
        """
        if coordinator.cold or best.history != self._group.history:
            return False
        if coordinator.log.agrees(best.start, best.entries):
            return False
        self._outgoing.refuse(Guard.ELECTED_LACKS_COMMITTED)
        self._outgoing.log(
            MISSING,
            group=coordinator.group,
            member=self._settings.me,
            committed=coordinator.log.committed,
            base=best.length,
        )
        return True

    def adopt(self, best: PromiseItem) -> Coordinator:
        """Put the best log among the promises in place of the one here (spec: `Elect`).

        The group stands under the history id of that log already. Returns the coordinator, whose
        log now has to be established.
        """
        group, log = self._group, self._group.log
        coordinator = group.coordinator
        assert coordinator is not None
        if best.state is not None and best.start > log.committed:
            group.state.install(best.start, best.state)
        log.take_over(coordinator.epoch, best.start, best.entries, best.runs)
        coordinator.adopted()
        group.trace(
            "Elect",
            coordinator.epoch,
            promises=",".join(coordinator.incarnations),
            cold=coordinator.cold,
            list=coordinator.list_number,
            seats=",".join(coordinator.seeds),
        )
        group.leadership.follow(self._settings.me, coordinator.epoch)
        if group.acceptor is not None:
            # The log is the candidate's own, so its seed takes it here and not by a message. Its
            # promise of this epoch is on the disk: it was counted (`Coordinator.promised`). One
            # that is not in the list of this epoch was not asked to promise.
            step = group.acceptor.takes(coordinator.epoch, 0, cold=coordinator.cold)
            assert step is not None, "a candidate's own seed promised it"
            if group.acceptor.take(step, coordinator.epoch, self._settings.me):
                self._storage.store()
            group.trace(STEP_TRACES[step], coordinator.epoch)
            self._wal.replaced(group, best.start, best.entries, best.runs, best.state)
        return coordinator

    # The end of a candidacy or leadership

    def refused(self, item: NackItem) -> None:
        """Give up a candidacy or leadership if a newer epoch is known.

        A seed that refuses because it does not vote names an epoch below this one, which deposes
        nothing. Nor does this very epoch if it was promised to this member. A newer one does, even
        if it was this member's own: its disk is an older copy then, which knows nothing of it, and
        the members that follow the newer epoch take nothing of this one.
        """
        coordinator = self._group.coordinator
        self.newest_epoch = max(self.newest_epoch, item.promised)
        if coordinator is None or coordinator.epoch != item.epoch:
            return
        mine = item.promised == item.epoch and item.candidate == self._settings.me
        if item.promised >= item.epoch and not mine:
            self._outgoing.refuse(Guard.NACKED)
            self.depose(item.promised)

    def depose(self, epoch: int = 0) -> None:
        """Stop being the group's candidate or coordinator, and wait a little before a new try.

        `epoch` is the newer one that is the reason, 0 if there is none. The wait is random, so that
        two candidates that stopped each other do not meet again.
        """
        group = self._group
        coordinator, group.coordinator = group.coordinator, None
        self.newest_epoch = max(self.newest_epoch, epoch)
        if coordinator is not None:
            coordinator.stop()
            group.trace("Stop", coordinator.epoch)
            self.retry_at = self._outgoing.now + delay(self._settings, self._rng, 0)
