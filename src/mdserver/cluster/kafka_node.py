"""One member whose log is Kafka: a `Node` of which only the broker and the clients are used.

Such a member is a single server as far as groups, votes and links go. It differs in four places:
publications go to `KafkaMode`, what Kafka says comes from there, a client's positions are looked at
before the broker takes them, and the mode decides whether the member serves clients.
"""

from typing import TYPE_CHECKING, Any, get_args

import msgspec
from attrs import evolve

from mdserver.cluster.kafka_messages import KafkaInput
from mdserver.cluster.kafka_mode import KafkaMode
from mdserver.cluster.kafka_sweep import SWEEP
from mdserver.cluster.node import Node
from mdserver.core.commands import PositionAfter, Resume, Subscribe
from mdserver.core.inputs import Received, TimerDue
from mdserver.core.message import Position
from mdserver.core.subjects import is_pattern

if TYPE_CHECKING:
    import random

    from mdserver.cluster.settings import ClusterSettings
    from mdserver.core.commands import AnyCommand
    from mdserver.core.outputs import Output
    from mdserver.core.proposal import Proposal
    from mdserver.core.settings import BrokerSettings

_FROM_KAFKA = get_args(KafkaInput)


class KafkaNode(Node):
    """A member whose log is Kafka; `step` takes the inputs of `KafkaMode` as well."""

    mode: KafkaMode

    def __init__(
        self,
        settings: "BrokerSettings",
        rng: "random.Random",
        cluster: "ClusterSettings",
        partitioner: str,
        *,
        holds: bool = False,
    ) -> None:
        super().__init__(evolve(settings, numbers_are_places=True), rng, cluster)
        self.mode = KafkaMode(
            cluster,
            self.broker,
            self.outgoing,
            self.pending,
            self.mode.sequencer,
            partitioner,
            holds=holds,
        )

    def step(self, input: Any, now: int) -> "list[Output]":  # noqa: A002 - the design's word
        """Take one input at a time `now` (ns); return the driver's outputs, in order."""
        if not isinstance(input, _FROM_KAFKA):
            return super().step(input, now)
        outgoing = self.outgoing
        outgoing.now = now
        if not self._started:
            self._start()
        self.mode.take(input)
        out, outgoing.out = outgoing.out, []
        return out

    def _propose(self, proposals: "list[Proposal]") -> None:
        self.mode.propose(proposals)

    def _received(self, input: Received) -> None:  # noqa: A002
        commands = input.commands
        if any(isinstance(command, Subscribe) for command in commands):
            commands = [self._prepared(command) for command in commands]
            input = Received(input.session, commands)  # noqa: A001
        super()._received(input)

    def _prepared(self, command: "AnyCommand") -> "AnyCommand":
        """Look at the positions of a subscription; return it without what has no meaning here."""
        if not isinstance(command, Subscribe):
            return command
        lost: dict[str, PositionAfter] = {}
        for subject, after in (command.positions or {}).items():
            if after.history == self.history and subject[:1] == "/" and not is_pattern(subject):
                at = Position(after.epoch, after.seq)
                if after.seq and not self.mode.stand_for(subject, at):
                    # As one of another history: the client gets a reset, and the snapshot.
                    lost[subject] = PositionAfter("lost", after.epoch, after.seq)
        if lost:
            positions = {**(command.positions or {}), **lost}
            command = msgspec.structs.replace(command, positions=positions)
        if isinstance(command, Resume) and command.places is not None:
            # Partitions are no subject groups, so a place in the log of a group says nothing.
            return msgspec.structs.replace(command, places=None)
        return command

    def _timer(self, due: TimerDue) -> None:
        if due.timer == SWEEP:
            self.mode.sweep_on()
            return
        super()._timer(due)
        if due.timer[0] != "broker":
            self.mode.tick()

    def unready(self) -> str | None:
        """Return why this member serves no clients now; None if it does."""
        return self.mode.unready()

    def away(self) -> str | None:
        """Return why Kafka cannot be reached; None if it can be."""
        return self.mode.away
