"""Counterexamples of spoilt models as plans: a run that is led to where the specification breaks.

TLC finds the shortest way in which the protocol without one of its rules loses something. A plan
that leads members along it has to pass, and to fail once the same rule is left out of the code.
"""

from collections.abc import Iterable

from attrs import evolve

from mdserver.limits import NS_PER_S
from simulation.led import LedStep
from simulation.plan import Plan, small
from simulation.stored import StoredPlan
from spec import models, tlc
from spec.counterexamples import Step, steps

CODE = {
    "commit on a majority": "one acknowledgement commits",
    "a repeat is no new entry": "repeats are taken again",
    "numbers have no gaps": "numbers may have gaps",
    "promises are durable": "promises are not in the vote file",
    "recover before voting": "a restarted seed votes at once",
    "recover from the coordinator only": "recovery from any seed",
    "readmission elects anew": "a lost seed is taken back by any coordinator",
    "a hand-over elects": "every other hand-over elects nobody",
}
"""Rules of the specification, and the mutants that leave them out of the code."""

LOST = 4
"""As many times longer does a run last in which an operator takes a seed back at the end."""

DRAWS = 10
"""So many draws of how long messages and writes take; in one of them the bug has to show."""


def compiled(found: Iterable[Step]) -> Plan:
    """Return the plan that leads three seeds along the steps of a counterexample.

    No suspicion arises meanwhile: who stands for an epoch is asked to.
    """
    led = tuple(
        LedStep(step.action, step.epoch, step.seed, step.counted, *_identity(step.publication))
        for step in found
    )
    last = max(step.epoch for step in led)
    loses = any(step.action == "LoseVote" for step in led)
    return evolve(
        small(1, (LOST if loses else 1) * 8 * NS_PER_S, (), ()),
        members=3 + last + 1,  # whoever coordinates at first takes no part
        seeds=3,
        publishers=0,
        subscribers=0,
        suspect=8 * NS_PER_S,
        patience=120 * NS_PER_S,
        encoding="json",
        led=led,
    )


def _identity(publication: str) -> tuple[str, int]:
    """Return publisher and number: publications are numbered, or each has a publisher."""
    if publication.isdigit():
        return "publisher", int(publication)
    return publication, int(bool(publication))


def counterexample(rule: str) -> StoredPlan:
    """Return the plan of the counterexample of the model without a rule.

    Raises NoCounterexampleError, and TlcUnavailableError without Java.
    """
    spoilt = next(model for model in models.MUTANTS if model.off == (rule,))
    run = tlc.check(spoilt.module, spoilt.config(), coverage=False)
    about = f"TLC's counterexample of {spoilt.module} without the rule: {rule}"
    return StoredPlan(about=about, rule=rule, plan=compiled(steps(run.output)))
