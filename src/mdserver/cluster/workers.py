"""The worker processes of a member: what it gives them, and what it takes of them.

    clients --publications--> worker --Forward--> member --Forward--> the coordinator
    clients <--deliveries---- worker <--Accept--- member <--Accept, Commit--'

A worker serves clients and nothing else. To it, its member is the coordinator of every group, in an
epoch of its own, and what the member gives is committed already: a worker hears of no votes, no
elections and no other members. So it is a learner like any other, with the code of any other. What
the member does for it follows from four rules:

- *What is committed here goes to the workers*, in the step that commits it (`Workers.feed`), and
  nothing else does: the uncommitted tail may be replaced, or taken back by a disk that is full.
- *The member is the contact of what its workers publish.* It gives their publications tickets of
  its own, so all that a contact does when coordinators change (`mdserver.cluster.pending`) is done
  once, by the member. A worker reads its results off the entries, as each contact does: the runs
  that go to workers name their tickets (`Workers.committed`). Results of publications that get no
  place in the log are answers (`Workers.answer`).
- *A worker says nothing of itself*: its process is watched. Only the member sends heartbeats, which
  name the groups with their lengths.
- *A new history is a new epoch* for the workers. They then ask for what they lack, and drop what
  they hold, as members do after a cold start.

A worker lives no longer than the link to its member, and a link of one machine loses nothing. So
there is no case in which a worker forwards something a second time. What a worker that ended had
forwarded may still be committed; its clients repeat it elsewhere, and the coordinator knows repeats
by their numbers.

A worker is no member: others never hear of it, so it is missed by nobody, and counts for no
majority. docs/design.md, "Workers".
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.log import Run
from mdserver.cluster.messages import (
    AcceptItem,
    ClosePeer,
    Forward,
    ForwardReplyItem,
    Heartbeat,
    Hello,
    LedGroup,
    ServerState,
    StandardBatch,
    Sync,
    SyncItem,
    SyncRequest,
    portions,
)
from mdserver.cluster.pending import contact_name
from mdserver.core.proposal import Origin, Outcome, Proposal
from mdserver.limits import NS_PER_MS, WORKER_HEARTBEAT_MS

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
    from mdserver.cluster.messages import AnyPeerMessage, ForwardItem, SyncRequestItem
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.pending import GroupQueue
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.core.broker import Broker
    from mdserver.core.message import Entry

HEARTBEAT = WORKER_HEARTBEAT_MS * NS_PER_MS
NO_SESSION = 0
"""The session of publications that came from workers: sessions are counted from 1."""


class WorkerOrigin(Origin, frozen=True, gc=False):
    """The worker that waits for the result of a publication: its contact name, and its ticket."""

    contact: str = ""
    ticket: int = 0


class Workers:
    """The workers that are linked to this member: name -> contact name, "" before their Hello.

    `groups` are those of the member. `_state` is what the workers were told last. `jumped` are the
    groups in which a state took the place of entries here in this step (`give_states`).
    """

    __slots__ = (
        "_broker",
        "_incarnation",
        "_next_heartbeat",
        "_outgoing",
        "_settings",
        "_state",
        "contacts",
        "groups",
        "jumped",
    )

    def __init__(
        self, settings: "ClusterSettings", broker: "Broker", outgoing: "Outgoing", incarnation: int
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._outgoing = outgoing
        self._incarnation = incarnation
        self._next_heartbeat = 0
        self._state = ServerState()
        self.contacts: dict[str, str] = {}
        self.groups: Sequence[Group] = ()
        self.jumped: dict[int, None] = {}

    # Links

    def up(self, worker: str, *, joined: bool) -> None:
        """Tell a worker that was just linked what there is."""
        self.contacts[worker] = ""
        self._outgoing.workers = tuple(self.contacts)
        self._outgoing.send((worker,), Hello(self._incarnation, False, "", {}))
        self._outgoing.send((worker,), self._heartbeat(joined=joined))
        self._outgoing.send((worker,), self._state)

    def down(self, worker: str) -> None:
        """Forget a worker: its process ended."""
        del self.contacts[worker]
        self._outgoing.workers = tuple(self.contacts)

    def receive(self, worker: str, message: "AnyPeerMessage") -> StandardBatch | None:
        """Take what a worker says; return publications of STANDARD, which go to everybody."""
        match message:
            case Hello():
                self.contacts[worker] = contact_name(worker, message.incarnation, message.start)
            case Forward():
                for item in message.items:
                    self._propose(message.contact, item)
            case SyncRequest():
                self._give(worker, message)
            case StandardBatch():
                return message
            case _:
                reason = f"{type(message).__name__} is nothing that a worker says"
                self._outgoing.out.append(ClosePeer(worker, reason))
        return None

    # What it serves

    def tell(self, state: ServerState, *, joined: bool) -> None:
        """Tell the workers what concerns their clients, if that changed, and that this lives on."""
        if not self.contacts:
            self._state = state
            return
        workers, now = self._outgoing.workers, self._outgoing.now
        if state != self._state:
            self._state = state
            self._outgoing.send(workers, state)
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT
            self.give_states()  # what is committed goes before the lengths that it leads to
            self._outgoing.send(workers, self._heartbeat(joined=joined))

    def _heartbeat(self, *, joined: bool) -> Heartbeat:
        """Return a heartbeat in which this member coordinates all groups, once it serves them."""
        leads = [
            LedGroup(group.index, self._epoch(group), group.log.committed, group.log.committed)
            for group in (self.groups if joined else ())
        ]
        return Heartbeat(
            ready=joined,
            admitted=False,  # what seeds know of each other is nothing for workers
            standing_known=True,
            record_lost=False,
            weight=1,
            promised=0,
            not_voting=[],
            leads=leads,
            hears=tuple(self.contacts),
        )

    def _epoch(self, group: "Group") -> int:
        """Return the epoch of a group as workers know it: the next one after a new history."""
        history = self._broker.history_of(group.index)
        if history != group.worker_history:
            group.worker_history = history
            group.worker_epoch += 1
        return group.worker_epoch

    # What is committed

    def committed(self, queue: "GroupQueue", run: Run) -> list[Run]:
        """Return which entries of a run of this contact answer which tickets of workers.

        Call it before the queue gives the outcomes, which takes them out of it.
        """
        found: list[Run] = []
        waiting = queue.proposals
        contact, start, first, count = "", 0, 0, 0
        for place, ticket in enumerate(range(run.first, run.first + run.count), run.start):
            proposal = waiting.get(ticket)
            origin = None if proposal is None else proposal.origin
            if not isinstance(origin, WorkerOrigin):
                continue
            follows = origin.ticket == first + count and place == start + count
            if follows and origin.contact == contact:
                count += 1
                continue
            if count:
                found.append(Run(start, count, contact, first))
            contact, start, first, count = origin.contact, place, origin.ticket, 1
        if count:
            found.append(Run(start, count, contact, first))
        return found

    def feed(self, group: "Group", start: int, entries: "list[Entry]", runs: list[Run]) -> None:
        """Give the workers entries that were just committed; `runs` name tickets of theirs.

        A group that jumped in this step has them in its state, which also ends the wait for all
        that was forwarded before.
        """
        if group.index in self.jumped:
            return
        end = start + len(entries)
        self._outgoing.feed(AcceptItem(group.index, self._epoch(group), start, end, entries, runs))

    def _give(self, worker: str, request: SyncRequest) -> None:
        """Give a worker what it lacks of groups: of what is committed, and of nothing else."""
        # What was committed in this step goes first, so that it is not left out here and there.
        self.give_states()
        logs = (self._synced(self.groups[item.group], self._start(item)) for item in request.items)
        for items in portions(logs):
            self._outgoing.send((worker,), Sync(items))

    def note_jump(self, group: "Group") -> None:
        """Note that a state took the place of entries of a group here, for `give_states`."""
        if self.contacts:
            self.jumped[group.index] = None

    def give_states(self) -> None:
        """Give all workers the groups that jumped in this step, after what was committed before.

        Those of one history id go together: clients get a reset for each message and history id
        (`Learner.renew`), and not one for each group.
        """
        self._outgoing.flush()
        if not self.jumped:
            return
        indexes = sorted(self.jumped, key=self._broker.history_of)
        self.jumped.clear()
        for items in portions(self._synced(self.groups[index], -1) for index in indexes):
            self._outgoing.send(self._outgoing.workers, Sync(items))

    def _start(self, item: "SyncRequestItem") -> int:
        """Return the place from which a worker lacks a group; -1 to have a state stand for all."""
        committed = self.groups[item.group].log.committed
        if item.history == self._broker.history_of(item.group):
            return min(item.committed, committed)
        # After a history that was renamed old entries are no news.
        return 0 if self._settings.guaranteed else -1

    def _synced(self, group: "Group", start: int) -> SyncItem:
        """Return the committed part of a group from a place on."""
        log, epoch = group.log, self._epoch(group)
        start, state = group.state.tail_or_state(start)
        return SyncItem(
            group.index,
            epoch,
            self._broker.history_of(group.index),
            start,
            log.since(start)[: log.committed - start],
            [],
            log.committed,
            active=True,
            cold=False,
            register=0,
            state=state,
        )

    # What their clients publish

    def _propose(self, contact: str, item: "ForwardItem") -> None:
        """Take publications of a worker as this member takes those of its own clients."""
        proposals = [
            Proposal(WorkerOrigin(NO_SESSION, None, ticket, contact=contact, ticket=ticket), each)
            for ticket, each in enumerate(item.publications, item.first)
        ]
        refusing = self._broker.publications.refusing
        group = self.groups[item.group]
        if refusing is None:
            group.propose(proposals)
        else:
            group.resolve([Outcome(each.origin, reason=refusing) for each in proposals])

    def answer(self, group: int, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Answer workers what became of their publications; return the outcomes of others.

        Nobody waits for those of a worker that ended, whose name the next one has.
        """
        others: list[Outcome] = []
        for outcome in outcomes:
            origin = outcome.origin
            if not isinstance(origin, WorkerOrigin):
                others.append(outcome)
            elif origin.contact in self.contacts.values():
                reply = ForwardReplyItem(
                    group,
                    origin.ticket,
                    outcome.epoch,
                    outcome.seq,
                    outcome.duplicate,
                    outcome.reason,
                    outcome.expected,
                    outcome.certain,
                )
                self._outgoing.answer(origin.contact, reply)
        return others
