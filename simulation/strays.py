"""Members that say, once, what no member says: it is refused, and nothing may come of it.

Some guards refuse nothing in any other run, since members that keep the rules never send what these
guards refuse. Here a member sends it over its link, when it would do most harm.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from mdserver.cluster import messages as msg

if TYPE_CHECKING:
    from mdserver.cluster.node import Node
    from simulation.members import Member
    from simulation.world import World

EPOCHS_AHEAD = 5
Overheard = Callable[[str, msg.AnyPeerMessage], bool]
"""Takes who sent a message over any link, and the message; returns True once it is done."""
Stray = Callable[["World", "Member", "Member", str, msg.AnyPeerMessage], bool]
"""What a member says: takes who is told, who tells, and what was overheard; returns as above."""
Falsehood = Callable[["Node", str, msg.Heartbeat], msg.AnyPeerMessage | None]
"""Takes who is told, who tells, and its heartbeat; returns None if this is no occasion."""


def vote_of_no_seed(
    world: "World", _: "Member", teller: "Member", sender: str, message: msg.AnyPeerMessage
) -> bool:
    """Vote in each way for the next candidate that asks the seeds, without being one itself."""
    if any(teller.name in names for names in world.lists().values()):
        return False
    if isinstance(message, msg.PreVote):
        granted = [msg.PreVoteGrantedItem(*msgspec.structs.astuple(i)) for i in message.items]
        world.links.send(teller.name, (sender,), msg.PreVoteGranted(granted), 0)
    if not isinstance(message, msg.Prepare):
        return False
    promised = [
        msg.PromiseItem(i.group, i.epoch, 0, 0, 0, i.history, 0, [], [], None)
        for i in message.items
    ]
    world.links.send(teller.name, (sender,), msg.Promise(1, {}, promised), 0)
    return True


def ack_of_an_older_incarnation(told: "Node", teller: str, _: msg.Heartbeat) -> msg.Ack | None:
    """Ack all that a coordinator has, as the start before the present one."""
    led = [group.coordinator for group in told.groups if group.coordinator is not None]
    behind = [c for c in led if c.acked.get(teller, 0) < c.log.length]
    incarnations = [c.incarnations[teller] for c in behind if teller in c.incarnations]
    if not incarnations:
        return None
    items = [msg.AckItem(c.group, c.epoch, c.log.length) for c in behind]
    return msg.Ack(min(incarnations) - 1, items)


def log_of_an_older_list(told: "Node", _: str, heartbeat: msg.Heartbeat) -> msg.Heartbeat | None:
    """Say that an older list of seeds elected it, in an epoch that is newer than all."""
    leads = [
        msg.LedGroup(
            group.index,
            group.log.epoch + EPOCHS_AHEAD,
            group.log.length + 1,
            group.log.length + 1,
            group.list_number - 1,
        )
        for group in told.groups
        if group.list_number > 1
    ]
    return msgspec.structs.replace(heartbeat, leads=leads) if leads else None


def another_list_of_the_number(
    told: "Node", _: str, heartbeat: msg.Heartbeat
) -> msg.Heartbeat | None:
    """Name other seeds in the list of the present number."""
    # A member whose list is older would go by this one.
    if not 1 < heartbeat.list_number <= told.seeds.number:
        return None
    return msgspec.structs.replace(heartbeat, seeds=heartbeat.seeds[:-1])


def beside_a_heartbeat(falsehood: Falsehood) -> Stray:
    """Return what a member says just behind its heartbeat, at the first occasion."""

    def stray(
        world: "World", told: "Member", teller: "Member", sender: str, message: msg.AnyPeerMessage
    ) -> bool:
        if told.node is None or sender != teller.name or not isinstance(message, msg.Heartbeat):
            return False
        said = falsehood(told.node, teller.name, message)
        if said is not None:
            world.links.send(teller.name, (told.name,), said, 0)
        return said is not None

    return stray


STRAYS: Mapping[str, Stray] = {
    "stray-vote": vote_of_no_seed,
    "stray-ack": beside_a_heartbeat(ack_of_an_older_incarnation),
    "stray-log": beside_a_heartbeat(log_of_an_older_list),
    "stray-list": beside_a_heartbeat(another_list_of_the_number),
}
"""By the kind of fault: `first` is told, `second` tells, as soon as there is an occasion."""
