"""`ClusterDeliveryMode = Guaranteed`: a majority of seeds decides, and remembers.

This module says which message goes to which part, what is done a few times a second, and above all
what seeds know of each other's starts. A seed whose vote record is gone, or an older copy, may have
given promises that it does not know of, and cannot see that by itself. But others noted its
incarnations (the number of its starts) in their own records, and say so in their first message
(`Hello.known`):

- They know a later incarnation: the record is an older copy, or a new one after a loss. The seed is
  LOST, and votes no more until an operator takes it back (docs/cluster.md, "Lost memory").
- They know the same incarnation, but of another start (each start has a random number): somebody
  put back an older copy, which gave the same incarnation a second time. They note a later one, so
  the seed learns of it in the next Hello (docs/cluster.md, "Older copies").
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from mdserver.cluster import messages as msg
from mdserver.cluster.guards import Guard
from mdserver.cluster.part import MemberPart
from mdserver.cluster.votes import after_loss, follows_on_record

if TYPE_CHECKING:
    from mdserver.cluster.acceptor import Voter
    from mdserver.cluster.coordinators import Coordinators
    from mdserver.cluster.election import Election
    from mdserver.cluster.following import Following
    from mdserver.cluster.learner import Learner
    from mdserver.cluster.relisting import Relisting
    from mdserver.cluster.stable_storage import StableStorage


@define(eq=False)
class Guaranteed(MemberPart):
    """The mode in which a majority of seeds decides.

    A `Mode`; `Standard` is its counterpart.
    """

    _following: "Following"
    _learner: "Learner"
    sequencer: "Coordinators"
    _storage: "StableStorage"
    _voter: "Voter"
    _election: "Election"
    relisting: "Relisting"
    handlers: dict[type, Callable[[str, Any], None]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        voter, election = self._voter, self._election
        learner, coordinators = self._learner, self.sequencer
        self.handlers = {
            msg.PreVote: voter.pre_vote,
            msg.PreVoteGranted: election.pre_vote_granted,
            msg.Prepare: voter.prepare,
            msg.Promise: self._promise,
            msg.Nack: election.nack,
            msg.Sync: learner.sync,
            msg.Accept: learner.accept,
            msg.Ack: coordinators.ack,
            msg.Commit: learner.commit,
            msg.SyncRequest: coordinators.sync_request,
            msg.CopyRequest: learner.copying.give,
            msg.CopyReply: learner.copying.take,
            msg.HandOver: coordinators.on_hand_over,
            msg.TakePart: self.relisting.invited,
            msg.SeedOrder: self.relisting.ordered,
        }

    # What other members say of themselves and of this one

    def greeted(self, peer: str, hello: msg.Hello) -> None:
        """Compare what a member knows of this one, and what is known of it here."""
        self._compare_starts(peer, hello)
        self._compare_own(peer, hello.known)

    def _compare_own(self, peer: str, known_there: Mapping[str, int]) -> None:
        """Wait to be readmitted if another member knows of later starts of this seed.

        Its vote record is then an older copy or a new one, and says too little of its promises.
        """
        known, votes = known_there.get(self._settings.me, 0), self._storage.votes
        if self.groups[0].acceptor is None or not known:
            return
        if votes.admitted or self.groups.returning:
            missed = known > votes.incarnation
        else:
            # No seed has noted this start yet, since it is not admitted: a start that they know by
            # the same number is another one. A seed that is LOST took a number above theirs.
            # So did one that begins anew.
            missed = known >= votes.incarnation or not (self.groups.record_lost or self.groups.anew)
        if missed:
            self._lose(peer, known)

    def _compare_starts(self, peer: str, hello: msg.Hello) -> None:
        """Note a later incarnation of a seed whose incarnation another start of it had.

        Its record is an older copy, and the Hello that follows says so.
        """
        votes = self._storage.votes
        same = hello.admitted and votes.known.get(peer, 0) == hello.incarnation
        if same and votes.starts.get(peer, hello.start) != hello.start:
            self._outgoing.refuse(Guard.STARTS_DIFFER)
            self._outgoing.log("seed is an older copy", seed=peer, incarnation=hello.incarnation)
            votes.starts.pop(peer)
            self._storage.note({peer: hello.incarnation + 1})
            self._outgoing.send((peer,), self._storage.hello())

    def outdated(self, peer: str, hello: msg.Hello) -> None:
        """Note that a seed's record is an older copy, so that its next link can learn it.

        This link is closed. A later incarnation of the seed may be known here only from its Hello,
        which is not noted in the vote record. Without a note the seed would be refused every time,
        and never learn why. What it knows of this seed is nevertheless true, and is compared with
        the record here: otherwise two seeds that both are older copies would always refuse each
        other.
        """
        self._outgoing.refuse(Guard.HELLO_OLDER)
        later = self._members.peers[peer].newest
        if peer in self._members.seeds.names and self._storage.note({peer: later}):
            self._outgoing.log("seed is an older copy", seed=peer, incarnation=hello.incarnation)
        self._compare_own(peer, hello.known)

    def _lose(self, peer: str, known: int) -> None:
        """Wait to be readmitted: others know more of this seed than its record does."""
        for group in self.groups.coordinated:
            group.ballots.depose()
        self._outgoing.refuse(Guard.RECORD_OLDER)
        self._outgoing.log("vote record lost", known=known, told_by=peer)
        self.groups.lose()
        self._renew(known)

    def _renew(self, known: int) -> None:
        """Continue like a member that has just started, with an incarnation above every known one.

        Acks of the old one do not count any more. The name of the contact stays: clients may wait
        for what was forwarded under it.
        """
        votes = self._storage.votes
        votes.admitted = False
        votes.may_name = False  # an older copy does not know what was named after it
        votes.incarnation = after_loss(max(known, votes.incarnation))
        for group in self.groups:
            group.trace("Lose", group.log.epoch)
        self._storage.store()
        for other in self._outgoing.linked:
            self._storage.send_stored(other, self._storage.hello())

    def heartbeat(self, peer: str, heartbeat: msg.Heartbeat) -> None:
        """Remember the incarnations of seeds, and compare lists of seeds and logs."""
        if not self.relisting.heard(peer, heartbeat):
            return
        if heartbeat.admitted and peer in self._members.seeds.names:
            told, storage = self._members.peers[peer], self._storage
            votes, news = storage.votes, storage.note({peer: told.incarnation})
            # Others may have told of the incarnation before, but only the seed itself tells the
            # random number of its start.
            lacked = peer not in votes.starts and votes.known.get(peer, 0) == told.incarnation
            if news or (lacked and told.start and follows_on_record(told.incarnation)):
                votes.starts[peer] = told.start
                storage.store()
        self._learner.heartbeat(peer, heartbeat)

    def _promise(self, peer: str, promise: msg.Promise) -> None:
        """Count promises, and establish the logs of the candidacies that they decide."""
        won = self._election.promise(peer, promise)
        if won:
            self.sequencer.establish(won)

    # Time

    def link_lost(self, peer: str) -> None:
        """Assume that what was on its way to or from a member is lost."""
        self._learner.link_lost(peer)
        self.sequencer.drop_held_back(peer)

    def member_unreachable(self) -> None:
        """Look at once whose turn it is to coordinate the groups of a member that is gone."""
        self._election.look()

    def tick(self) -> None:
        """Check the quorum, stand for groups, join, and hand groups over; a few times a second."""
        self.sequencer.check_quorum()
        self.relisting.look()
        if self.relisting.may_join():
            self._join()
        self._election.look()
        self._following.join()
        self.sequencer.hand_over()

    def _join(self) -> None:
        """Begin to take part, and learn whether this member has lost its vote record."""
        self.groups.anew = self.relisting.forgot
        if self.groups.anew:
            self._renew(self._members.known_incarnation)
        self.relisting.join()
        # It was no seed when others said what they know of it.
        for name, other in self._members.peers.items():
            self._compare_own(name, other.known)
        self.relisting.joined()

    def rebalance(self) -> None:
        """Hand groups over without delay: members miss others that they did not miss before."""
        self.sequencer.hurry()

    # What others ask

    def unready(self) -> str | None:
        """Return why this member serves no clients now; None if it does."""
        if self.groups.record_lost and self._members.seeds.include_me:
            return (
                "the vote record of this seed was lost: take it back with "
                f"`mdserver cluster readmit {self._settings.me}`"
            )
        if not self._members.quorum(self._outgoing.now):
            return "no majority of the seeds is in sight"
        return self.missing() or self._following.unready()

    def missing(self) -> str | None:
        """Return what this member lacks, even if others lack it too; None if it lacks nothing."""
        not_voting = self.groups.not_voting if self._members.seeds.include_me else []
        if not_voting:
            return f"recovering: {len(not_voting)} of {len(self.groups)} groups are missing"
        silent = self._members.without_majority(len(self.groups), not_voting, self._outgoing.now)
        if silent:
            return f"no majority of the seeds votes in {silent} of {len(self.groups)} groups"
        return self._following.joining()
