"""The acceptor of one group on one seed: promises epochs, and holds a log that counts.

This is the part of a group that Paxos calls an acceptor (Lamport, "Paxos Made Simple", 2001) and
raft a voter. It decides two things only: whether to promise an epoch to a candidate, and whether to
take what a coordinator sends. Both follow one rule: nothing of an epoch below the promised one. A
majority that promised epoch 7 thereby ends epoch 6, whether its coordinator knows or not, and a
candidate that hears a majority hears of everything that was ever committed, because any two
majorities share a seed. All of that leans on a seed not forgetting, in two ways:

- *It must not forget a promise.* Promises live in the vote record, which the caller has on its disk
  before an answer leaves (`mdserver.cluster.stable_storage`).
- *It must not forget entries that it acked.* But entries are memory, so a restart forgets them all.
  A seed that merely started again therefore must not count: it would say "I hold nothing" about
  entries that it once helped to commit. This is what the standing is for.

    RECOVERING --- INSTALL, INSTALL_COLD ---> NORMAL
        |                                     |   ^
        | LOSE                           LOSE |   | INSTALL, INSTALL_COLD
        '---------------> LOST <--------------'   |
                            '--- READMIT ---> RETURNING

A seed starts RECOVERING and becomes NORMAL when the active coordinator of a new enough epoch has
registered its incarnation and handed it the log (`INSTALL`), or in a cold start, in which every
seed promises and so no seed's memory is missing (`INSTALL_COLD`). A RECOVERING seed promises cold
starts only. If others know more of the seed than its vote record does, the record itself was lost:
the seed may have promised what it does not know of. It is LOST, and only an operator can say that
its old promises no longer matter; with that word it is RETURNING, and recovers through an epoch
that was elected without its vote. docs/cluster.md, "How it works" and "Lost memory"; in the
specification `Promise`, `Sync`, `Accept`, `Install`, `ColdPromise`, `ColdSync`, and `Readmit.tla`.
"""

import enum
from typing import TYPE_CHECKING

from attrs import define

from mdserver.cluster.guards import Guard, Refusals
from mdserver.cluster.messages import (
    Nack,
    NackItem,
    Prepare,
    PreVote,
    PreVoteGranted,
    PreVoteGrantedItem,
    Promise,
    PromiseItem,
    portions,
)
from mdserver.cluster.part import MemberPart
from mdserver.cluster.votes import Vote
from mdserver.errors import LocalProtocolError

if TYPE_CHECKING:
    from mdserver.cluster.log import GroupLog
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.votes import VoteRecord


class Standing(enum.Enum):
    """Whether a seed counts in a group: only a NORMAL one does.

    LOST waits for an operator; RETURNING has the operator's word (for this seed, or for a cold
    start with it), and asks the coordinators for an epoch that is elected for its loss.
    """

    NORMAL = "normal"
    RECOVERING = "recovering"
    LOST = "lost"
    RETURNING = "returning"


class AcceptorEvent(enum.Enum):
    """An event in the life of a seed in a group; see `TRANSITIONS`."""

    PROMISE = "promise"
    PROMISE_COLD = "promise-cold"
    SYNC = "sync"
    ACCEPT = "accept"
    INSTALL = "install"
    INSTALL_COLD = "install-cold"
    LOSE = "lose"
    READMIT = "readmit"


TRANSITIONS: dict[tuple[Standing, AcceptorEvent], Standing] = {
    (Standing.NORMAL, AcceptorEvent.PROMISE): Standing.NORMAL,
    (Standing.NORMAL, AcceptorEvent.PROMISE_COLD): Standing.NORMAL,
    (Standing.NORMAL, AcceptorEvent.SYNC): Standing.NORMAL,
    (Standing.NORMAL, AcceptorEvent.ACCEPT): Standing.NORMAL,
    (Standing.NORMAL, AcceptorEvent.INSTALL_COLD): Standing.NORMAL,
    (Standing.NORMAL, AcceptorEvent.LOSE): Standing.LOST,
    (Standing.RECOVERING, AcceptorEvent.PROMISE_COLD): Standing.RECOVERING,
    (Standing.RECOVERING, AcceptorEvent.INSTALL): Standing.NORMAL,
    (Standing.RECOVERING, AcceptorEvent.INSTALL_COLD): Standing.NORMAL,
    (Standing.RECOVERING, AcceptorEvent.LOSE): Standing.LOST,
    (Standing.LOST, AcceptorEvent.PROMISE_COLD): Standing.RETURNING,
    (Standing.LOST, AcceptorEvent.LOSE): Standing.LOST,
    (Standing.LOST, AcceptorEvent.READMIT): Standing.RETURNING,
    (Standing.RETURNING, AcceptorEvent.PROMISE_COLD): Standing.RETURNING,
    (Standing.RETURNING, AcceptorEvent.INSTALL): Standing.NORMAL,
    (Standing.RETURNING, AcceptorEvent.INSTALL_COLD): Standing.NORMAL,
    (Standing.RETURNING, AcceptorEvent.LOSE): Standing.RETURNING,
}
"""A missing pair is refused: with a NACK if a candidate or coordinator asked for it."""


