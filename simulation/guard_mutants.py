"""Deliberate bugs that leave out a guard of the protocol which random plans do not reach.

Each shows in the stored plan in which that guard refuses (`simulation.guards`).
"""

from collections.abc import Callable
from typing import Any

from mdserver.cluster.ballots import Ballots
from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.messages import CopyItem, PromiseItem
from mdserver.cluster.transfer import Transfer
from simulation.mutant import Mutant, stored


def any_copy_is_taken(_: object) -> Any:
    def take_copy(self: Transfer, item: CopyItem) -> None:
        if item.state is not None:
            self._group.install(item.start, item.state)
            self.log_is_copy = True

    return take_copy


def any_incarnation_is_registered(original: Callable[..., bool]) -> Any:
    def may_register(
        self: Coordinator, seed: str, incarnation: int, admitted: bool, known: dict[str, int]
    ) -> bool:
        newest = max(incarnation, self.known.get(seed, 0), known.get(seed, 0))
        return original(self, seed, newest, admitted, known)

    return may_register


def adopted_without_its_beginning(original: Callable[..., Any]) -> Any:
    def promise(self: Ballots, seed: str, item: PromiseItem, message: Any) -> Any:
        group, candidate = self._group, self._group.coordinator
        reply = original(self, seed, item, message)
        if candidate is None or group.coordinator is not None or not candidate.incarnations:
            return reply
        logs = [candidate.promises[name][1] for name in candidate.incarnations]
        best = max(logs, key=lambda log: (log.accepted, log.length))
        if best.history == group.history:
            return reply
        # It was elected, and stopped only because of what the best log lacks.
        group.coordinator, candidate.state = candidate, CoordinatorState.SYNCING
        return best

    return promise


OF_GUARDS = (
    Mutant(
        "a copy takes the place of what is newer",
        ((Transfer, "take_copy", any_copy_is_taken),),
        stored("older-copy"),
    ),
    Mutant(
        "an incarnation that was lost is registered",
        ((Coordinator, "may_register", any_incarnation_is_registered),),
        stored("older-incarnation"),
    ),
    Mutant(
        "a log of another history is adopted without its beginning",
        ((Ballots, "promise", adopted_without_its_beginning),),
        stored("lacks-its-beginning"),
    ),
)
