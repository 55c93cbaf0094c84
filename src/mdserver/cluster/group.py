"""Everything that one member holds of one subject group, and what it does with it alone.

A cluster runs a fixed number of groups side by side, each with a replicated log, a coordinator and
epochs of its own. On each member a `Group` is one of them:

- `log`: the entries and how far they are committed; `history` is the id under which they stand.
- `queue`: publications of this member's clients that wait (`mdserver.cluster.pending`).
- `leadership`: who coordinates the group, as far as this member knows.
- `acceptor`: the vote and standing of this member, if it is a seed (`mdserver.cluster.acceptor`).
- `coordinator`: the candidate or coordinator on this member, if there is one
  (`mdserver.cluster.coordinator`).

                 no coordinator in sight
       .---------------------------------------------.
       v                                             |
    LEADERLESS --> a candidate: PREPARE, PROMISE --> FOLLOWING, not active
       ^           on some member                    |  its log is established here,
       |                                             |  a majority still has to hold it
       |           link or coordinator lost          v
       '------------------------------------------- ACTIVE: entries come and are committed

Two rules tie the parts together. The learner of a member and its coordinator share one log, so a
coordinator is stopped before the log takes anything of a newer epoch. And an epoch is *active* here
only after this member holds all that was committed when it began: from then on publications that
wait here are forwarded to its coordinator, and those that its log lacks are forwarded anew.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from mdserver.cluster.acceptor import Acceptor, AcceptorEvent, Standing
from mdserver.cluster.log import FORGET, GroupLog
from mdserver.cluster.messages import ForwardItem, State
from mdserver.cluster.settings import delay
from mdserver.core.cache import GroupImage
from mdserver.core.outputs import Committed, Trace
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    import random

    from mdserver.cluster.coordinator import Coordinator
    from mdserver.cluster.membership import Membership
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.pending import Batch, PendingPublications
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.votes import VoteRecord
    from mdserver.cluster.wal import WalBuffer
    from mdserver.core.broker import Broker
    from mdserver.core.message import Entry
    from mdserver.core.proposal import Outcome, Proposal

SYNC_REQUESTED_FOR = 2 * NS_PER_S
"""How long a coordinator has to answer a request for what is missing, before it is asked again."""


class Leadership:
    """Who coordinates a group, as far as this member knows.

    `active`: its log is established, and this member follows it. `forwarded_epoch`: the epoch to
    which all that waits here was forwarded; 0 if that may have been lost with a link.
    `maybe_behind`: what the coordinator sent may have been lost with a link, so that the log here
    may lack entries of it.
    """

    __slots__ = ("active", "coordinator", "epoch", "forwarded_epoch", "maybe_behind")

    def __init__(self) -> None:
        self.epoch = 0
        self.coordinator = ""
        self.active = False
        self.forwarded_epoch = 0
        self.maybe_behind = False

    def follow(self, coordinator: str, epoch: int) -> None:
        """Follow another coordinator, or another epoch of the same: nothing of it is active yet."""
        self.coordinator, self.epoch, self.active = coordinator, epoch, False
        self.maybe_behind = False


class Group:
    """One subject group of one member.

    `no_vote_until`: until when this seed supports no candidate (ns), since it expects to hear of a
    coordinator. `leaderless_since`: since when nobody coordinates the group (ns), 0 while somebody
    does. `retry_at`: when this member may stand again (ns). `newest_epoch`: the highest that it
    heard of. `candidacies_timed_out`: how many in a row.
    `sync_requested_until`: until when the coordinator of `sync_requested_epoch` is not asked again
    for what is missing (ns). `copy_requested_epoch`: the newest epoch in which another member was
    asked for a copy, and `log_is_copy`: what is held came so, of an epoch that is not known.
    `followed_at`: when this member last followed the group (ns), and
    `followed_length`: how much was committed here then. Standard mode only: `leading_since`: when
    this member's leadership began (ns), `log_incomplete`: the coordinator's log is not held here.
    """

    __slots__ = (
        "_broker",
        "_members",
        "_outgoing",
        "_pending",
        "_settings",
        "_votes",
        "_wal",
        "acceptor",
        "candidacies_timed_out",
        "coordinator",
        "copy_requested_epoch",
        "followed_at",
        "followed_length",
        "history",
        "index",
        "leaderless_since",
        "leadership",
        "leading_since",
        "log",
        "log_incomplete",
        "log_is_copy",
        "newest_epoch",
        "no_vote_until",
        "queue",
        "retry_at",
        "sync_requested_epoch",
        "sync_requested_until",
        "tracing",
    )

    def __init__(
        self,
        index: int,
        settings: "ClusterSettings",
        broker: "Broker",
        members: "Membership",
        pending: "PendingPublications",
        outgoing: "Outgoing",
        votes: "VoteRecord",
        wal: "WalBuffer",
    ) -> None:
        self.index = index
        self._settings = settings
        self._broker = broker
        self._members = members
        self._pending = pending
        self.queue = pending.queues[index]
        self._outgoing = outgoing
        self._votes = votes
        self._wal = wal
        self.tracing = settings.trace
        self.log = GroupLog(settings.log_kept, settings.numbers_kept)
        self.history = ""
        self.leadership = Leadership()
        self.acceptor = (
            Acceptor(index, votes, self.log, outgoing.refusals) if settings.is_seed else None
        )
        self.coordinator: Coordinator | None = None
        self.no_vote_until = 0
        self.leaderless_since = 0
        self.retry_at = 0
        self.newest_epoch = votes.promised[index].epoch if votes.promised else 0
        self.candidacies_timed_out = 0
        self.sync_requested_until = 0
        self.sync_requested_epoch = 0
        self.copy_requested_epoch = 0
        self.log_is_copy = False
        self.followed_at = 0
        self.followed_length = 0
        self.leading_since = 0
        self.log_incomplete = False

    # What is known

    @property
    def led(self) -> bool:
        """Whether a coordinator is in sight that says that it is active, or stands here."""
        coordinator = self.leadership.coordinator
        if coordinator == self._settings.me:
            return self.coordinator is not None
        if not self._members.alive(coordinator, self._outgoing.now):
            return False
        return self.index in self._members.peers[coordinator].leads

    @property
    def promised_epoch(self) -> int:
        """The newest epoch that this seed promised; 0 if it is none."""
        return 0 if self.acceptor is None else self.acceptor.promised.epoch

    @property
    def votes_here(self) -> bool:
        """Whether this member is a seed that counts in the group."""
        return self.acceptor is not None and self.acceptor.standing is Standing.NORMAL

    def voting(self) -> list[str]:
        """The seeds in sight that vote in the group."""
        votes = self.votes_here
        return self._members.voting(self.index, self._outgoing.now, here=votes)

    @property
    def votable(self) -> bool:
        """Whether a majority of seeds is in sight and votes."""
        return 2 * len(self.voting()) > len(self._settings.seeds)

    def request_sync(self, epoch: int) -> bool:
        """Return whether it is time to ask for what is missing; if so, take it as done."""
        now = self._outgoing.now
        if self.sync_requested_until > now and self.sync_requested_epoch >= epoch:
            return False
        self.sync_requested_until = now + SYNC_REQUESTED_FOR
        self.sync_requested_epoch = epoch
        return True

    # Entries and their results

    def commit(self, length: int) -> None:
        """Commit the log up to a length: subscribers get the entries, publishers their results."""
        log = self.log
        start = log.committed
        entries, runs = log.commit(length)
        if not entries:
            return
        if self.tracing:
            self.trace("Learn", log.epoch)
        if self._wal.enabled:
            self._wal.committed(self.index, length)
        shown: Sequence[Entry] = entries
        if log.forgot:
            shown = [entry for entry in entries if entry.publication.subject != FORGET]
        out = self._outgoing.out
        self._broker.committed(self.index, shown, self._outgoing.now, out)
        if log.forgot:
            self._broker.reached(self.index, length, self._outgoing.now, out)
        out.append(Committed(self.index, self.history, shown))
        contact = self._pending.contact
        for run in runs:
            if run.contact == contact:
                outcomes = self.queue.committed(start, entries, run)
                if outcomes:  # none when a log is replayed, whose entries may be hours old
                    # All count as late as their first: a look at each would cost what a call does.
                    published = entries[run.start - start].publication.time
                    waited = self._outgoing.now - published
                    self._pending.commits.add(waited, len(outcomes))
                self.resolve(outcomes)
                self.forward_next()

    def resolve(self, outcomes: "Iterable[Outcome]") -> None:
        """Tell publishers at this member what became of their publications."""
        self._broker.resolve(outcomes, self._outgoing.now, self._outgoing.out)

    def propose(self, proposals: "Iterable[Proposal]") -> None:
        """Take publications of this member's clients, and forward those that can be now."""
        refused = self.queue.take(proposals)
        if refused:
            self.resolve(refused)
        self.forward_next()

    def forward_next(self) -> None:
        """Forward what waits here, once nothing of the group is on its way."""
        if self.leadership.active:
            batch = self.queue.unsent()
            if batch is not None:
                self._forward(batch)

    def follow(self) -> None:
        """The coordinator is active, and this member holds all that it has committed so far.

        What an older coordinator did not bring into this log was lost with it, for certain, so it
        is forwarded anew; what stands in the uncommitted tail will be committed where it is.
        """
        leadership, log = self.leadership, self.log
        leadership.active = True
        if self.acceptor is not None:
            self.acceptor.doubted = False
        if leadership.forwarded_epoch != leadership.epoch:
            leadership.forwarded_epoch = leadership.epoch
            for batch in self.queue.not_taken(log.runs_since(log.committed)):
                self._forward(batch)
        self.forward_next()

    def _forward(self, batch: "Batch") -> None:
        leadership = self.leadership
        item = ForwardItem(self.index, leadership.epoch, *batch)
        self._outgoing.forward(leadership.coordinator, item)

    # Cache and state

    def image(self) -> GroupImage:
        """The cache of the group; its objects do not change any more."""
        return self._broker.export_group(self.index)

    def state(self) -> State:
        """What stands for the committed part of the log, for a member that has none of it."""
        return State(self.log.tables(), msgspec.Raw(msgspec.msgpack.encode(self.image())))

    def tail_or_state(self, start: int) -> "tuple[int, State | None]":
        """Where to begin so that a member that holds `start` entries gets the rest, and after what.

        If the entries from there on are gone, the state stands for all that is committed.
        """
        if start >= self.log.base:
            return start, None
        return self.log.committed, self.state()

    def install(self, start: int, state: State) -> None:
        """Have a state stand for the first `start` entries of the log, all of them committed."""
        self.resolve(self.queue.unknown())
        self.log.install(start, state.tables)
        self.import_cache(state.cache)

    def clear(self) -> None:
        """Hold nothing any more; what waits for a result gets none."""
        self.log.clear()
        self.resolve(self.queue.unknown())

    def import_cache(self, raw: msgspec.Raw) -> None:
        """Put an exported cache in place of the group's, under this member's history id of it."""
        image = msgspec.msgpack.decode(raw, type=GroupImage)
        image = msgspec.structs.replace(image, history=self._broker.history_of(self.index))
        now, out = self._outgoing.now, self._outgoing.out
        self._broker.import_group(self.index, image, self.log.committed, now, out)

    # Traces

    def trace(self, name: str, epoch: int, **values: str | int | bool) -> None:
        """Say that a step of the specification was taken, with the state after it."""
        if not self.tracing:
            return
        log = self.log
        state: dict[str, str | int | bool | None] = {
            "node": self._settings.me,
            "group": self.index,
            "epoch": epoch,
            "accepted": log.epoch,
            "length": log.length,
            "committed": log.committed,
            "incarnation": self._votes.incarnation,
        }
        if self.acceptor is not None:
            state["promised"] = self.acceptor.promised.epoch
            state["standing"] = self.acceptor.standing.value
        self._outgoing.out.append(Trace(name, {**state, **values}))


