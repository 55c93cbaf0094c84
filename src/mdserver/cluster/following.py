"""Whether this member follows all groups: a member that does not is no place for clients.

It follows a group while the coordinator is in sight and what is committed there comes here. Links
that carry one way, or between some members only, let a group stand still at one member while it
goes on at the others.
"""

from typing import TYPE_CHECKING

from mdserver.cluster.coordinator import Phase
from mdserver.limits import UNFOLLOWED_AFTER_SUSPICIONS

if TYPE_CHECKING:
    from mdserver.cluster.ground import Ground


class Following:
    """What this member lacks.

    `_since`: when each group was last followed, or when this member joined (ns).
    `_lengths`: how much was committed here then.
    `late`: the groups that are not followed for so long that clients are better served elsewhere.
    """

    __slots__ = ("_lengths", "_since", "ground", "late", "whole")

    def __init__(self, ground: "Ground") -> None:
        self.ground = ground
        groups = len(ground.views)
        self._since = [0] * groups
        self._lengths = [0] * groups
        self.late: list[int] = []
        self.whole = False

    def look(self) -> None:
        """Note which groups are followed now."""
        now, suspect = self.ground.now, self.ground.settings.suspect
        if not self.ground.joined:
            # It serves nobody yet. A group has its time from when this member joined: until the
            # next heartbeat of a coordinator that was just elected, its groups are not known.
            self._since = [now] * len(self._since)
            self.whole, self.late = False, []
            return
        late: list[int] = []
        self.whole = True
        for group, since in enumerate(self._since):
            if self._follows(group):
                self._since[group] = now
            elif since + suspect <= now:
                self.whole = False
                if since + UNFOLLOWED_AFTER_SUSPICIONS * suspect <= now:
                    late.append(group)
        self.late = late

    def _follows(self, group: int) -> bool:
        """Whether a group goes on here; one that catches up does."""
        ground = self.ground
        view, log = ground.views[group], ground.logs[group]
        if view.coordinator == ground.me:
            coordinator = ground.coordinators.get(group)
            return coordinator is not None and coordinator.phase is Phase.ACTIVE
        if not view.active or not ground.members.alive(view.coordinator, ground.now):
            return False
        led = ground.members.peers[view.coordinator].leads.get(group)
        if led is None:
            return False
        moved = log.committed != self._lengths[group]
        self._lengths[group] = log.committed
        return moved or log.committed >= led.committed

    def unready(self) -> str | None:
        """Why clients are better served by another member; None where none is known to be better.

        Where nobody follows all groups, nothing is won by sending clients back and forth.
        """
        ground = self.ground
        if not self.late or not self.servers():
            return None
        group = self.late[0]
        return (
            f"{len(self.late)} of {len(ground.views)} groups do not go on here: "
            f"{ground.views[group].coordinator or 'the coordinator'} of group {group} is out of "
            "sight, or sends nothing"
        )

    def servers(self) -> list[str]:
        """The client addresses of the members in sight that follow all groups."""
        members, now = self.ground.members, self.ground.now
        return [
            peer.client for name, peer in members.peers.items()
            if peer.ready and peer.follows and members.alive(name, now)
        ]  # fmt: skip
