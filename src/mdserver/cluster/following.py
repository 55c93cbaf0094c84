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
    from collections.abc import Iterable

    from mdserver.cluster.group import Group
    from mdserver.cluster.stable_storage import StableStorage

# To look up a member of an enum takes CPython 3.11 as long as a call, and this is for each group.
_ACTIVE = CoordinatorState.ACTIVE


@define(eq=False)
class Following(MemberPart):
    """What this member lacks to serve clients.

    `late_groups`: the groups that were not followed for so long that other members serve clients
    better; `follows_all`: all groups were followed within the last suspicion time, which is said in
    heartbeats.
    """

    _storage: "StableStorage"
    late_groups: list[int] = field(init=False, factory=list)
    follows_all: bool = field(init=False, default=False)

    def join(self) -> None:
        """Serve clients from now on, once every group has a coordinator that is followed here.

        A member that is ready holds every committed entry up to the position at which it joined
        (I10; spec: `Delivery!Ready`). A seed that recovers may hold less, so it waits as well.
        """
        if self._members.joined or self.groups.not_voting:
            return
        if not self._missing():
            self._members.joined = True
            self._outgoing.log("joined", groups=len(self.groups))

    def joining(self) -> str | None:
        """Return why this member does not serve clients yet; None once it joined."""
        if self._members.joined:
            return None
        return f"joining: {self._missing()} of {len(self.groups)} groups are missing"

    def _missing(self) -> int:
        """Count the groups in which this member may lack what was committed before it started.

        It holds what its coordinator has committed. But a coordinator may have lost contact with
        the seeds and not have noticed yet: what a newer one committed meanwhile is missing here.
        Workers see their server only, which lets them join when it has; without votes there is
        nobody to ask.
        """
        alone = self._settings.learner or not self._settings.guaranteed
        return sum(
            not group.leadership.active or not (alone or self._confirmed(group))
            for group in self.groups
        )

    def _confirmed(self, group: "Group") -> bool:
        """Return whether no newer epoch was active than this one as this member started.

        If this one was not active either, it became active after that: a majority of seeds took its
        log then, which none does that has promised a newer epoch. Otherwise seeds have to say so.
        """
        if group.leadership.seen_inactive:
            return True
        relied_on = group.acceptor is not None and self._storage.admitted
        here = group.promised_epoch if relied_on else None
        return self._members.none_newer(group.index, group.leadership.epoch, here)

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
        for group, behind in zip(self.groups, self._behind(self.groups), strict=True):
            if self._follows(group, behind):
                group.followed_at = now
            elif group.followed_at + suspect <= now:
                self.follows_all = False
                if group.followed_at + UNFOLLOWED_AFTER_SUSPICIONS * suspect <= now:
                    self.late_groups.append(group.index)

    def _follows(self, group: "Group", behind: int | None) -> bool:
        """Return whether this member keeps up with a group, or at least is catching up.

        `behind` is how many entries it lacks, None if no coordinator in sight says how many.
        What the coordinator has committed is known from its heartbeat, which is a little old: so a
        member that is behind follows as long as its own log moves.
        """
        leadership, log = group.leadership, group.log
        if leadership.coordinator == self._settings.me:
            return behind is not None
        if not leadership.active or behind is None:
            return False
        moved = log.committed != group.followed_length
        group.followed_length = log.committed
        return moved or not behind

    def behind(self, group: "Group") -> int | None:
        """Return how many entries this member has not applied that its coordinator has committed.

        Returns None if no coordinator is in sight, because nobody says then how many there are. The
        number is as old as the coordinator's last heartbeat.
        """
        return self._behind((group,))[0]

    def _behind(self, groups: "Iterable[Group]") -> list[int | None]:
        """Return `behind` of each of these groups.

        Asked of all groups at each tick, so it is one call for all of them, which looks up once
        who is in sight: there may be very many more groups than members.
        """
        members, now, me = self._members, self._outgoing.now, self._settings.me
        leads = {
            name: peer.leads for name, peer in members.peers.items() if members.alive(name, now)
        }
        found: list[int | None] = []
        for group in groups:
            coordinator = group.leadership.coordinator
            if coordinator == me:
                here = group.coordinator
                found.append(0 if here is not None and here.state is _ACTIVE else None)
                continue
            led = leads[coordinator].get(group.index) if coordinator in leads else None
            if led is None:
                found.append(None)
                continue
            behind = led.committed - group.log.committed
            found.append(behind if behind > 0 else 0)
        return found

    def behind_in_all(self) -> int | None:
        """Return the sum of `behind` over all groups, None if it is None of one of them."""
        total = 0
        for behind in self._behind(self.groups):
            if behind is None:
                return None
            total += behind
        return total

    def unready(self) -> str | None:
        """Return why clients are better served by another member; None if none is known to be.

        If nobody follows all groups, sending clients back and forth would not help them.
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
