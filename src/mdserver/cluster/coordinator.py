"""The coordinator of one epoch of one group: the proposer of Paxos, the leader of raft.

           a majority would promise    a majority promised         a majority holds the log
    PRE_VOTING -------------> PREPARING -------------> SYNCING -------------------> ACTIVE
        |                         |                       |                            |
        '-------------------------'---- a newer epoch ----'---- no majority in sight --'
                                              v
                                           STOPPED

It decides, and carries nothing out: whether there are enough promises, and which of their logs is
the best; what number a publication gets; how far the log is committed; whether a seed that comes
back may count. `Group` does what follows from that. A coordinator belongs to one epoch: once it is
deposed it is STOPPED, and the next candidacy takes a new epoch. Why it is safe:

- *One coordinator an epoch* (invariant I5). A seed promises an epoch to one candidate, and any two
  majorities share a seed (`Candidates.tla`).
- *Nothing committed is lost* (I1). What is committed is on a majority, so some seed of the majority
  that promises holds it; taking the log of the highest (accepted epoch, length) takes the one that
  has it (`Elect`). Before anything new is numbered, a majority holds that log under the new epoch
  (SYNCING, `Activate`), and so its accepted epoch is the highest at every later election.
- *Only entries that a majority acked in this epoch are committed* (`Commit`). An ack of another
  epoch is about another log; one of an older incarnation of a seed is about a memory that is gone.
- *A publication is taken once* (I6), since numbers of a publisher are taken in order, and the log
  itself says which were (`mdserver.cluster.dedupe`).
- *A publisher is told of a gap only by a coordinator that was not deposed* when the number came: a
  publisher whose acknowledged number is expected takes itself for forgotten, and begins anew, while
  the newer coordinator may still take its earlier attempts. So the answer waits for the commit of
  an entry that was appended no earlier than the number came. (The same is done for reads in raft,
  dissertation, section 6.4; an entry needs no round of messages of its own.)

A pre-vote changes nothing at the seeds, so a member with a bad link disturbs nobody. It is skipped
if a candidacy is meant to depose (`mdserver.cluster.election`), and in Standard mode PRE_VOTING
leads to ACTIVE at once (`assume`). docs/cluster.md, "How it works"; `GroupLog`, `Candidates`.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.dedupe import Verdict, too_many
from mdserver.cluster.forgetting import Idleness, SubjectSweep
from mdserver.cluster.guards import Guard, Refusals
from mdserver.cluster.log import GroupLog, Run
from mdserver.cluster.messages import ForwardReplyItem, PromiseItem
from mdserver.errors import LocalProtocolError

if TYPE_CHECKING:
    from mdserver.core.message import Publication


class CoordinatorState(enum.Enum):
    """The states of a candidacy; the module's docstring says what leads from one to the next."""

    PRE_VOTING = "pre-voting"
    PREPARING = "preparing"
    SYNCING = "syncing"
    ACTIVE = "active"
    STOPPED = "stopped"


class CoordinatorEvent(enum.Enum):
    """An event that changes the state of a coordinator; see `TRANSITIONS`."""

    PRE_VOTED = "pre-voted"
    ELECTED = "elected"
    ESTABLISHED = "established"
    ASSUMED = "assumed"
    DEPOSED = "deposed"


# To look up a member of an enum takes CPython 3.11 as long as a call, and this is for each batch.
_ACTIVE = CoordinatorState.ACTIVE
TRANSITIONS: dict[tuple[CoordinatorState, CoordinatorEvent], CoordinatorState] = {
    (CoordinatorState.PRE_VOTING, CoordinatorEvent.PRE_VOTED): CoordinatorState.PREPARING,
    (CoordinatorState.PREPARING, CoordinatorEvent.ELECTED): CoordinatorState.SYNCING,
    (CoordinatorState.SYNCING, CoordinatorEvent.ESTABLISHED): CoordinatorState.ACTIVE,
    (CoordinatorState.PRE_VOTING, CoordinatorEvent.ASSUMED): CoordinatorState.ACTIVE,
    (CoordinatorState.PRE_VOTING, CoordinatorEvent.DEPOSED): CoordinatorState.STOPPED,
    (CoordinatorState.PREPARING, CoordinatorEvent.DEPOSED): CoordinatorState.STOPPED,
    (CoordinatorState.SYNCING, CoordinatorEvent.DEPOSED): CoordinatorState.STOPPED,
    (CoordinatorState.ACTIVE, CoordinatorEvent.DEPOSED): CoordinatorState.STOPPED,
}