STEP_TRACES = {
    AcceptorEvent.SYNC: "Sync",
    AcceptorEvent.INSTALL: "Install",
    AcceptorEvent.INSTALL_COLD: "ColdSync",
}
"""The name in traces of each step by which a seed takes a coordinator's log."""


class Acceptor:
    """The vote and the standing of a seed in one group.

    `unverified`: the log is as the disk had it, and no coordinator has compared it since. The disk
    may be an older copy, so a candidate with this log waits for every seed in sight.
    """

    __slots__ = ("_group", "_log", "_refusals", "_votes", "standing", "unverified")

    def __init__(
        self, group: int, votes: "VoteRecord", log: "GroupLog", refusals: Refusals | None = None
    ) -> None:
        self._refusals = refusals or Refusals()
        self._group = group
        self._votes = votes
        self._log = log
        self.standing = Standing.RECOVERING
        self.unverified = False

    @property
    def promised(self) -> Vote:
        """Return the newest epoch that was promised, and to whom."""
        return self._votes.promised[self._group]

    def may(self, step: AcceptorEvent) -> bool:
        """Return whether the transition table has the step."""
        return (self.standing, step) in TRANSITIONS

    def transition(self, step: AcceptorEvent) -> None:
        """Move on in `TRANSITIONS`. Raises LocalProtocolError if it does not have the step."""
        target = TRANSITIONS.get((self.standing, step))
        if target is None:
            raise LocalProtocolError(f"a {self.standing.value} seed does not {step.value}")
        self.standing = target

    def refuses(self, epoch: int, *, cold: bool) -> bool:
        """Return whether this seed refuses a PREPARE of this epoch (spec: `Promise`).

        An epoch at the promise is refused as well as one below it: it is promised to one candidate,
        and a second one would be a second coordinator of it (I5, `Candidates!OneCoordinator`).
        """
        step = AcceptorEvent.PROMISE_COLD if cold else AcceptorEvent.PROMISE
        return not self.may(step) or epoch <= self.promised.epoch

    def promise(self, epoch: int, candidate: str, *, cold: bool) -> None:
        """Promise an epoch that this seed does not refuse.

        The caller stores the vote record before the answer leaves.
        """
        self.transition(AcceptorEvent.PROMISE_COLD if cold else AcceptorEvent.PROMISE)
        assert epoch > self.promised.epoch, "an epoch is promised once"
        self._votes.promised[self._group] = Vote(epoch, candidate)

    def takes(self, epoch: int, register: int, *, cold: bool) -> AcceptorEvent | None:
        """Return the step by which this seed takes a coordinator's log, None if it refuses it.

        `register` is the incarnation of this seed that the coordinator counts from now on, or 0.
        """
        # The rule of every acceptor: nothing of an epoch below the promised one. The candidate that
        # got the promise may have adopted its log already, and would not see what is acked here.
        if epoch < self.promised.epoch:
            return None
        if cold and self.may(AcceptorEvent.INSTALL_COLD):
            # Only the promise of this very epoch says that the full attendance included this seed
            # (spec: "a cold log is for who promised it").
            if epoch == self.promised.epoch:
                return AcceptorEvent.INSTALL_COLD
            self._refusals.note(Guard.LOG_COLD_UNPROMISED)
            return None
        # After a registration of an earlier incarnation the coordinator would go on counting what
        # that one acked, although its memory is gone (spec: `InstallFrom`).
        if register == self._votes.incarnation and self.may(AcceptorEvent.INSTALL):
            return AcceptorEvent.INSTALL
        if self.may(AcceptorEvent.SYNC):
            return AcceptorEvent.SYNC
        self._refusals.note(Guard.LOG_UNREGISTERED)
        return None

    def take(self, step: AcceptorEvent, epoch: int, coordinator: str) -> bool:
        """Take a coordinator's log; return whether the vote record has to be stored before the ack.

        The caller replaces the entries. To take the log of an epoch is to promise it (in `Sync` of
        the specification `promised` rises as well), so an ack of an epoch that is new here waits
        for the vote record.
        """
        self.transition(step)
        self.unverified = False
        if self.promised.epoch == epoch:
            return False
        self._votes.promised[self._group] = Vote(epoch, coordinator)
        return True

    def accepts(self, epoch: int) -> bool:
        """Return whether this seed takes entries of this epoch (spec: `Accept`).

        An ack says "I hold the log of this epoch up to here". That is true only of a log that this
        epoch's coordinator gave as a whole before (SYNC or INSTALL): the tail of an older epoch may
        have other entries at the same places.
        """
        return (
            self.standing is Standing.NORMAL  # the only one with `AcceptorEvent.ACCEPT`
            and self.promised.epoch == epoch
            and self._log.epoch == epoch
        )


