"""Whether this member follows all groups: a member that does not is no place for clients.

A member follows a group while the coordinator is in sight and what is committed there comes here. A
link that carries one way only, or that is missing between two members, lets a group stand still at
one member while it goes on at the others. Clients of that member would wait without knowing it.

A group is at one of these points here:

    joining      this member does not serve yet                 no clients are taken
    followed     it was followed within the last suspicion time
    not followed for longer than that                           this member is no target for clients
    late         not for `UNFOLLOWED_AFTER_SUSPICIONS` of them  its clients move to other members

So a member stops being a target of moves well before it moves its own clients. If no member follows
all groups, all clients stay: to move them would win nothing. docs/cluster.md, "Half-cut networks".
A wrong answer costs time and no message, since nothing here decides what is committed.
"""

from typing import TYPE_CHECKING

from attrs import define, field

from mdserver.cluster.coordinator import CoordinatorState
from mdserver.cluster.part import MemberPart
from mdserver.limits import UNFOLLOWED_AFTER_SUSPICIONS

if TYPE_CHECKING:
    from mdserver.cluster.group import Group


@define(eq=False)
class Following(MemberPart):
    """What this member lacks to serve clients.

    `late_groups`: the groups that were not followed for so long that other members serve clients
    better; `follows_all`: all groups were followed within the last suspicion time, which is said in
    heartbeats.
    """

    late_groups: list[int] = field(init=False, factory=list)
    follows_all: bool = field(init=False, default=False)

    def join(self) -> None:
        """Serve clients from now on, once every group has a coordinator that is followed here.

        A member that is ready holds every committed entry up to the position at which it joined
        (I10; spec: `Delivery!Ready`). A seed that recovers may hold less, so it waits as well.
        """
        if self._members.joined or self.groups.not_voting:
            return
        if all(group.leadership.active for group in self.groups):
            self._members.joined = True
            self._outgoing.log("joined", groups=len(self.groups))

    def joining(self) -> str | None:
        """Return why this member does not serve clients yet; None once it joined."""
        if self._members.joined:
            return None
        missing = sum(not group.leadership.active for group in self.groups)
        return f"joining: {missing} of {len(self.groups)} groups are missing"

    def look(self) -> None:
        """Note which groups are followed now; called a few times a second."""
        now, suspect = self._outgoing.now, self._settings.suspect
        self.late_groups = []
        if not self._members.joined:
            # It serves nobody yet. A group has its time from when this member joined: until the
            # next heartbeat of a coordinator that was just elected, its groups are not known.
            for group in self.groups:
                group.followed_at = now
            self.follows_all = False
            return
        self.follows_all = True
        for group in self.groups:
            if self._follows(group):
                group.followed_at = now
            elif group.followed_at + suspect <= now:
                self.follows_all = False
                if group.followed_at + UNFOLLOWED_AFTER_SUSPICIONS * suspect <= now:
                    self.late_groups.append(group.index)

    def _follows(self, group: "Group") -> bool:
        """Return whether a group goes on here; a group that catches up does.

        What the coordinator has committed is known from its heartbeat, which is a little old: so a
        member that is behind follows as long as its own log moves.
        """
        leadership, log = group.leadership, group.log
        coordinator = leadership.coordinator
        if coordinator == self._settings.me:
            return (
                group.coordinator is not None and group.coordinator.state is CoordinatorState.ACTIVE
            )
        if not leadership.active or not self._members.alive(coordinator, self._outgoing.now):
            return False
        led = self._members.peers[coordinator].leads.get(group.index)
        if led is None:
            return False
        moved = log.committed != group.followed_length
        group.followed_length = log.committed
        return moved or log.committed >= led.committed

    def unready(self) -> str | None:
        """Return why clients are better served by another member; None if none is known to be.

        If nobody follows all groups, nothing is won by sending clients back and forth.
        """
        if not self.late_groups or not self.servers():
            return None
        group = self.groups[self.late_groups[0]]
        return (
            f"{len(self.late_groups)} of {len(self.groups)} groups do not go on here: "
            f"{group.leadership.coordinator or 'the coordinator'} of group {group.index} is out of "
            "sight, or sends nothing"
        )

    def servers(self) -> list[str]:
        """Return the client addresses of the members in sight that follow all groups."""
        return [
            peer.client
            for name, peer in self._members.peers.items()
            if peer.ready and peer.follows and self._members.alive(name, self._outgoing.now)
        ]
