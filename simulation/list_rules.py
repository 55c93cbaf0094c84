"""What must hold of lists of seeds (spec/Relist.tla), seen on disks, in messages and in steps.

Each rule is a class of finding of its own, so that who leaves one out of the code is told which. At
level 3 the messages between members are not seen, and only starts and steps are looked at.
"""

from typing import TYPE_CHECKING, Any

from attrs import define, field

from mdserver.cluster import votes
from mdserver.cluster.messages import Heartbeat, SyncRequest

if TYPE_CHECKING:
    from mdserver.cluster.votes import VoteRecord
    from simulation.members import Member
    from simulation.world import World

OLDER = "older lists are refused"
NEWER = "newer lists are noted first"
SETTLED = "settled before the next"
DURABLE = "lists are durable"
TOLD = "told once on disk"
ONCE = "a next list is named once"
UNLISTED = "no newer list has it"
RULES = (OLDER, NEWER, SETTLED, DURABLE, TOLD, ONCE, UNLISTED)

Names = tuple[str, ...]
Seat = tuple[str, int]
"""A member, and the number of a list."""


@define
class ListRules:
    """Checks the rules in a world; what is broken goes to its watch.

    `_active`: group and list by which an epoch of it was active. `_noted`: the newest list that a
    member told others of. `_named`: the next list that it told others of, and `_before_loss` those
    that it had told of when it lost its vote record. `_entered`: the list that a member went by
    when it began its latest step. `_lists`: those of which anybody told others. `_had_it`: the
    newest of them that had a member as a seed which has lost its record since.
    """

    _world: "World"
    _active: dict[tuple[int, int], None] = field(factory=dict)
    _noted: dict[str, int] = field(factory=dict)
    _named: dict[Seat, Names] = field(factory=dict)
    _before_loss: dict[Seat, list[Names]] = field(factory=dict)
    _entered: dict[str, int] = field(factory=dict)
    _lists: dict[int, Names] = field(factory=dict)
    _had_it: dict[str, int] = field(factory=dict)

    def _violate(self, rule: str, what: str) -> None:
        self._world.watch.now = self._world.heap.now
        self._world.watch.violate(rule, what)

    def started(self, member: "Member") -> None:
        """A member starts: it goes by what it told others, unless its record was lost."""
        name, node = member.name, member.running
        if member.record_lost:
            self._noted.pop(name, None)
            listed = (number for number, names in self._lists.items() if name in names)
            self._had_it[name] = max(listed, default=1)
            for seat in [seat for seat in self._named if seat[0] == name]:
                self._before_loss.setdefault(seat, []).append(self._named.pop(seat))
            return
        if not hasattr(node, "seeds"):
            return  # the release before, which knows the first list only
        told = self._noted.get(name, 1)
        named = self._named.get((name, told))
        if node.seeds.number < told:
            self._violate(DURABLE, f"{name} told of list {told}, and starts by {node.seeds.number}")
        elif node.seeds.number == told and named not in (None, node.seeds.next):
            self._violate(DURABLE, f"{name} named {named}, and starts with {node.seeds.next}")

    def entering(self, member: "Member") -> None:
        """A member takes a step."""
        seeds = getattr(member.node, "seeds", None)
        if seeds is not None:
            self._entered[member.name] = seeds.number

    def step(self, member: "Member", name: str, values: dict[str, Any]) -> None:
        """A member took a step of the protocol."""
        if name == "Promise":
            self._promised(member, values)
        elif name == "Activate" and hasattr(member.node, "seeds"):
            group = int(values["group"])
            self._active[group, member.running.groups[group].list_number] = None

    def _promised(self, member: "Member", values: dict[str, Any]) -> None:
        """Compare the list of a seed with that of the candidate, if that still stands."""
        candidate = self._world.members[str(values["candidate"])].node
        entered = self._entered.get(member.name)
        if candidate is None or entered is None:
            return
        if not (hasattr(candidate, "seeds") and hasattr(member.node, "seeds")):
            return  # the release before, which knows the first list only
        coordinator = candidate.groups[int(values["group"])].coordinator
        if coordinator is None or coordinator.epoch != values["epoch"]:
            return
        asked = coordinator.list_number
        what = f"{member.name} promised by list {asked} of {values['candidate']}"
        if asked < entered:
            self._violate(OLDER, f"{what}, and has noted list {entered}")
        elif asked > member.running.seeds.number:
            self._violate(NEWER, f"{what}, and has noted list {member.running.seeds.number}")

    def said(self, member: "Member", message: object) -> None:
        """A member sends something to others."""
        if not hasattr(member.node, "seeds"):
            return  # the release before, which knows the first list only
        if isinstance(message, SyncRequest) and message.anew:
            self._begins_anew(member)
        if not isinstance(message, Heartbeat):
            return
        number, named = message.list_number, tuple(message.next_seeds)
        if number == 1 and not named:
            return  # nearly always
        name, record = member.name, record_of(member)
        if record.number < number or (
            named and record.number == number and tuple(record.next) != named
        ):
            what = f"{name} tells of list {number} and the next list {named}"
            self._violate(TOLD, f"{what}; its disk has {record.number} and {tuple(record.next)}")
        self._noted[name] = max(number, self._noted.get(name, 1))
        self._lists.setdefault(number, tuple(message.seeds))
        if named and self._named.get((name, number)) != named:
            self._names(member, number, named)

    def _begins_anew(self, member: "Member") -> None:
        """A seed that lost its record asks for the logs as one that no list has."""
        name, number = member.name, member.running.seeds.number
        newest = self._had_it.get(name, 1)
        if newest > number:
            what = f"{name} begins anew by list {number}, and list {newest} has it"
            self._violate(UNLISTED, what)

    def _names(self, member: "Member", number: int, named: Names) -> None:
        """A seed tells for the first time that it named a next list."""
        seat = member.name, number
        groups = range(self._world.plan.groups)
        lacking = [group for group in groups if (group, number) not in self._active]
        if lacking:
            what = f"{member.name} named list {number + 1}, and no epoch of list {number} was"
            self._violate(SETTLED, f"{what} active in group {lacking[0]}")
        before = self._named.get(seat)
        if before is not None:
            self._violate(
                ONCE, f"{member.name} named {before} to follow list {number}, then {named}"
            )
        for lost in self._before_loss.get(seat, ()):
            self._names_after_loss(member, number, named, lost)
        self._named[seat] = named

    def _names_after_loss(self, member: "Member", number: int, named: Names, lost: Names) -> None:
        """A seed named another list before it lost its record: that may not begin any more.

        It cannot if a majority of the others has named the list that this one names now.
        """
        seeds = member.running.seeds.names
        others = [self._world.members[name] for name in seeds if name != member.name]
        agree = [one for one in others if one.disk.votes and record_of(one).next == list(named)]
        if lost == named or 2 * len(agree) > len(seeds):
            return
        for other in others:
            if other.node is None or not hasattr(other.node, "seeds"):
                record = record_of(other)
                begun = record.number == number + 1 and tuple(record.listed) == lost
                counts = False
            else:
                here, peer = other.node.seeds, other.node.members.peers[member.name]
                begun = here.number == number + 1 and here.names == lost
                counts = peer.up and peer.list_number == number and peer.next_seeds == lost
            if begun or counts:
                what = f"{member.name} named {lost} to follow list {number}, lost its record, and"
                self._violate(ONCE, f"{what} named {named}; {other.name} goes by the first name")


def record_of(member: "Member") -> "VoteRecord":
    """Return the vote record that is on the disk of a member."""
    assert member.disk.votes is not None
    return votes.read(member.disk.votes)
