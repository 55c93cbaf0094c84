"""One subject group on one member: its whole state, and what is done within it.

A cluster runs a fixed number of groups side by side, each with a replicated log, a coordinator and
epochs of its own. On each member a `Group` is one of them:

- `log`: the entries and how far they are committed; `history` is the id under which they stand.
- `queue`: publications of this member's clients that wait (`mdserver.cluster.pending`).
- `leadership`: who coordinates the group, as far as this member knows
  (`mdserver.cluster.leadership`).
- `acceptor`: the vote and standing of this member, if it is a seed (`mdserver.cluster.acceptor`).
- `coordinator`: the candidate or coordinator on this member, if there is one
  (`mdserver.cluster.coordinator`).
- `ballots`: its elections (`mdserver.cluster.ballots`).
- `transfer`: how its log is handed on as a whole (`mdserver.cluster.transfer`).
- `state`: what stands for entries that the log has no more (`mdserver.cluster.group_state`).
- `succession`: in Standard mode, which leadership prevails (`mdserver.cluster.succession`).

What others say of the group comes through `step`, one item of a message at a time, as in etcd's
raft. A step answers with a value (`mdserver.cluster.replies`), and the part of the member that took
the message puts the answers of all its groups together. When something is to be done (to stand, to
catch up, to hand over) is decided for all groups by the parts of the member.

One rule ties the parts together: the learner of a member and its coordinator share one log, so a
coordinator is stopped before the log takes anything of a newer epoch.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mdserver.cluster.acceptor import Acceptor, Standing
from mdserver.cluster.ballots import BallotItem, Ballots
from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.group_state import GroupState
from mdserver.cluster.guards import Guard
from mdserver.cluster.leadership import Leadership
from mdserver.cluster.log import FORGET, GroupLog, Run, forgotten_by
from mdserver.cluster.messages import (
    AcceptItem,
    AckItem,
    BeginItem,
    CommitItem,
    ForwardItem,
    ForwardReplyItem,
    LedGroup,
    Nack,
    NackItem,
    SyncItem,
    SyncRequestItem,
    YieldItem,
)
from mdserver.cluster.pending import GroupQueue
from mdserver.cluster.replies import Gap, Reply
from mdserver.cluster.step_trace import StepTrace
from mdserver.cluster.succession import Succession, SuccessionItem
from mdserver.cluster.transfer import Transfer, TransferItem
from mdserver.core.outputs import Committed

if TYPE_CHECKING:
    import random

    from mdserver.cluster.forgetting import Forgetting
    from mdserver.cluster.membership import Membership
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.pending import Batch, PendingPublications
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer
    from mdserver.cluster.workers import Workers
    from mdserver.core.broker import Broker
    from mdserver.core.message import Entry
    from mdserver.core.proposal import Outcome, Proposal

# To look up a member of an enum takes CPython 3.11 as long as a call, and this is for each batch.
_ACTIVE = CoordinatorState.ACTIVE
GroupItem = (
    ForwardItem
    | AcceptItem
    | AckItem
    | CommitItem
    | ForwardReplyItem
    | TransferItem
    | BallotItem
    | SuccessionItem
)
"""What `Group.step` takes: the items of all messages that are about groups."""


class Group:
    """One subject group of one member. Times are in nanoseconds.

    For workers (`cluster/workers.py`): `worker_epoch`, the epoch in which they know the group, and
    `worker_history`, the history id of that. For clients: `followed_at`, when this member last
    followed the group, and `followed_length`, how much was committed here then. `standard`: the
    delivery mode is the one without votes. `list_number`: the newest list of seeds by which an
    epoch of the group is known to have become active (`mdserver.cluster.seeds`).
    """

    __slots__ = (
        "_broker",
        "_forgetting",
        "_members",
        "_outgoing",
        "_pending",
        "_settings",
        "_storage",
        "_wal",
        "_workers",
        "acceptor",
        "ballots",
        "coordinator",
        "followed_at",
        "followed_length",
        "history",
        "index",
        "leadership",
        "list_number",
        "log",
        "queue",
        "seeds",
        "standard",
        "state",
        "succession",
        "trace",
        "tracing",
        "transfer",
        "worker_epoch",
        "worker_history",
    )

    def __init__(
        self,
        index: int,
        settings: "ClusterSettings",
        broker: "Broker",
        members: "Membership",
        pending: "PendingPublications",
        outgoing: "Outgoing",
        storage: "StableStorage",
        wal: "WalBuffer",
        forgetting: "Forgetting",
        workers: "Workers | None",
        rng: "random.Random",
    ) -> None:
        votes = storage.votes
        self.index = index
        self._settings = settings
        self._broker = broker
        self._members = members
        self.seeds = members.seeds
        self._pending = pending
        self.queue = GroupQueue(pending)
        self._outgoing = outgoing
        self._storage = storage
        self._wal = wal
        self._forgetting = forgetting
        self._workers = workers
        self.tracing = settings.trace
        self.trace = StepTrace(self, settings, outgoing, storage)
        self.log = GroupLog(settings.log_kept, settings.numbers_kept)
        forgetting.add(self.log)
        self.history = ""
        self.leadership = Leadership()
        self.acceptor = (
            Acceptor(index, votes, self.log, outgoing.refusals)
            if members.seeds.include_me
            else None
        )
        self.coordinator: Coordinator | None = None
        self.ballots = Ballots(self, settings, members.seeds, outgoing, storage, wal, rng)
        self.transfer = Transfer(self, settings, outgoing, storage, wal)
        self.state = GroupState(self, broker, outgoing, workers)
        self.standard = not settings.guaranteed
        self.succession = Succession(self, settings.me, members, outgoing)
        self.list_number = 0
        self.followed_at = 0
        self.followed_length = 0
        self.worker_epoch = 0
        self.worker_history = ""

    # What is known

    @property
    def led(self) -> bool:
        """Return whether an active coordinator is in sight, or one stands on this member."""
        coordinator = self.leadership.coordinator
        if coordinator == self._settings.me:
            return self.coordinator is not None
        if not self._members.alive(coordinator, self._outgoing.now):
            return False
        return self.index in self._members.peers[coordinator].leads

    @property
    def newest_known(self) -> tuple[int, str]:
        """Return the newest epoch that is followed or promised here, and its coordinator."""
        acceptor, epoch = self.acceptor, self.log.epoch
        if acceptor is not None and acceptor.promised.epoch > epoch:
            return acceptor.promised.epoch, acceptor.promised.candidate
        return epoch, self.leadership.coordinator

    @property
    def promised_epoch(self) -> int:
        """Return the newest epoch that this seed promised; 0 if it is none."""
        return 0 if self.acceptor is None else self.acceptor.promised.epoch

    @property
    def votes_here(self) -> bool:
        """Return whether this member is a seed that counts in the group."""
        return self.acceptor is not None and self.acceptor.standing is Standing.NORMAL

    def voting(self) -> list[str]:
        """Return the seeds in sight that vote in the group."""
        votes = self.votes_here
        return self._members.voting(self.index, self._outgoing.now, here=votes)

    @property
    def votable(self) -> bool:
        """Return whether a majority of seeds is in sight and votes."""
        return 2 * len(self.voting()) > len(self._members.seeds.names)

    def take_part(self) -> None:
        """Take the log as a seed does from now on, since this member is one or becomes one.

        It does not count before an active coordinator has given it the log, as after a restart
        (spec: `Relist!TakeBack`). A coordinator on this member has it.
        """
        if self.acceptor is not None:
            return
        acceptor = Acceptor(self.index, self._storage.votes, self.log, self._outgoing.refusals)
        self.acceptor = acceptor
        self.transfer.requested_until = 0
        coordinator, incarnation = self.coordinator, self._storage.votes.incarnation
        if coordinator is None:
            return
        active = coordinator.state is _ACTIVE
        step = acceptor.takes(coordinator.epoch, incarnation, cold=False) if active else None
        if step is None:
            self.ballots.depose()  # a seed that does not vote coordinates nothing
            return
        coordinator.register(self._settings.me, incarnation)
        acceptor.take(step, coordinator.epoch, self._settings.me)

    # What others say

    def step(self, sender: str, item: GroupItem, message: Any = None) -> Reply:
        """Take an item that is about the group; return what this group answers to it.

        Without votes (`standard`) entries, and what a log has or lacks, are matters of the
        leadership that prevails, and not of what a seed may take or give.

        `sender` is the contact (`contact_name`) if the item brings publications, otherwise a
        member. `message` is what brought the item, if it says anything about all of its items.
        """
        reply: Reply = None
        match item:
            case ForwardItem():
                self._coordinate(sender, item)
            case AcceptItem() if not self.standard:
                reply = self._extend(sender, item)
            case AckItem():
                self._count(sender, message.incarnation, item)
            case CommitItem():
                reply = self._learn(item)
            case ForwardReplyItem():
                outcome = self.queue.answered(item)
                if outcome is not None:
                    self.resolve((outcome,))
            case SyncItem():
                reply = self.transfer.step(sender, item, message)
            case LedGroup() | SyncRequestItem() if not self.standard:
                reply = self.transfer.step(sender, item, message)
            case AcceptItem() | LedGroup() | SyncRequestItem() | BeginItem() | YieldItem():
                reply = self.succession.step(sender, item)
            case _:
                reply = self.ballots.step(sender, item, message)
        return reply

    # Publications of this member's clients

    def propose(self, proposals: "Sequence[Proposal]" = ()) -> None:
        """Take publications, and forward all that wait once nothing of the group is on its way.

        Nothing is forwarded while the leadership is not active: a coordinator takes nothing before,
        and `follow` calls this again then.
        """
        queue = self.queue
        if proposals:
            refused = queue.take(proposals)
            if refused:
                self.resolve(refused)
        if self.leadership.active:
            batch = queue.unsent()
            if batch is not None:
                self._forward(batch)

    def _forward(self, batch: "Batch") -> None:
        """Hand a batch to the coordinator, for the epoch that is followed here."""
        leadership, outgoing = self.leadership, self._outgoing
        item = ForwardItem(self.index, leadership.epoch, *batch)
        if leadership.coordinator == outgoing.me:
            outgoing.forwards_here.append(item)
        else:
            outgoing.forward(leadership.coordinator, item)

    def follow(self) -> None:
        """Follow the coordinator, which is active, and all of whose committed entries are here.

        A publication that was forwarded to an earlier coordinator and is not in this log was
        certainly lost with it: this log was taken from a majority, so everything that was committed
        is in it. So the publication is forwarded again. One in the uncommitted tail is not: it will
        be committed at its place.
        """
        leadership, log = self.leadership, self.log
        leadership.active = True
        if self.acceptor is not None:
            self.acceptor.unverified = False
        # Once in an epoch, or publications would be numbered twice; again after a lost link.
        if leadership.forwarded_epoch != leadership.epoch:
            leadership.forwarded_epoch = leadership.epoch
            for batch in self.queue.not_taken(log.runs_since(log.committed)):
                self._forward(batch)
        self.propose()

    def give_up(self, timeout: int) -> None:
        """Answer what waits for longer than a timeout (ns): nobody knows if it will be committed.

        What was never forwarded surely was not taken, and the answer says so.
        """
        given_up = self.queue.expired(self._outgoing.now, timeout)
        if given_up:
            self.resolve(given_up)
            self.propose()

    def resolve(self, outcomes: "Iterable[Outcome]") -> None:
        """Tell publishers at this member, or its workers, what became of their publications."""
        if self._workers is not None:
            outcomes = self._workers.answer(self.index, outcomes)
        self._broker.resolve(outcomes, self._outgoing.now, self._outgoing.out)

    # The coordinator here: number, replicate, count acks

    def _coordinate(self, contact: str, item: ForwardItem) -> None:
        """Have the coordinator on this member number publications, or hold them back.

        A coordinator that writes its log down takes no more than its disk takes. What comes beyond
        is held back, in the order in which it came, until the disk has caught up: publications that
        overtook each other would leave gaps in their publishers' numbers (I9).
        """
        wal = self._wal
        if wal.enabled and (wal.held_back or wal.unsynced_bytes > self._settings.hold_bytes):
            refusing = self._broker.publications.refusing
            if refusing is None:
                wal.held_back.append((contact, item))
            else:
                self.refuse(contact, item, refusing)
        else:
            self.append(contact, item)

    def refuse(self, contact: str, item: ForwardItem, reason: str) -> None:
        """Refuse each publication that a contact forwarded, for the same reason."""
        for ticket in range(item.first, item.first + len(item.publications)):
            answer = ForwardReplyItem(self.index, ticket, 0, 0, False, reason, None)
            self._outgoing.answer(contact, answer)

    def append(self, contact: str = "", item: ForwardItem | None = None) -> None:
        """Number publications and replicate them; without any, forget what is idle.

        Publications for another epoch are passed over: their contact learns of the newer one, and
        knows from its log which publications that has.
        """
        coordinator, log, outgoing = self.coordinator, self.log, self._outgoing
        if coordinator is None or coordinator.state is not _ACTIVE:
            outgoing.refuse(Guard.FORWARD_EPOCH)
            return
        start, runs = log.length, len(log.runs)
        if item is None:
            self._forget(coordinator)
        elif item.epoch == coordinator.epoch:
            known = len(log.publishers.table)
            for answer in coordinator.append(item.publications, contact, item.first):
                outgoing.answer(contact, answer)
            began = len(log.publishers.table) - known
            if began:
                self._forgetting.make_room(coordinator, began, start, outgoing.now)
        else:
            outgoing.refuse(Guard.FORWARD_EPOCH)
        if log.length == start:
            return
        # Members that link later learn of these entries by a heartbeat, and ask for them.
        if outgoing.linked:
            entries, new_runs = log.since(start), log.runs[runs:]
            outgoing.accept(
                AcceptItem(self.index, coordinator.epoch, start, log.committed, entries, new_runs)
            )
        if self._wal.enabled:
            self._wal.appended(self, start, log.runs[runs:])
        if self.tracing:
            self.trace.publish(coordinator, start)
        self.ack_here()

    def _forget(self, coordinator: Coordinator) -> None:
        """Forget publishers that are idle, and subjects if all members know what that is."""
        now, replica = self._outgoing.now, self._broker.replica
        idle = self._broker.settings.subject_idle
        self._forgetting.idle(coordinator, now)
        # Once a floor is committed, a majority refuses members of earlier versions for good, so a
        # seed that is away is no reason to wait.
        linked, forgot = self._outgoing.linked, replica.forgot(self.index)
        if idle is not None and self._members.all_forget(linked, seeds=not forgot):
            self._forgetting.idle_subjects(coordinator, replica, idle, now)

    def _count(self, seed: str, incarnation: int, item: AckItem) -> None:
        """Count a seed's ack; commit what a majority holds now."""
        coordinator = self.coordinator
        # An ack of another epoch is about another log, even if the places are the same (in the
        # specification `AckedBy` counts those of the epoch alone).
        if coordinator is None or coordinator.epoch != item.epoch:
            self._outgoing.refuse(Guard.ACK_EPOCH)
            return
        agreed = coordinator.ack(seed, incarnation, item.length)
        if agreed is not None:
            self._commit_agreed(coordinator, agreed)

    def ack_here(self) -> None:
        """Count the seed of this member: it shares its log with the coordinator, so it holds all.

        In Standard mode the coordinator is its own only seed, so this commits at once.
        """
        coordinator, storage, me = self.coordinator, self._storage, self._settings.me
        if coordinator is None or me not in coordinator.seeds:
            return
        length = self.log.length
        if self._wal.acks_wait or not storage.record_on_disk:
            # Its vote may be what is not on the disk yet: the ack waits, as one to others would.
            storage.ack(me, AckItem(self.index, coordinator.epoch, length), changed=False)
            return
        agreed = coordinator.ack(me, storage.votes.incarnation, length)
        if agreed is not None:
            self._commit_agreed(coordinator, agreed)

    def _commit_agreed(self, coordinator: Coordinator, agreed: int) -> None:
        """Commit what a majority acked, and tell members (spec: `Activate`, then `Commit`)."""
        first = not self.leadership.active
        self.list_number = max(self.list_number, coordinator.list_number)
        if self.tracing:
            self.trace("Activate" if first else "Commit", coordinator.epoch, committed=agreed)
        self.commit(agreed)
        # A majority of one is a single server, or a member in Standard mode, in which all members
        # commit entries as they come: no other member waits for a Commit.
        if coordinator.majority > 1:
            self._outgoing.commit(CommitItem(self.index, coordinator.epoch, agreed))
        if coordinator.deferred:
            for contact, answer in coordinator.due():
                self._outgoing.answer(contact, answer)
        if first:
            self._outgoing.log("active", group=self.index, epoch=coordinator.epoch, length=agreed)
            self.follow()

    # The learner here: take, acknowledge, apply

    def _extend(self, coordinator: str, item: AcceptItem) -> Gap | None:
        """Take new entries, and ack them if this member is a seed (spec: `Accept`).

        Return the gap if entries before them are missing here.
        """
        log, acceptor = self.log, self.acceptor
        if item.epoch != log.epoch or item.start > log.length:
            self._outgoing.refuse(Guard.ENTRIES_GAP)
            # An older epoch is answered with the newer one; only a newer one shows a gap here.
            current = self.is_current(coordinator, item.epoch)
            return Gap(item.epoch, item.committed) if current else None
        if acceptor is not None and not acceptor.accepts(item.epoch):
            # A newer epoch was promised (its candidate is named), or the seed does not vote yet.
            below = item.epoch < acceptor.promised.epoch
            self._outgoing.refuse(Guard.ENTRIES_PROMISED if below else Guard.ENTRIES_NOT_VOTING)
            self.is_current(coordinator, item.epoch)
            return None
        # Entries from an earlier place are here already: a link was lost, and they came again. In
        # the same epoch they are the same, as a coordinator only appends.
        if item.start == log.length:
            log.append(item.entries, item.runs)
            self._wal.appended(self, item.start, item.runs)
        if item.committed > log.committed:
            self.commit(min(item.committed, log.length))
        if acceptor is not None:
            if self.tracing:
                self.trace("Accept", item.epoch)
            self._storage.ack(
                coordinator, AckItem(self.index, item.epoch, log.length), changed=False
            )
        return None

    def is_current(self, coordinator: str, epoch: int) -> bool:
        """Return whether an epoch is not below what is known here; a seed refuses older ones.

        The refusal (NACK) names the newer epoch and its coordinator or candidate. Otherwise the
        older coordinator might not learn of it, and would go on numbering in vain.
        """
        newest, by = self.newest_known
        if epoch >= newest:
            return True
        older = epoch < self.log.epoch
        self._outgoing.refuse(Guard.LOG_OLDER if older else Guard.LOG_PROMISED)
        if self.acceptor is not None:
            self._outgoing.send((coordinator,), Nack([NackItem(self.index, epoch, newest, by)]))
        return False

    def _learn(self, item: CommitItem) -> Gap | None:
        """Commit what a majority holds; return the gap if the log does not reach so far."""
        log, leadership = self.log, self.leadership
        if item.epoch < log.epoch:
            self._outgoing.refuse(Guard.COMMIT_OLDER)
            return None
        if item.epoch > log.epoch or item.length > log.length:
            self._outgoing.refuse(Guard.COMMIT_GAP)
            return Gap(item.epoch, item.length)
        if item.length > log.committed:
            self.commit(item.length)
        # The first commit of an epoch says that its coordinator is active. After a lost link
        # entries may be missing here, so then a heartbeat decides, which states the length.
        if not leadership.active and not leadership.maybe_behind:
            self.follow()
        return None

    def commit(self, length: int) -> None:
        """Commit the log up to a length: subscribers get the entries, publishers their results.

        No other place delivers entries of the log, or tells a publisher that one is committed
        (invariants I7 and I8; in the specification `Learn`): so nothing is shown that a later epoch
        may drop.
        """
        log, out = self.log, self._outgoing.out
        start = log.committed
        entries, runs = log.commit(length)
        if not entries:
            return
        if self.tracing:
            self.trace("Learn", log.epoch)
        if self._wal.enabled:
            self._wal.committed(self.index, length)
        shown = self.show(entries)
        out.append(Committed(self.index, self.history, shown))
        contact = self._pending.contact
        for_workers: list[Run] = []
        for run in runs:
            if run.contact == contact:
                for_workers += self._tell_results(start, entries, run)
        if self._workers is not None:
            self._workers.feed(self, start, entries, for_workers)

    def show(self, entries: "list[Entry]") -> "Sequence[Entry]":
        """Have subscribers get entries that were just committed, and return those that they get.

        The others forget something. A subject may be published to again behind the entry that
        forgets it, so that takes its turn among them.
        """
        broker, out, now = self._broker, self._outgoing.out, self._outgoing.now
        if not self.log.forgot:
            broker.committed(self.index, entries, now, out)
            return entries
        shown: list[Entry] = []
        part: list[Entry] = []
        for entry in entries:
            if entry.publication.subject != FORGET:
                part.append(entry)
                continue
            forgotten = forgotten_by(entry)
            if forgotten is not None:
                broker.committed(self.index, part, now, out)
                shown += part
                part = []
                floor = forgotten.floor
                broker.forget_subjects(self.index, forgotten.subjects, floor, now, out)
        broker.committed(self.index, part, now, out)
        shown += part
        broker.reached(self.index, self.log.committed, now, out)
        return shown

    def _tell_results(self, start: int, entries: "list[Entry]", run: Run) -> list[Run]:
        """Tell publishers at this member the results of a run; return those for its workers.

        `entries` is the log from `start` on.
        """
        queue, workers, now = self.queue, self._workers, self._outgoing.now
        for_workers = [] if workers is None else workers.committed(queue, run)
        outcomes = queue.committed(start, entries, run)
        if workers is not None:
            outcomes = [outcome for outcome in outcomes if outcome.origin.session]
        if outcomes:  # none when a log is replayed, whose entries may be hours old
            # All count as late as their first: a look at each would cost what a call does.
            waited = now - entries[run.start - start].publication.time
            self._pending.commits.add(waited, len(outcomes))
        self._broker.resolve(outcomes, now, self._outgoing.out)
        if queue.next_unsent != queue.next_ticket:
            self.propose()
        return for_workers

    def clear(self) -> None:
        """Drop the log, and give up what was forwarded: it may have been committed or not."""
        self.log.clear()
        self.resolve(self.queue.unknown())
