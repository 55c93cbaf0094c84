"""Deliberate bugs that leave out a rule of the protocol which random plans hardly ever need.

Each shows in a stored plan: the one in which a guard refuses (`simulation.guards`), the one of
TLC's counterexample without the rule (`simulation.counterexamples`), or what is left of a random
one.
"""

from collections.abc import Callable
from typing import Any

from mdserver.cluster.ballots import Ballots
from mdserver.cluster.coordinator import Coordinator, CoordinatorEvent, CoordinatorState
from mdserver.cluster.coordinators import Coordinators
from mdserver.cluster.membership import Membership
from mdserver.cluster.messages import (
    CopyItem,
    ForwardReplyItem,
    HandOver,
    Hello,
    LedGroup,
    NackItem,
    PromiseItem,
)
from mdserver.cluster.node import Node
from mdserver.cluster.transfer import Transfer
from simulation.mutant import Mutant, Wrap, stored


def any_copy_is_taken(_: object) -> Any:
    def take_copy(self: Transfer, item: CopyItem) -> None:
        if item.state is not None:
            self._group.state.install(item.start, item.state)
            self.log_is_copy = True

    return take_copy


def any_incarnation_is_registered(original: Callable[..., bool]) -> Any:
    def may_register(
        self: Coordinator,
        seed: str,
        incarnation: int,
        admitted: bool,
        known: dict[str, int],
        **more: bool,
    ) -> bool:
        newest = max(incarnation, self.known.get(seed, 0), known.get(seed, 0))
        return original(self, seed, newest, admitted, known, **more)

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


def taken_back_without_an_election(_: object) -> Any:
    def may_register(self: Coordinator, *_: object, **__: object) -> bool:
        return self.state is CoordinatorState.ACTIVE

    return may_register


def started_from_what_it_holds(original: Callable[..., None]) -> Any:
    """A successor asks no seeds: the log that it has is the log of its epoch.

    So it is behind odd epochs only: each such coordinator was elected, and goes on meanwhile.
    """

    def on_hand_over(self: Coordinators, peer: str, hand_over: HandOver) -> None:
        for index in hand_over.groups:
            group = self.groups[index]
            if group.leadership.coordinator != peer or not group.leadership.active:
                continue
            if group.leadership.epoch % 2 == 0:
                original(self, peer, HandOver([index]))
                continue
            coordinator, log = group.ballots.stand(), group.log
            coordinator.prepare_at_once()
            coordinator.transition(CoordinatorEvent.ELECTED)
            held = PromiseItem(
                index,
                coordinator.epoch,
                log.epoch,
                log.length,
                log.committed,
                group.history,
                log.length,
                [],
                [],
                None,
            )
            coordinator.promises[self._settings.me] = (0, held)
            self.establish([group.ballots.adopt(held)])

    return on_hand_over


def every_incarnation_counts(original: Callable[..., bool]) -> Any:
    def hello(self: Membership, name: str, said: Hello) -> bool:
        newest = max(self.peers[name].incarnation, said.incarnation)
        taken = original(self, name, said)
        self.peers[name].incarnation = newest
        return taken

    return hello


def acked_once(_: object) -> Any:
    def ack_again(self: Transfer, peer: str, led: LedGroup) -> None:
        del self, peer, led

    return ack_again


def the_promised_epoch_is_not_told(original: Callable[..., Any]) -> Any:
    """A coordinator is told of a newer one that is followed, but of none that was promised."""

    def compare(self: Transfer, peer: str, led: LedGroup) -> Any:
        found = original(self, peer, led)
        log = self._group.log
        if isinstance(found, NackItem) and led.epoch >= log.epoch:
            return None
        return found

    return compare


def not_held(*, repeats: bool) -> Wrap:
    """Repeats, or gaps, are answered before anything is committed."""

    def make(original: Callable[..., list[ForwardReplyItem]]) -> Any:
        def append(self: Coordinator, *publications: Any) -> list[ForwardReplyItem]:
            answers = original(self, *publications)
            answers += [held for _, _, held in self.deferred if held.duplicate is repeats]
            self.deferred = [one for one in self.deferred if one[2].duplicate is not repeats]
            return answers

        return append

    return make


def every_epoch_is_the_newest(_: object) -> Any:
    def none_newer(_: Membership, *__: object) -> bool:
        return True

    return none_newer


def nothing_is_waited_for(_: object) -> Any:
    def unwritten(_: Node) -> None:
        return None

    return unwritten


def every_member_votes(_: object) -> Any:
    def votes(_: Coordinator, member: str) -> bool:
        del member
        return True

    return votes


def every_start_acks(original: Callable[..., int | None]) -> Any:
    def ack(self: Coordinator, seed: str, incarnation: int, length: int) -> int | None:
        return original(self, seed, max(incarnation, self.incarnations.get(seed, 0)), length)

    return ack


RARE = (
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
    Mutant(
        "a lost seed is taken back by any coordinator",
        ((Coordinator, "may_register", taken_back_without_an_election),),
        stored("readmission-elects-anew"),
    ),
    Mutant(
        "every other hand-over elects nobody",
        ((Coordinators, "on_hand_over", started_from_what_it_holds),),
        stored("a-hand-over-elects"),
    ),
    Mutant(
        "an incarnation on which nobody relied counts",
        ((Membership, "hello", every_incarnation_counts),),
        stored("lost-twice"),
    ),
    Mutant(
        "acks that were lost are not given again",
        ((Transfer, "_ack_again", acked_once),),
        stored("acks-lost-one-by-one"),
    ),
    Mutant(
        "a member joins by a coordinator that may be deposed",
        ((Membership, "none_newer", every_epoch_is_the_newest),),
        stored("joined-too-early"),
    ),
    Mutant(
        "votes of members that are no seeds count",
        ((Coordinator, "_votes", every_member_votes),),
        stored("vote-of-no-seed"),
    ),
    Mutant(
        "acks of a start before the present one count",
        ((Coordinator, "ack", every_start_acks),),
        stored("ack-of-a-start-before"),
    ),
    Mutant(
        "a coordinator is not told of a promise to a candidate that is gone",
        ((Transfer, "compare", the_promised_epoch_is_not_told),),
        stored("candidate-gone"),
    ),
    Mutant(
        "a publisher is told of a gap by a coordinator that was deposed",
        ((Coordinator, "append", not_held(repeats=False)),),
        stored("gap-told-by-a-deposed-coordinator"),
    ),
    Mutant(
        "a single server serves before its history id is on the disk",
        ((Node, "_unwritten", nothing_is_waited_for),),
        stored("history-told-early"),
    ),
)
