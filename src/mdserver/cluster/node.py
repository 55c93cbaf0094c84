"""`Node.step` is the only way into the broker and the cluster (docs/design.md)."""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.dedupe import Verdict
from mdserver.cluster.log import GroupLog
from mdserver.core.broker import Broker
from mdserver.core.commands import AnyCommand, Publish
from mdserver.core.inputs import Closed, Decided, Opened, Received, RulesChanged, TimerDue
from mdserver.core.message import Entry, Qos
from mdserver.core.outputs import Committed, Output
from mdserver.core.proposal import Outcome, Proposal

if TYPE_CHECKING:
    import random

    from mdserver.core.settings import BrokerSettings

Input = Opened | Received | Closed | TimerDue | Decided | RulesChanged


class Node:
    """One member: its broker and its part of the cluster.

    `step` is synchronous, never re-entered, and never raises for what a client or a peer sent.
    """

    def __init__(self, settings: "BrokerSettings", rng: "random.Random") -> None:
        self.history = f"{rng.getrandbits(64):016x}"
        self.broker = Broker(settings, self.history)
        self._epoch = 1
        self._logs = [GroupLog(0) for _ in range(settings.groups)]

    def step(self, input: Input, now: int) -> list[Output]:  # noqa: A002 - the design's word
        """Take one input; returns what the driver carries out, in order."""
        out: list[Output] = []
        match input:
            case Received():
                for run in publish_runs(input.commands):
                    self.broker.received(input.session, run, now, out)
                    if self.broker.proposals:
                        self._propose(now, out)
                return out
            case Opened():
                self.broker.opened(input, now, out)
            case Closed():
                self.broker.closed(input, now, out)
            case TimerDue():
                self.broker.timer(input, now, out)
            case Decided():
                self.broker.decided(input, now, out)
            case RulesChanged():
                self.broker.rules_changed(input)
        if self.broker.proposals:
            self._propose(now, out)
        return out

    def _propose(self, now: int, out: list[Output]) -> None:
        proposals, self.broker.proposals = self.broker.proposals, []
        by_group: dict[int, list[Proposal]] = {}
        for proposal in proposals:
            group = zlib.crc32(proposal.publication.subject.encode()) % len(self._logs)
            by_group.setdefault(group, []).append(proposal)
        for group, batch in by_group.items():
            self._commit(group, batch, now, out)

    def _commit(
        self, group: int, proposals: Sequence[Proposal], now: int, out: list[Output]
    ) -> None:
        log = self._logs[group]
        outcomes: list[Outcome] = []
        for proposal in proposals:
            publication = proposal.publication
            if publication.qos is Qos.STANDARD:
                self.broker.committed(group, [Entry(0, 0, publication)], now, out)
                outcomes.append(Outcome(proposal.origin))
                continue
            if publication.number:
                verdict, expected, position = log.publishers.verdict(
                    publication.publisher, publication.number
                )
                if verdict is not Verdict.NEXT:
                    outcomes.append(
                        Outcome(proposal.origin, position.epoch, position.seq, duplicate=True)
                        if verdict is Verdict.TAKEN
                        else gap(proposal, expected)
                    )
                    continue
            log.number(self._epoch, (publication,), None)
            outcomes.append(Outcome(proposal.origin, self._epoch, log.entries[-1].seq))
        entries, _ = log.commit(log.length)
        if entries:
            self.broker.committed(group, entries, now, out)
            out.append(Committed(group, entries))
        for outcome in outcomes:
            self.broker.outcome(outcome, now, out)


def publish_runs(commands: Sequence[AnyCommand]) -> list[Sequence[AnyCommand]]:
    """Split commands so that publications and other commands never mix in one run."""
    runs: list[Sequence[AnyCommand]] = []
    start = 0
    for index in range(1, len(commands)):
        if isinstance(commands[index], Publish) != isinstance(commands[start], Publish):
            runs.append(commands[start:index])
            start = index
    if commands:
        runs.append(commands[start:] if start else commands)
    return runs


def gap(proposal: Proposal, expected: int) -> Outcome:
    """The refusal of a number that is not the next one."""
    number = proposal.publication.number
    return Outcome(
        proposal.origin,
        reason=f"number {number} does not follow; the next of this publisher here is {expected}",
        expected=expected,
    )
