"""What a group answers to an item, for its member to carry on (`Group.step`).

An item is about one group, but some of what follows is not: answers of many groups leave in one
message, and several groups start over or stand for election together. So a step returns its answer
as a value, and the part of the member that took the message acts on it:

- an item for the sender, which goes into one message with those of the other groups;
- `BeginItem`: in Standard mode, a leadership that can be followed, or that this member begins;
- `Gap`: entries are missing here, from a copy or from the coordinator;
- `Unregistered`: a seed may not count again in this epoch;
- `Consequence`: the group needs an election.
"""

import enum
from typing import NamedTuple

from mdserver.cluster.messages import (
    BeginItem,
    NackItem,
    PrepareItem,
    PreVoteGrantedItem,
    PromiseItem,
    SyncItem,
    SyncRequestItem,
)


class Gap(NamedTuple):
    """Entries of `epoch` are missing here, whose coordinator has committed this many."""

    epoch: int
    committed: int


class Unregistered(NamedTuple):
    """A seed that may not count again in this epoch.

    Nothing of its incarnations below `least` counts any more; 0 if none is known to be over.
    `readmit`: an operator takes it back, which needs an epoch that is elected for its loss.
    """

    least: int
    readmit: bool = False


class Consequence(enum.Enum):
    """An election that a group needs because of what an item says.

    STAND: with an epoch above one that a seed promised to another candidate. RENEW: a cold start
    under a new history id, since the log here lacks what was acknowledged.
    """

    STAND = "stand"
    RENEW = "renew"


Reply = (
    BeginItem
    | PreVoteGrantedItem
    | PrepareItem
    | PromiseItem
    | NackItem
    | SyncItem
    | SyncRequestItem
    | Gap
    | Unregistered
    | Consequence
    | None
)
