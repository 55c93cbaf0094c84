"""What holds of the cluster as a whole while faults go on (docs/cluster.md, I1, I8, I10).

`simulation.watch` compares what members commit, message by message. Here the state of all members
is set beside each other: who holds what was committed, what an acknowledgement stands for, and what
a member has that says it is ready.
"""

from typing import TYPE_CHECKING

from simulation.history import Acked
from simulation.leaderships import Leaderships

if TYPE_CHECKING:
    from simulation.world import World

Place = tuple[str, str]  # history id, subject


class Promises:
    """Checks the promises of a world; what is broken goes to its watch."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.leaderships = Leaderships(world)
        self._acked_before: dict[str, dict[Place, int]] = {}
        """Members that started and are not ready yet -> what was acknowledged before."""

    def acked(self, event: Acked) -> None:
        """An acknowledgement came to its publisher: some member has committed just that (I8).

        The order holds at any moment: who says so has committed it before.
        """
        committed = self.world.watch.committed_at.get((event.subject, event.epoch, event.seq), {})
        if not committed:
            self._violate("I8", event, "nobody has committed anything there")
        elif event.publication not in committed:
            self._violate("I8", event, f"there {', '.join(committed)} is committed")

    def _violate(self, kind: str, event: Acked, what: str) -> None:
        place = f"{event.epoch}/{event.seq} of {event.subject}"
        self.world.watch.violate(kind, f"{event.publication} was acked at {place}: {what}")

    def started(self, member: str) -> None:
        """A member starts: it is ready once it holds at least what is acknowledged by now."""
        self._acked_before[member] = dict(self.world.checker.newest)

    def look(self) -> None:
        """Look at all members."""
        self._held_by_every_majority()
        if self.world.plan.standard:
            self.leaderships.look()
        for name in list(self._acked_before):
            self.joined(name)

    def joined(self, name: str) -> None:
        """Look whether a member has become ready, and if so, whether too early (I10)."""
        node = self.world.members[name].node
        if name not in self._acked_before or node is None or node.unready() is not None:
            return
        before = self._acked_before.pop(name)
        if not self.world.checker.majority_kept:
            return  # what is missing then is told once all members are compared
        for (_, subject), seq in before.items():
            # A group may go on under an older history id than the one that clients are told.
            group = node.groups[self.world.group_of(subject)]
            tables = group.log.tables()
            # The release before knows no floor, and forgets nothing.
            floor = tables.floor.seq if self.world.plan.idle else 0
            held = tables.numbering.get(subject, floor)
            if held < seq:
                self.world.watch.violate(
                    "I10", f"{name} is ready with {held} of {subject}; {seq} was acked before"
                )

    def _held_by_every_majority(self) -> None:
        """Each majority of seeds that vote has one that holds all that is committed (I1).

        So those that lack some of it are never a majority of all seeds.
        """
        world = self.world
        if not world.checker.majority_kept:
            return
        seeds = world.voters()
        nodes = {name: member.node for name, member in world.members.items() if member.node}
        for index in range(world.plan.groups):
            groups = {name: node.groups[index] for name, node in nodes.items()}
            if not groups:
                return
            longest = max(groups.values(), key=lambda group: group.log.committed)
            lacking = [
                name
                for name in seeds
                if name in groups
                and groups[name].votes_here
                and groups[name].log.length < longest.log.committed
            ]
            if 2 * len(lacking) > len(seeds):
                world.watch.violate(
                    "I1",
                    f"{longest.log.committed} entries of group {index} are committed, but "
                    f"{', '.join(lacking)} vote and hold fewer",
                )
