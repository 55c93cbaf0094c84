"""The models themselves: the quick ones run, and the checks around them see a wrong verdict."""

import re
from pathlib import Path

import pytest

from spec import bounds, check, models, tlc

needs_tlc = pytest.mark.skipif(not tlc.available(), reason="TLC needs Java")
FOLDER = Path(models.__file__).parent


def run_of(verdict: str, idle: tuple[str, ...] = ()) -> tlc.Run:
    return tlc.Run(verdict, 1, 1, 0.1, None, idle, "")


@needs_tlc
@pytest.mark.slow
def test_quick_models_come_out_as_they_must(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = models.chosen("quick")

    assert check.check_models(chosen, "quick", jobs=2), capsys.readouterr().out
    assert {model.kind for model in chosen} == {"holds", "witness", "mutant"}


@needs_tlc
def test_a_mutant_that_is_presented_as_the_protocol_is_refuted() -> None:
    mutant = next(m for m in models.MUTANTS if m.name == "without: delivered at commit")

    run = tlc.check(mutant.module, mutant.config(), timeout_s=60)

    assert (run.verdict, run.broken) == ("violated", "DeliveredIsCommitted")
    assert check.fault(mutant, run) is None


@pytest.mark.parametrize(
    ("kind", "run", "problem"),
    [
        ("holds", run_of("holds"), None),
        ("holds", run_of("violated"), "must hold, but: violated"),
        ("holds", run_of("time-out"), "must hold, but: time-out"),
        ("holds", run_of("holds", ("Commit",)), "actions that were never taken: Commit"),
        ("holds", run_of("holds", ("Crash",)), None),
        ("witness", run_of("holds"), "must be reached, but: holds"),
        ("mutant", run_of("holds"), "must be refuted, but: holds"),
        ("mutant", run_of("error"), "must be refuted, but: error"),
    ],
)
def test_wrong_verdict_is_named(kind: str, run: tlc.Run, problem: str | None) -> None:
    model = models.Model("any", kind, "GroupLog", bounds.log(2, 0, 1), (), idle=("Crash",))

    assert check.fault(model, run) == problem


@needs_tlc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("invariants", "broken"), [(("NeverRecovered",), "NeverRecovered"), (models.LOG, None)]
)
def test_behaviours_that_are_drawn_reach_what_they_have_to(
    invariants: tuple[str, ...], broken: str | None
) -> None:
    """With three epochs and crashes there are too many states to visit all of them."""
    drawn = models.DRAWN[0]
    model = models.Model(
        "drawn", "holds", drawn.module, drawn.sets, invariants, symmetric=False, behaviours=60
    )

    run = tlc.check(model.module, model.config(), timeout_s=240, behaviours=model.behaviours)

    assert run.broken == broken, run.output
    assert run.verdict == ("violated" if broken else "holds")
    assert broken or run.states > 1000


@pytest.mark.parametrize(
    ("printed", "broken"),
    [
        ("Error: Invariant Once is violated.", "Once"),
        (
            "Error: Action property line 9, col 1 to line 9, col 8 of module Delivery is violated.",
            "line 9, col 1 to line 9, col 8 of module Delivery",
        ),
        ("Error: Temporal properties were violated.", "Temporal properties"),
    ],
)
def test_what_tlc_says_is_broken_is_read(printed: str, broken: str) -> None:
    run = tlc.read_output(printed, 1.0, in_time=True)

    assert (run.verdict, run.broken) == ("violated", broken)


@needs_tlc
def test_without_fairness_nothing_is_committed_in_the_end() -> None:
    mutant = next(m for m in models.MUTANTS if m.module == "Progress")

    run = tlc.check(mutant.module, mutant.config(), timeout_s=120)

    assert (run.verdict, run.broken) == ("violated", "Temporal properties")


def test_every_rule_of_the_modules_has_its_mutant() -> None:
    rules = {
        rule
        for module in FOLDER.glob("*.tla")
        for rule in re.findall(r'Rule\("([^"]+)"\)', module.read_text())
    }
    without_mutant = set(models.SURVIVORS)

    assert {rule for model in models.MUTANTS for rule in model.off} == rules - without_mutant
    assert without_mutant < rules


def test_missing_java_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(tlc.TlcUnavailableError, match=r"^TLC needs Java 11 or newer[^\n]*$"):
        tlc.java()
    assert not tlc.available()