class Coordinator:
    """The candidacy for one epoch, and the coordinator that it becomes if enough seeds promise.

    `seeds` are those of the list `list_number`, by which votes and acks of this epoch are counted
    whatever list follows (spec: `Relist`). `needed` is how many have to promise: a majority, or all
    for a `cold` start.
    `own` is the seed of the candidate's member, if it is one. `readmit` are the incarnations that
    its PREPARE takes back. `deadline` (ns) is when a candidacy is given up. `awaited` are the seeds
    that have to promise too if a promise is of a log that may be an older copy.

    `incarnations`: of each seed that promised or was registered, the incarnation below which its
    acks do not count; `acked`: how much of the log each seed acked, and `acked_by` in which
    incarnation. `base` is the length of the adopted log. `known` are the incarnations below which
    nothing of a seed counts, as promises name them. `deferred` are answers that wait for a commit:
    (length of the log, contact, answer).
    """

    __slots__ = (
        "acked",
        "acked_by",
        "awaited",
        "base",
        "cold",
        "deadline",
        "deferred",
        "epoch",
        "group",
        "idleness",
        "incarnations",
        "known",
        "list_number",
        "log",
        "majority",
        "needed",
        "own",
        "pre_votes",
        "promises",
        "readmit",
        "refusals",
        "seeds",
        "state",
        "sweep",
    )

    def __init__(
        self, group: int, epoch: int, log: GroupLog, seeds: Sequence[str], deadline: int
    ) -> None:
        self.group = group
        self.epoch = epoch
        self.log = log
        self.seeds = seeds
        self.deadline = deadline
        self.cold = False
        self.majority = len(seeds) // 2 + 1
        self.needed = self.majority
        self.own = ""
        self.list_number = 1
        self.readmit: dict[str, int] = {}
        self.state = CoordinatorState.PRE_VOTING
        self.pre_votes: dict[str, None] = {}
        self.promises: dict[str, tuple[int, PromiseItem]] = {}
        self.known: dict[str, int] = {}
        self.incarnations: dict[str, int] = {}
        self.acked: dict[str, int] = {}
        self.acked_by: dict[str, int] = {}
        self.awaited: Sequence[str] = ()
        self.base = 0
        self.deferred: list[tuple[int, str, ForwardReplyItem]] = []
        self.idleness = Idleness()
        self.sweep: SubjectSweep | None = None
        self.refusals = Refusals()

    def transition(self, event: CoordinatorEvent) -> None:
        """Move on in `TRANSITIONS`. Raises LocalProtocolError if it has no such move."""
        target = TRANSITIONS.get((self.state, event))
        if target is None:
            raise LocalProtocolError(f"a {self.state.value} coordinator cannot be {event.value}")
        self.state = target

    def stop(self) -> None:
        """Become STOPPED: a newer epoch is known, or no majority is in sight."""
        if self.state is not CoordinatorState.STOPPED:
            self.transition(CoordinatorEvent.DEPOSED)

    def pre_voted(self, seed: str) -> bool:
        """Note that a seed would promise; return True once, when a majority would."""
        if self.state is not CoordinatorState.PRE_VOTING or not self._votes(seed):
            return False
        self.pre_votes[seed] = None
        if len(self.pre_votes) < self.majority:
            return False
        self.transition(CoordinatorEvent.PRE_VOTED)
        return True

    def _votes(self, member: str) -> bool:
        """Return whether a member is a seed.

        Only majorities of the same seeds are certain to have a seed in common.
        """
        if member in self.seeds:
            return True
        self.refusals.note(Guard.VOTE_OF_NO_SEED)
        return False

    def assume(self) -> None:
        """Become ACTIVE without an election, in Standard mode: nobody votes there."""
        self.transition(CoordinatorEvent.ASSUMED)

    def prepare_at_once(self) -> None:
        """Skip the pre-vote: a hand-over, a readmission or a cold start is meant to depose."""
        self.transition(CoordinatorEvent.PRE_VOTED)

    def promised(
        self, seed: str, incarnation: int, known: dict[str, int], item: PromiseItem
    ) -> PromiseItem | None:
        """Note a promise; once there are enough, return the one whose log is the best.

        A promise by an incarnation older than another promise tells of does not count: that seed
        lost its record meanwhile (spec: `NoteInPromise`). The best log is the one of the highest
        accepted epoch, of these the longest: the merely longest may hold entries that were dropped.
        A candidate that is a seed waits for its own promise: the adopted log is put into its own,
        which counts from then on, so its vote record has to be on the disk by then.
        """
        if self.state is not CoordinatorState.PREPARING:
            self.refusals.note(Guard.PROMISE_LATE)
            return None
        if not self._votes(seed):
            return None
        for name, least in known.items():
            self.known[name] = max(least, self.known.get(name, 0))
        self.promises[seed] = (incarnation, item)
        # A seed that this election takes back does not vote in it: what it promised before the loss
        # is not known (spec: `Readmit`, "readmission elects anew").
        valid = {
            name: promise
            for name, promise in self.promises.items()
            if promise[0] >= self.known.get(name, 0) and name not in self.readmit
        }
        if len(valid) < len(self.promises):
            self.refusals.note(Guard.PROMISE_LOST)
        if len(valid) < self.needed:
            return None
        if self.own and self.own not in valid:
            self.refusals.note(Guard.PROMISE_WITHOUT_OWN)
            return None
        # A log that was read from a disk may be an older copy, so a majority is not enough: the
        # newer copy may be outside of it (docs/cluster.md, "Older copies").
        if any(promise.unverified for _, promise in valid.values()) and any(
            seed not in self.promises and seed not in self.readmit for seed in self.awaited
        ):
            self.refusals.note(Guard.PROMISE_UNVERIFIED)
            return None
        self.transition(CoordinatorEvent.ELECTED)
        self.incarnations = {name: promise[0] for name, promise in valid.items()}
        return max((item for _, item in valid.values()), key=lambda i: (i.accepted, i.length))

    def adopted(self) -> None:
        """Begin to establish the log, which now has the entries of the best promise.

        The log is of this epoch from here on although its entries keep theirs: the accepted epoch
        says with whose log it agrees.
        """
        assert self.state is CoordinatorState.SYNCING
        self.log.epoch = self.epoch
        self.base = self.log.length

    def register(self, seed: str, incarnation: int) -> None:
        """Count only this incarnation's acks of a seed from now on (spec: `Register`).

        What an earlier incarnation acked is dropped: the seed may not hold it any more, and acks of
        it that come late are refused in `ack` (spec: "acks are fenced").
        """
        assert self.state is CoordinatorState.ACTIVE
        if self.incarnations.get(seed) != incarnation:
            self.incarnations[seed] = incarnation
            self.acked.pop(seed, None)

    def may_register(
        self,
        seed: str,
        incarnation: int,
        admitted: bool,
        known: dict[str, int],
        *,
        anew: bool = False,
    ) -> bool:
        """Return whether a recovering seed may be taken back by this coordinator.

        `known` are the incarnations below which nothing of a seed counts, as this member's vote
        record has them. A seed that lost its record (others know it, but it is not `admitted`) is
        taken back only by the coordinator of an epoch that was elected for this loss: an epoch
        before it may rest on promises that the seed forgot (spec: "readmission elects anew"). An
        epoch of a list without the seed rests on none of its promises, so a seed that begins
        `anew` gets the log from it.
        """
        least = max(self.known.get(seed, 0), known.get(seed, 0))
        if self.state is not CoordinatorState.ACTIVE:
            return False
        if incarnation < least:
            self.refusals.note(Guard.REGISTER_INCARNATION)
            return False
        if admitted or self.readmit.get(seed) == incarnation or not least:
            return True
        if anew and seed not in self.seeds:
            return True
        self.refusals.note(Guard.REGISTER_LOST)
        return False

    def lacks(self, seed: str, incarnation: int) -> bool:
        """Return whether a seed that lost its record needs an epoch elected for this loss."""
        if seed not in self.seeds or incarnation < self.known.get(seed, 0):
            return False
        return self.readmit.get(seed) != incarnation

    def holds_less(self, seed: str, incarnation: int, accepted: int, length: int) -> bool:
        """Return whether a seed holds less than it acked before it started again.

        Its disk is then an older copy, and may lack promises as well. Within one incarnation a seed
        keeps what it acked, so only a newer one is compared.
        """
        if seed not in self.acked or incarnation <= self.acked_by.get(seed, incarnation):
            return False
        return (accepted, length) < (self.epoch, self.acked[seed])

    def lacking(self, accepted: int, committed: int, last: int) -> bool:
        """Return whether this log lacks what a member holds as committed: older copies elected it.

        The member's log agrees with that of epoch `accepted`, and `committed` of its entries are
        committed. What was committed in an earlier epoch has to be in the log with which this one
        began (`base`), what was committed in this one anywhere in the log. `last` is the checksum
        of the last committed entry. Either is 0 if it is not known.
        """
        if not 0 < accepted <= self.epoch or not committed:
            return False
        if committed > (self.log.length if accepted == self.epoch else self.base):
            return True
        here = self.log.checksum_at(committed - 1)
        return bool(last and here) and last != here

    def unregistered(self) -> dict[str, int]:
        """Return the seeds that this epoch was elected for and that were not taken back yet."""
        return {
            seed: incarnation
            for seed, incarnation in self.readmit.items()
            if self.incarnations.get(seed) != incarnation
        }

    def ack(self, seed: str, incarnation: int, length: int) -> int | None:
        """Note what a seed holds; return how far the log is committed now, None if that is no news.

        In the specification `Activate` for a coordinator that is SYNCING, then `Commit`. The caller
        has checked that the ack is of this epoch.
        """
        # Other members hold the log too, but a majority is one of seeds (spec: `CommitQuorum`). And
        # what an earlier incarnation acked may be lost with its memory ("acks are fenced").
        if seed not in self.seeds:
            return None
        if incarnation < self.incarnations.get(seed, 0):
            self.refusals.note(Guard.ACK_INCARNATION)
            return None
        acked = self.acked
        self.acked_by[seed] = incarnation
        # A shorter ack takes nothing back: what a seed acked of an epoch it holds, unless its disk
        # is an older copy, and `holds_less` finds that out.
        if length >= acked.get(seed, 0):
            acked[seed] = length
        active = self.state is _ACTIVE
        if active and length <= self.log.committed:
            return None
        if len(acked) < self.majority:
            return None
        # The longest part that a majority holds: of three lengths the second largest.
        agreed = sorted(acked.values())[-self.majority] if len(acked) > 1 else acked[seed]
        if not active and self.state is CoordinatorState.SYNCING and agreed >= self.base:
            self.transition(CoordinatorEvent.ESTABLISHED)
            return agreed
        return agreed if active and agreed > self.log.committed else None

    def append(
        self, publications: "Sequence[Publication]", contact: str, first: int
    ) -> list[ForwardReplyItem]:
        """Number publications at the end of the log; return what can be answered at once.

        `first` is the contact's ticket of the first publication; the others follow. A repeat of a
        publication that is not committed yet is answered once it is (`due`): a later epoch may drop
        it, and an ack would then be false (I8; spec: `Delivery!Tell`, "acknowledged at commit").
        A gap is answered once the first entry that was appended with it, or for it, is committed
        (spec: `Delivery!Refuse`, "refused at commit").
        """
        assert self.state is _ACTIVE
        for publication in publications:
            if publication.number:
                break
        else:
            # None is numbered by its publisher, so there are no repeats to look for.
            run = Run(self.log.length, len(publications), contact, first)
            self.log.number(self.epoch, publications, run)
            return []
        answers: list[ForwardReplyItem] = []
        log, before = self.log, self.log.length
        gaps: list[ForwardReplyItem] = []
        tail = self._tail(len(publications))
        for ticket, publication in enumerate(publications, first):
            answer = self._check(publication, ticket, tail) if publication.number else None
            if answer is None:
                log.number(self.epoch, (publication,), Run(log.length, 1, contact, ticket))
            elif answer.expected not in (None, publication.number):  # it is not one too many
                gaps.append(answer)
            elif answer.duplicate and log.committed < log.length:
                self.refusals.note(Guard.REPEAT_UNCOMMITTED)
                self.deferred.append((log.length, contact, answer))
            else:
                answers.append(answer)
        if gaps:
            if log.length == before:
                log.append_empty(self.epoch, publications[0].time)
            self.deferred += [(before + 1, contact, answer) for answer in gaps]
        return answers

    def _tail(self, more: int) -> dict[str, int] | None:
        """Count each publisher's numbers that are not committed; None if no bound is near."""
        log = self.log
        if log.length - log.committed + more <= log.numbers_kept:
            return None  # nearly always
        return log.uncommitted()

    def _check(
        self, publication: "Publication", ticket: int, tail: dict[str, int] | None
    ) -> ForwardReplyItem | None:
        """Return the answer to a number that gets no place in the log; None if it gets one."""
        number, name, kept = publication.number, publication.publisher, self.log.numbers_kept
        verdict, expected, position = self.log.publishers.verdict(name, number)
        if verdict is Verdict.NEXT:
            if tail is None:
                return None
            open_numbers = tail.get(name, 0)
            if open_numbers < kept:
                tail[name] = open_numbers + 1
                return None
            self.refusals.note(Guard.NUMBERS_OPEN)
            # Contacts bound these too, but each its own only: a publisher may speak to several.
            return ForwardReplyItem(self.group, ticket, 0, 0, False, too_many(kept), expected)
        if verdict is Verdict.TAKEN:
            self.refusals.note(Guard.NUMBER_TAKEN)
            epoch, seq = position.epoch, position.seq
            return ForwardReplyItem(self.group, ticket, epoch, seq, True, None, None)
        self.refusals.note(Guard.NUMBER_GAP)
        reason = f"number {number} does not follow: the next of this publisher is {expected}"
        return ForwardReplyItem(self.group, ticket, 0, 0, False, reason, expected)

    def due(self) -> Iterable[tuple[str, ForwardReplyItem]]:
        """Return the deferred answers for which enough is committed now, and forget them."""
        committed = self.log.committed
        ready = [(contact, answer) for at, contact, answer in self.deferred if at <= committed]
        if ready:
            self.deferred = [later for later in self.deferred if later[0] > committed]
        return ready
