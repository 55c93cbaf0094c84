"""Who coordinates in Standard mode, where nobody votes: of members that are linked, one a group.

Two sides of a cut have a coordinator each, and so have two members for a moment after a link is
made. But once links were whole for `SETTLED`, that is over, and two things hold:

- Of members that are linked to each other, or to the same third one, one coordinates a group.
- Where all are linked to all, no group is for so long without a coordinator that all follow.

Of level 1, whose links tell when they are whole.

What a second coordinator acknowledges is dropped when it gives way, and no other rule can tell that
from what an inevitable partition costs.
"""

from itertools import combinations
from typing import TYPE_CHECKING

from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    from simulation.links import Link, Pair
    from simulation.world import World

SETTLED = 5 * NS_PER_S
"""Members that do not see each other take 3.3 s to let a third one coordinate that sees both."""


class Leaderships:
    """Looks at the coordinators of a world; what is broken goes to its watch."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._whole: dict[Pair, tuple[Link, int]] = {}  # link, and since when it is whole (ns)
        self._followed: dict[int, int] = {}  # group -> when it last was as it is to be (ns)

    def look(self) -> None:
        """Look at all links, and at who coordinates what."""
        world, now = self.world, self.world.heap.now
        whole = {pair: link for pair in combinations(world.names, 2) if (link := self._link(pair))}
        self._whole = {
            pair: known if (known := self._whole.get(pair)) and known[0] is link else (link, now)
            for pair, link in whole.items()
        }
        settled = {pair for pair, (_, since) in self._whole.items() if since + SETTLED <= now}
        complete = len(whole) == len(world.names) * (len(world.names) - 1) // 2
        for group in range(world.plan.groups):
            self._one(group, settled)
            if not complete or self._is_followed(group):
                self._followed[group] = now
            elif self._followed.get(group, now) + SETTLED <= now:
                what = f"group {group} has no coordinator that all members follow"
                world.watch.violate("one coordinator", what)

    def _link(self, pair: "Pair") -> "Link | None":
        """Return the link of two members if both hear each other over it."""
        members = [self.world.members[name] for name in pair]
        if any(member.node is None or member.paused for member in members):
            return None
        return self.world.links.whole(pair)

    def _one(self, group: int, settled: "set[Pair]") -> None:
        world = self.world
        leading = [
            member.name
            for member in world.members.values()
            if member.node is not None and member.node.groups[group].coordinator is not None
        ]
        for pair in combinations(leading, 2):
            between = [
                third
                for third in world.names
                if all(one == third or _pair(one, third) in settled for one in pair)
            ]
            if between:
                world.watch.violate(
                    "one coordinator",
                    f"{' and '.join(pair)} coordinate group {group}, linked by {between[0]}",
                )

    def _is_followed(self, group: int) -> bool:
        nodes = [member.node for member in self.world.members.values() if member.node is not None]
        seen = [node.group_statistics(group) for node in nodes]
        names = {one.coordinator for one in seen if one.active}
        return len(names) == 1 and all(one.active for one in seen)


def _pair(one: str, other: str) -> "Pair":
    return (one, other) if one < other else (other, one)
