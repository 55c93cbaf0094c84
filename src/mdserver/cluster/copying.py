"""Catching up of members that are no seeds: from any other member, then from the coordinator.

    behind by much --- CopyRequest ---> a ready member --- CopyReply ---> behind by little
    behind by little --- SyncRequest ---> the coordinator --- Sync ---> the group is followed

A copy holds only what is committed. That is the same everywhere (I2), so any member may give it,
and a coordinator is not slowed down by members that join (spec: `Delivery!Copy`). The coordinator
then gives what came since.

A seed takes no copies, because its log counts: what it acked before it started again may have been
committed by that ack, and only the coordinator surely holds it. The specification refutes recovery
from a majority of peers (rule "recover from the coordinator only"). docs/cluster.md, "Catching up".
"""

from typing import TYPE_CHECKING

from attrs import define

from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import CopyReply, CopyRequest, portions
from mdserver.cluster.part import MemberPart
from mdserver.cluster.replies import Gap

if TYPE_CHECKING:
    from mdserver.cluster.group import Group

Gaps = dict[int, Gap]
"""The gaps of groups, by their numbers."""


@define(eq=False)
class Copying(MemberPart):
    """Both sides of copying: asks for copies of groups, gives them, and takes them."""

    def ask(self, coordinator: str, gaps: Gaps) -> dict[int, int]:
        """Ask other members for copies; return the groups to ask the coordinator for.

        The result has the epochs of these groups. One member is asked in each epoch: if it cannot
        help, the coordinator has to. Groups are spread over the members that are ready.
        """
        left: dict[int, int] = {}
        sources: dict[str, list[int]] = {}
        ready = [
            name
            for name, peer in self._members.peers.items()
            if name != coordinator and peer.ready and self._members.alive(name, self._outgoing.now)
        ]
        for index, (epoch, committed) in gaps.items():
            group = self.groups[index]
            if (
                not ready
                or group.transfer.copy_requested_epoch >= epoch
                or not self._lacks_much(group, committed)
            ):
                left[index] = epoch
            elif group.transfer.may_request(epoch):
                group.transfer.copy_requested_epoch = epoch
                sources.setdefault(ready[index % len(ready)], []).append(index)
        for peer, groups in sources.items():
            self._outgoing.send((peer,), CopyRequest(groups))
        return left

    def _lacks_much(self, group: "Group", committed: int) -> bool:
        """Return whether so much is missing that the coordinator may have dropped it already.

        Of less the coordinator still has the entries, and those are cheaper than a whole cache.
        """
        kept = self._settings.log_kept if group.history else 0
        return group.acceptor is None and committed - group.log.committed > kept

    def give(self, peer: str, request: CopyRequest) -> None:
        """Give a member the committed part of groups, as far as it is here."""
        copies = (self.groups[index].transfer.copy() for index in request.groups)
        for items in portions(copies):
            self._outgoing.send((peer,), CopyReply(items))

    def take(self, peer: str, reply: CopyReply) -> None:
        """Take copies that hold more than is here; what comes after them, the coordinator gives.

        A copy without a state, of another history, or behind what is here is dropped.
        """
        if self._members.seeds.include_me:
            return  # it never asked
        first: dict[str, list[int]] = {}
        # A candidate here shares the log, which it may just have adopted: a copy is older.
        items = [item for item in reply.items if self.groups[item.group].coordinator is None]
        if len(items) < len(reply.items):
            self._outgoing.refuse(Guard.COPY_CANDIDATE)
        for item in items:
            group = self.groups[item.group]
            group.transfer.requested_until = 0  # the coordinator may be asked for the rest at once
            if not group.history and item.history:
                first.setdefault(item.history, []).append(item.group)
        for history, groups in first.items():
            self.groups.reset(history, groups)
        self._outgoing.log("copied", source=peer, groups=len(items))
        for item in items:
            self.groups[item.group].step(peer, item)
