"""Steps of the protocol as the specification names them, for `python -m spec traces`.

Each part of a group traces what it just did under the name of an action of the TLA+ modules, with
what the group is like afterwards. A model checker then asks of a run whether each step was one that
the specification allows from the state before it (spec/README.md has the table of names). Only the
simulator and tests ask for traces; without that nothing is made.
"""

from typing import TYPE_CHECKING

from mdserver.core.outputs import Trace
from mdserver.limits import TRACE_DIGESTS_MAX

if TYPE_CHECKING:
    from mdserver.cluster.coordinator import Coordinator
    from mdserver.cluster.group import Group
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.stable_storage import StableStorage


class StepTrace:
    """Traces the steps of one group on one member."""

    __slots__ = ("_group", "_me", "_outgoing", "_storage")

    def __init__(
        self,
        group: "Group",
        settings: "ClusterSettings",
        outgoing: "Outgoing",
        storage: "StableStorage",
    ) -> None:
        self._group = group
        self._me = settings.me
        self._outgoing = outgoing
        self._storage = storage

    def __call__(self, name: str, epoch: int, **values: str | int | bool) -> None:
        """Trace a step, with the state after it."""
        if not self._group.tracing:
            return
        group = self._group
        log, acceptor = group.log, group.acceptor
        state: dict[str, str | int | bool | None] = {
            "node": self._me,
            "group": group.index,
            "epoch": epoch,
            "accepted": log.epoch,
            "length": log.length,
            "committed": log.committed,
            "incarnation": self._storage.votes.incarnation,
            "digests": log.digests(TRACE_DIGESTS_MAX),
        }
        if acceptor is not None:
            state["promised"] = acceptor.promised.epoch
            state["standing"] = acceptor.standing.value
        self._outgoing.out.append(Trace(name, {**state, **values}))

    def publish(self, coordinator: "Coordinator", start: int) -> None:
        """Trace the appended publications by name, and that the seed of this member holds them."""
        names = [
            f"{entry.publication.publisher}#{entry.publication.number}"
            if entry.publication.number
            else f"{coordinator.epoch}.{at}"
            for at, entry in enumerate(coordinator.log.since(start), start)
        ]
        self("Publish", coordinator.epoch, publications=",".join(names))
        if self._group.acceptor is not None:
            self("Accept", coordinator.epoch)