@define(eq=False)
class Voter(MemberPart):
    """Answers candidates as the seed of this member, for many groups in one message."""

    _storage: "StableStorage"

    def pre_vote(self, candidate: str, pre_vote: PreVote) -> None:
        """Say which of these candidacies this seed would promise, without promising anything."""
        if not self._votes_by(pre_vote.list_number):
            return
        granted: list[PreVoteGrantedItem] = []
        newer: list[NackItem] = []
        for item in pre_vote.items:
            reply = self.groups[item.group].step(candidate, item)
            if isinstance(reply, PreVoteGrantedItem):
                granted.append(reply)
            elif isinstance(reply, NackItem):
                newer.append(reply)
        if newer:
            self._outgoing.send((candidate,), Nack(newer))
        if granted:
            self._outgoing.send((candidate,), PreVoteGranted(granted))

    def _votes_by(self, number: int) -> bool:
        """Return whether this member votes on candidacies by the list of seeds of that number.

        Only majorities of lists that follow each other are certain to have a seed in common: so
        nothing is promised by an older list than the one noted here, nor by a newer one before that
        is noted (spec: `Relist`, "older lists are refused", "newer lists are noted first").
        """
        seeds, refuse = self._members.seeds, self._outgoing.refuse
        if number != seeds.number:
            older = number < seeds.number
            refuse(Guard.VOTE_OLDER_LIST if older else Guard.VOTE_NEWER_LIST)
            return False
        if self.groups[0].acceptor is None and seeds.include_me:
            refuse(Guard.PREPARE_NOT_VOTING)  # its list was noted just now: it takes part soon
            return False
        return seeds.include_me

    def prepare(self, candidate: str, prepare: Prepare) -> None:
        """Promise what may be promised; refuse the rest, and name the newer epoch.

        All promises of the message take one write of the vote record.
        """
        groups, storage = self.groups, self._storage
        if not self._votes_by(prepare.list_number):
            return
        # The quorum that takes a seed back is made of other seeds only (spec: `Readmit!RPromise`):
        # its own promise would be worth what its lost record is worth.
        if self._settings.me in prepare.readmit:
            self._outgoing.refuse(Guard.PREPARE_READMITS)
            return
        # The promises of a cold start together say that no seed holds more (spec: `ColdPromise`). A
        # seed that may have lost its record unnoticed cannot say so, unless an operator does.
        if prepare.cold and not prepare.ordered and not groups.standing_known:
            self._outgoing.refuse(Guard.PREPARE_COLD_EARLY)
            return
        refused: list[NackItem] = []
        promised: list[PromiseItem] = []
        for item in prepare.items:
            reply = groups[item.group].step(candidate, item, prepare)
            if isinstance(reply, PromiseItem):
                promised.append(reply)
            elif isinstance(reply, NackItem):
                refused.append(reply)
        if refused:
            self._outgoing.send((candidate,), Nack(refused))
        if not promised:
            return
        if prepare.cold and groups.standing_known and not (groups.record_lost or groups.returning):
            # Every seed promises a cold start, so from now on all know this incarnation.
            storage.votes.admitted = True
        if not storage.note(prepare.readmit):
            storage.store()
        for items in portions(promised):
            message = Promise(storage.votes.incarnation, dict(storage.votes.known), items)
            storage.send_stored(candidate, message)
