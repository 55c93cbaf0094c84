"""The state of a group: what stands for the first entries of its log, all of them committed.

A log does not keep its entries for ever. A member that lacks some which are gone is given a state
instead, and after it the entries that follow; a write-ahead log is begun anew with one (a
checkpoint). It has what those entries left behind:

- the tables of the log: the number of each subject, the positions of publishers, and the floor;
- the cache of the group, under the history id of the member that takes it.

It has no contacts. So what a member forwarded, and waits for, may be among the entries for which a
state stands, and its publishers get an uncertain result.
"""

from typing import TYPE_CHECKING

import msgspec

from mdserver.cluster.messages import State
from mdserver.core.images import GroupImage

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.workers import Workers
    from mdserver.core.broker import Broker


class GroupState:
    """Gives and takes the state of one group on one member."""

    __slots__ = ("_broker", "_group", "_outgoing", "_workers")

    def __init__(
        self, group: "Group", broker: "Broker", outgoing: "Outgoing", workers: "Workers | None"
    ) -> None:
        self._group = group
        self._broker = broker
        self._outgoing = outgoing
        self._workers = workers

    def image(self) -> GroupImage:
        """Return the cache of the group; the objects in it do not change any more."""
        return self._broker.export_group(self._group.index)

    def export(self) -> State:
        """Return what stands for the committed part of the log, for a member that lacks it."""
        cache = msgspec.Raw(msgspec.msgpack.encode(self.image()))
        return State(self._group.log.tables(), cache)

    def tail_or_state(self, start: int) -> "tuple[int, State | None]":
        """Return the place from which a member with `start` entries gets the rest, and a state.

        If entries from `start` on are dropped already, the state stands for all that is committed,
        and the rest begins after it. Otherwise there is no state.
        """
        if start >= self._group.log.base:
            return start, None
        return self._group.log.committed, self.export()

    def install(self, start: int, state: State) -> None:
        """Have a state stand for the first `start` entries of the log, all of them committed."""
        group = self._group
        group.resolve(group.queue.unknown())
        group.log.install(start, state.tables)
        self.import_cache(state.cache)
        if self._workers is not None:
            self._workers.note_jump(group)

    def import_cache(self, raw: msgspec.Raw) -> None:
        """Put an exported cache in place of the group's, under this member's history id of it."""
        index, length = self._group.index, self._group.log.committed
        image = msgspec.msgpack.decode(raw, type=GroupImage)
        image = msgspec.structs.replace(image, history=self._broker.history_of(index))
        now, out = self._outgoing.now, self._outgoing.out
        self._broker.import_group(index, image, length, now, out)