def new_history(rng: "random.Random", age: int = 0) -> str:
    """Return a history id that was never used; ids of a greater age sort behind (`Histories`)."""
    return f"{age:012x}{rng.getrandbits(64):016x}"


class Groups(list[Group]):
    """All groups of a member by their numbers, and what has to be done to many of them at once."""

    def __init__(
        self,
        groups: "Iterable[Group]",
        settings: "ClusterSettings",
        broker: "Broker",
        members: "Membership",
        outgoing: "Outgoing",
        storage: "StableStorage",
        wal: "WalBuffer",
        rng: "random.Random",
    ) -> None:
        super().__init__(groups)
        self._settings = settings
        self._broker = broker
        self._members = members
        self._outgoing = outgoing
        self._storage = storage
        self._wal = wal
        self._rng = rng
        self._histories_told = 0

    # History ids

    def reset(self, history: str, groups: Sequence[int]) -> None:
        """Put groups under a new history id: all that is held of them here is void."""
        for index in groups:
            self[index].clear()
        whole = len(groups) == len(self)
        told = self._note_history(history, groups)
        self._broker.reset(told, None if whole else groups, self._outgoing.now, self._outgoing.out)
        for index in groups:
            self._wal.replaced(self[index], 0, [], [], None)

    def rename(self, history: str, groups: Sequence[int]) -> None:
        """Put groups under a new history id of which what is held here is the beginning."""
        told = self._note_history(history, groups)
        self._broker.rename(told, groups, self._outgoing.now, self._outgoing.out)

    def _note_history(self, history: str, groups: Sequence[int]) -> str:
        """Note a history id; return the one that clients are told.

        Without votes members may differ in what a history holds: clients are then told an id of
        this member's own, so that no other member takes a position in it for one of its own.
        """
        for index in groups:
            self[index].history = history
            self[index].leadership.active = False
        self._outgoing.log("history", history=history, groups=len(groups))
        if self._settings.guaranteed:
            return history
        self._histories_told += 1
        return new_history(self._rng, self._histories_told)

    # The standings of this seed over all groups

    @property
    def not_voting(self) -> list[int]:
        """The groups in which this seed does not vote; none if it is no seed."""
        return [
            group.index
            for group in self
            if group.acceptor is not None and group.acceptor.standing is not Standing.NORMAL
        ]

    @property
    def record_lost(self) -> bool:
        """Whether this seed lost its vote record, and waits for an operator."""
        return any(group.acceptor and group.acceptor.standing is Standing.LOST for group in self)

    @property
    def returning(self) -> bool:
        """Whether an operator takes this seed back, and it does not vote everywhere yet."""
        return any(
            group.acceptor and group.acceptor.standing is Standing.RETURNING for group in self
        )

    @property
    def doubted(self) -> bool:
        """Whether a log here is as the disk had it, and may be an older copy."""
        return any(group.acceptor and group.acceptor.doubted for group in self)

    @property
    def standing_known(self) -> bool:
        """Whether this seed knows if others know of it: its record says so, or each of them did.

        Without that it promises no cold start: it would not know afterwards whether they know what
        it is now, or what it was before it lost its record.
        """
        settings = self._settings
        if (
            self._storage.votes.admitted
            or not settings.is_seed
            or self.record_lost
            or self.returning
        ):
            return True
        peers = self._members.peers
        return all(peers[seed].greeted for seed in settings.seeds if seed != settings.me)

    def admit(self) -> bool:
        """Have others count on this vote record once every group took this seed in; return if so.

        The caller stores the record.
        """
        votes = self._storage.votes
        if not self._settings.is_seed or votes.admitted or self.not_voting:
            return False
        votes.admitted = True
        return True

    def lose(self) -> None:
        """Vote no more until readmitted: others know more of this seed than its record does.

        What an operator said of this loss holds for all groups.
        """
        returning = self.returning
        for group in self:
            if group.acceptor is not None:
                group.acceptor.transition(AcceptorEvent.LOSE)
        if returning:
            self.readmit()

    def readmit(self) -> None:
        """Take this seed back, by an operator's word, in the groups in which it waits for that."""
        for group in self:
            if group.acceptor is not None and group.acceptor.standing is Standing.LOST:
                group.acceptor.transition(AcceptorEvent.READMIT)

    # Coordinators

    def depose(self, index: int, epoch: int = 0) -> None:
        """Stop being a group's candidate or coordinator, and wait a little before a new try.

        `epoch` is the newer one that is the reason, if there is one.
        """
        group = self[index]
        coordinator, group.coordinator = group.coordinator, None
        group.newest_epoch = max(group.newest_epoch, epoch)
        if coordinator is not None:
            coordinator.stop()
            group.trace("Stop", coordinator.epoch)
            group.retry_at = self._outgoing.now + delay(self._settings, self._rng, 0)

    @property
    def coordinated(self) -> list[Group]:
        """The groups that this member coordinates, or is a candidate for."""
        return [group for group in self if group.coordinator is not None]
