"""Members that say, once, what no member says: it is refused, and nothing may come of it.

Some guards refuse nothing in any other run, since members that keep the rules never send what these
guards refuse. Here a member sends it over its link, when it would do most harm.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from mdserver.cluster import messages as msg

if TYPE_CHECKING:
    from simulation.members import Member
    from simulation.world import World

EPOCHS_AHEAD = 5
Overheard = Callable[[str, msg.AnyPeerMessage], bool]
"""Takes who sent a message over any link, and the message; returns True once it is done."""
Stray = Callable[["World", "Member", "Member", str, msg.AnyPeerMessage], bool]
"""What a member says: takes who is told, who tells, and what was overheard; returns as above."""


def vote_of_no_seed(
    world: "World", _: "Member", teller: "Member", sender: str, message: msg.AnyPeerMessage
) -> bool:
    """Vote in each way for the next candidate that asks the seeds, without being one itself."""
    told = world.members[sender]
    if any(teller.name in names for names in world.lists().values()):
        return False
    if isinstance(message, msg.PreVote):
        granted = [msg.PreVoteGrantedItem(*msgspec.structs.astuple(i)) for i in message.items]
        _say(world, teller, told, msg.PreVoteGranted(granted))
    if not isinstance(message, msg.Prepare):
        return False
    promised = [
        msg.PromiseItem(i.group, i.epoch, 0, 0, 0, i.history, 0, [], [], None)
        for i in message.items
    ]
    _say(world, teller, told, msg.Promise(1, {}, promised))
    return True


def ack_of_an_older_incarnation(
    world: "World", told: "Member", teller: "Member", sender: str, message: msg.AnyPeerMessage
) -> bool:
    """Ack all that a coordinator has, as the start before the present one."""
    if told.node is None or sender != teller.name or not isinstance(message, msg.Heartbeat):
        return False
    led = [g.coordinator for g in told.node.groups if g.coordinator is not None]
    behind = [c for c in led if c.acked.get(teller.name, 0) < c.log.length]
    incarnations = [c.incarnations[teller.name] for c in behind if teller.name in c.incarnations]
    if not incarnations:
        return False
    items = [msg.AckItem(c.group, c.epoch, c.log.length) for c in behind]
    _say(world, teller, told, msg.Ack(min(incarnations) - 1, items))
    return True


def log_of_an_older_list(
    world: "World", told: "Member", teller: "Member", sender: str, message: msg.AnyPeerMessage
) -> bool:
    """Say that an older list of seeds elected it, in an epoch that is newer than all."""
    if told.node is None or sender != teller.name or not isinstance(message, msg.Heartbeat):
        return False
    leads = [
        msg.LedGroup(
            group.index,
            group.log.epoch + EPOCHS_AHEAD,
            group.log.length + 1,
            group.log.length + 1,
            group.list_number - 1,
        )
        for group in told.node.groups
        if group.list_number > 1
    ]
    if not leads:
        return False
    _say(world, teller, told, msgspec.structs.replace(message, leads=leads))
    return True


def another_list_of_the_number(
    world: "World", told: "Member", teller: "Member", sender: str, message: msg.AnyPeerMessage
) -> bool:
    """Name other seeds in the list of the present number."""
    if told.node is None or sender != teller.name or not isinstance(message, msg.Heartbeat):
        return False
    # A member whose list is older would go by this one.
    if not 1 < message.list_number <= told.node.seeds.number:
        return False
    _say(world, teller, told, msgspec.structs.replace(message, seeds=message.seeds[:-1]))
    return True


STRAYS: Mapping[str, Stray] = {
    "stray-vote": vote_of_no_seed,
    "stray-ack": ack_of_an_older_incarnation,
    "stray-log": log_of_an_older_list,
    "stray-list": another_list_of_the_number,
}
"""By the kind of fault: `first` is told, `second` tells, as soon as there is an occasion."""


def _say(world: "World", teller: "Member", told: "Member", message: msg.AnyPeerMessage) -> None:
    world.links.send(teller.name, (told.name,), message, 0)
