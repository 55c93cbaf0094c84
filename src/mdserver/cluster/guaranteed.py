"""`ClusterDeliveryMode = Guaranteed`: what a member does so that seeds decide by majority."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mdserver.cluster import messages as say
from mdserver.cluster.election import Election
from mdserver.cluster.leading import Leading
from mdserver.cluster.learner import Learner
from mdserver.cluster.votes import after_loss

if TYPE_CHECKING:
    from mdserver.cluster.ground import Ground


class Guaranteed:
    """Elections, replication to a majority of seeds, and the seeds that lost their memory.

    `handlers`: what it does with the messages of this mode. `Standard` is its counterpart.
    """

    def __init__(self, ground: "Ground") -> None:
        self.ground = ground
        self.learner = Learner(ground)
        self.election = Election(ground)
        self.leading = Leading(ground, self.election, self.learner)
        self.handlers: dict[type, Callable[[str, Any], None]] = {
            say.Canvass: self.election.canvassed,
            say.Support: self.election.support,
            say.Prepare: self.election.prepare,
            say.Promise: self._promise,
            say.Nack: lambda _, message: self.election.nack(message),
            say.Sync: self._sync,
            say.Accept: self.learner.accept,
            say.Ack: self.leading.ack,
            say.Commit: self.learner.commit,
            say.Need: self.leading.need,
            say.Copy: self.learner.copying.give,
            say.Copied: self.learner.copying.take,
            say.HandOver: self.leading.handed,
        }

    # What other members say

    def greeted(self, peer: str, hello: say.Hello) -> None:
        """A member said who it is, and what it knows of this one."""
        self._compare_starts(peer, hello)
        self._compare_own(peer, hello)

    def _compare_own(self, peer: str, hello: say.Hello) -> None:
        """Wait to be readmitted if another member knows of later starts of this seed."""
        ground = self.ground
        known, votes, seed = hello.known.get(ground.me, 0), ground.votes, ground.seed
        if seed is None or not known:
            return
        if votes.admitted or seed.returning:
            missed = known > votes.incarnation
        else:
            # Nobody noted this very incarnation yet: whom they know by its number is another one.
            missed = known >= votes.incarnation or not seed.lost
        if missed:
            self._lost(peer, known)

    def _compare_starts(self, peer: str, hello: say.Hello) -> None:
        """Tell a seed whose incarnation another start of it had: its record is an older copy."""
        ground, votes = self.ground, self.ground.votes
        same = hello.admitted and votes.known.get(peer, 0) == hello.incarnation
        if same and votes.starts.get(peer, hello.start) != hello.start:
            ground.log("older copy", seed=peer, incarnation=hello.incarnation)
            votes.starts.pop(peer)
            ground.note({peer: hello.incarnation + 1})
            ground.say((peer,), ground.greeting())

    def outdated(self, peer: str, hello: say.Hello) -> None:
        """Have a seed's next link be told that its record is an older copy; this one is closed.

        What it said of a later start may have been no more than that it began: nothing is noted for
        that, and the seed would be refused for ever without a word. What it knows of this seed is
        true all the same: two that are older copies would refuse each other for ever.
        """
        ground = self.ground
        later = ground.members.peers[peer].incarnation
        if peer in ground.settings.seeds and ground.note({peer: later}):
            ground.log("older copy", seed=peer, incarnation=hello.incarnation)
        self._compare_own(peer, hello)

    def _lost(self, peer: str, known: int) -> None:
        """Others know more of this seed than its record does: wait to be readmitted."""
        ground = self.ground
        for group in list(ground.coordinators):
            self.election.depose(group)
        ground.log("lost", known=known, told_by=peer)
        if ground.seed is not None:
            ground.seed.lose()
        ground.votes.admitted = False
        ground.votes.incarnation = after_loss(max(known, ground.votes.incarnation))
        ground.contact.rename(ground.contact_name())
        ground.store()
        for other in ground.linked():
            ground.say_stored(other, ground.greeting())

    def heartbeat(self, peer: str, heartbeat: say.Heartbeat) -> None:
        """Remember the incarnations of seeds, and compare logs."""
        ground = self.ground
        if heartbeat.admitted and peer in ground.settings.seeds:
            told, votes = ground.members.peers[peer], ground.votes
            # If others told of the incarnation before, its number is not known.
            if ground.note({peer: told.incarnation}):
                votes.starts[peer] = told.start
                ground.store()
        self.learner.heartbeat(peer, heartbeat)

    def _sync(self, peer: str, sync: say.Sync) -> None:
        # A coordinator shares its log with the learner of its member: the one has to stop before
        # the other takes a newer epoch. One that is no seed hears of that epoch here first.
        for item in sync.items:
            coordinator = self.ground.coordinators.get(item.group)
            if coordinator is not None and coordinator.epoch < item.epoch:
                self.election.depose(item.group, item.epoch)
        self.learner.sync(peer, sync)

    def _promise(self, peer: str, promise: say.Promise) -> None:
        won = self.election.promise(peer, promise)
        if won:
            self.leading.establish(won)

    # Time

    def look(self) -> None:
        """A member came out of sight."""
        self.election.look(self.ground.joined)

    def tick(self) -> None:
        """What is done a few times a second."""
        self.leading.check_quorum()
        self.look()
        self.ground.join()
        self.leading.hand_over(self.ground.joined)

    def rebalance(self) -> None:
        """Members miss others that did not before: groups are handed over without delay."""
        self.leading.hurry()

    # What others ask

    def unready(self) -> str | None:
        """Why this member serves no clients now; None if it does."""
        ground = self.ground
        if ground.seed is not None and ground.seed.lost:
            return (
                "the vote record of this seed was lost: take it back with "
                f"`mdserver cluster readmit {ground.me}`"
            )
        if not ground.members.quorum(ground.now):
            return "no majority of the seeds is in sight"
        return self.missing() or ground.following.unready()

    def missing(self) -> str | None:
        """What this member lacks, whatever the others have."""
        ground = self.ground
        groups = len(ground.views)
        away = ground.seed.away if ground.seed is not None else []
        if away:
            return f"recovering: {len(away)} of {groups} groups are missing"
        dumb = ground.members.without_majority(groups, away, ground.now)
        if dumb:
            return f"no majority of the seeds votes in {dumb} of {groups} groups"
        return ground.joining()
