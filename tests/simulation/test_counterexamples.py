"""Counterexamples of the specification lead runs: they pass, and show the rule that is left out."""

import pytest
from attrs import evolve
from click.testing import CliRunner

from simulation import __main__ as commands
from simulation.counterexamples import CODE, DRAWS, counterexample
from simulation.mutant import switched_on
from simulation.mutants import MUTANTS
from simulation.run import run
from simulation.stored import load
from spec import tlc
from spec.counterexamples import NoCounterexampleError, Step, steps

BY_TITLE = {mutant.title: mutant for mutant in MUTANTS}
STORED = {stored.rule: stored.plan for stored in load().values() if stored.rule}
PRINTED = """Error: Invariant I1 is violated.
State 1: <Initial predicate>
/\\ promised = (s1 :> 0 @@ s2 :> 0)
/\\ accepted = (s1 :> 0 @@ s2 :> 0)
/\\ incarnation = (s1 :> 0 @@ s2 :> 0)
/\\ status = (s1 :> "normal" @@ s2 :> "normal")
/\\ log = (s1 :> <<>> @@ s2 :> <<>>)
/\\ phase = <<"idle">>
/\\ clog = <<<<>>>>
/\\ commit = <<0>>
/\\ sent = {}

State 2: <PromiseWith line 87, col 5 to line 93, col 86 of module GroupLog>
/\\ promised = (s1 :> 0 @@ s2 :> 1)
/\\ accepted = (s1 :> 0 @@ s2 :> 0)
/\\ incarnation = (s1 :> 0 @@ s2 :> 0)
/\\ status = (s1 :> "normal" @@ s2 :> "normal")
/\\ log = (s1 :> <<>> @@ s2 :> <<>>)
/\\ phase = <<"idle">>
/\\ clog = <<<<>>>>
/\\ commit = <<0>>
/\\ sent = { [ log |-> <<>>,
    kind |-> "promise",
    from |-> s2,
    epoch |-> 1 ] }

State 3: <Elect line 117, col 13 to line 117, col 65 of module GroupLog>
/\\ promised = (s1 :> 0 @@ s2 :> 1)
/\\ accepted = (s1 :> 0 @@ s2 :> 0)
/\\ incarnation = (s1 :> 0 @@ s2 :> 0)
/\\ status = (s1 :> "normal" @@ s2 :> "normal")
/\\ log = (s1 :> <<>> @@ s2 :> <<>>)
/\\ phase = <<"active">>
/\\ clog = <<<<>>>>
/\\ commit = <<0>>
/\\ sent = {[log |-> <<>>, kind |-> "promise", from |-> s2, epoch |-> 1]}

State 4: <Publish line 149, col 5 to line 152, col 83 of module GroupLog>
/\\ promised = (s1 :> 0 @@ s2 :> 1)
/\\ accepted = (s1 :> 0 @@ s2 :> 0)
/\\ incarnation = (s1 :> 0 @@ s2 :> 0)
/\\ status = (s1 :> "normal" @@ s2 :> "normal")
/\\ log = (s1 :> <<>> @@ s2 :> <<>>)
/\\ phase = <<"active">>
/\\ clog = << <<[epoch |-> 1, what |-> p1]>> >>
/\\ commit = <<0>>
/\\ sent = {[log |-> <<>>, kind |-> "promise", from |-> s2, epoch |-> 1]}

12 states generated, 9 distinct states found, 0 states left on queue.
"""


def test_the_steps_of_a_counterexample_are_told_by_what_they_changed() -> None:
    assert steps(PRINTED) == [
        Step("Promise", 1, 1),
        Step("Elect", 1, counted=(1,)),
        Step("Publish", 1, publication="p1"),
    ]


def test_a_coordinator_that_nobody_promised_to_took_a_shortcut() -> None:
    unelected = PRINTED.replace('kind |-> "promise"', 'kind |-> "ack", length |-> 0')

    assert steps(unelected)[1] == Step("Shortcut", 1)


def test_without_a_counterexample_there_are_no_steps() -> None:
    with pytest.raises(NoCounterexampleError, match="no counterexample"):
        steps("Model checking completed. No error has been found.")


def test_each_rule_that_is_left_out_has_a_plan_and_a_mutant() -> None:
    assert set(STORED) == set(CODE)
    assert set(CODE.values()) <= set(BY_TITLE)


@pytest.mark.parametrize("rule", STORED)
def test_a_run_along_a_counterexample_passes_and_fails_without_the_rule(rule: str) -> None:
    plans = [evolve(STORED[rule], seed=seed) for seed in range(1, DRAWS + 1)]

    assert [run(plan)[0].problems for plan in plans] == [()] * DRAWS
    with switched_on(BY_TITLE[CODE[rule]]):
        found = [bool(run(plan)[0].problems) for plan in plans]

    assert any(found)


@pytest.mark.parametrize("rule", STORED)
def test_without_the_rule_members_take_each_step_of_its_counterexample(rule: str) -> None:
    plan = STORED[rule]
    alone = {"Publish", "Crash", "LoseVote"}  # these are made to happen

    with switched_on(BY_TITLE[CODE[rule]]):
        taken = [
            run(evolve(plan, seed=seed))[0].coverage.get("led to a step", 0)
            for seed in range(1, DRAWS + 1)
        ]

    assert max(taken) == sum(step.action not in alone for step in plan.led)


@pytest.mark.slow
@pytest.mark.skipif(not tlc.available(), reason="no TLC")
def test_what_tlc_finds_is_the_plan_that_is_stored() -> None:
    rule = "commit on a majority"

    assert counterexample(rule).plan == STORED[rule]


def test_the_command_leads_a_run_along_the_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = next(one for one in load().values() if one.rule == "commit on a majority")
    monkeypatch.setattr(commands, "find_counterexample", lambda _: stored)

    ended = CliRunner().invoke(commands.main, ["counterexample", stored.rule])

    assert ended.exit_code == 0, ended.output
    assert "Promise in epoch 1 of seed 0" in ended.output
    assert f"7 of {len(stored.plan.led)} steps" in ended.output
