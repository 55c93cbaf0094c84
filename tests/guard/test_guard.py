import json
from pathlib import Path

import pytest

from mdserver.bench.floor import compiler
from tests.guard import __main__ as guard
from tests.guard import counts


def test_only_what_is_worse_by_more_than_a_tenth_fails() -> None:
    kept = {"a": 100.0, "b": 10.0}
    assert guard.worse(kept, {"a": 109.0, "b": 5.0, "new": 1.0}, less_is_better=True) == []
    assert guard.worse(kept, {"a": 111.0, "b": 10.0}, less_is_better=True) == ["a"]
    assert guard.worse(kept, {"a": 91.0, "b": 20.0}, less_is_better=False) == []
    assert guard.worse(kept, {"a": 89.0, "b": 10.0}, less_is_better=False) == ["a"]


def test_a_ratio_that_seems_worse_is_measured_again_and_the_best_counts() -> None:
    turns = iter([{"a": 0.5, "b": 1.0}, {"a": 0.97, "b": 0.2}, {"a": 9.0, "b": 9.0}])
    assert guard.best_ratios({"a": 1.0, "b": 1.0}, lambda: next(turns)) == {"a": 0.97, "b": 1.0}
    assert next(turns) == {"a": 9.0, "b": 9.0}  # a third time was not needed


@pytest.mark.slow
def test_a_figure_that_got_worse_makes_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "performance.json"
    monkeypatch.setattr(guard, "KEPT", kept)
    assert guard.main(["--counts-only", "--write"]) == 0
    figures = json.loads(kept.read_text())
    assert len(figures["counts"]) == 2 * len(counts.SCENARIOS)
    assert min(figures["counts"].values()) > 10
    name = "a publication to one subscriber: instructions"
    again = {key: figure / (1.5 if key == name else 1) for key, figure in figures["counts"].items()}
    monkeypatch.setattr(guard, "count_figures", lambda: figures["counts"])
    kept.write_text(json.dumps(figures | {"counts": again}))
    assert guard.main(["--counts-only"]) == 1
    assert f"worse by more than 10%: {name}" in capsys.readouterr().out
    kept.write_text(json.dumps(figures))
    assert guard.main(["--counts-only"]) == 0


@pytest.mark.skipif(compiler() is None, reason="ratios need a C compiler")
def test_ratios_of_another_engine_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "performance.json"
    monkeypatch.setattr(guard, "KEPT", kept)
    monkeypatch.setattr(guard, "count_figures", dict)
    figures = json.loads((Path(__file__).parents[2] / "docs" / "performance.json").read_text())
    kept.write_text(json.dumps(figures | {"counts": {}, "fanout": "pigeon"}))
    assert guard.main([]) == 0
    assert "ratios are kept for pigeon, this is " in capsys.readouterr().out


def test_the_kept_figures_are_those_that_are_measured() -> None:
    kept = json.loads(guard.KEPT.read_text(encoding="utf-8"))
    names = {
        f"{each.name}: {what}" for each in counts.SCENARIOS for what in ("instructions", "calls")
    }
    assert set(kept["counts"]) == names
    assert len(kept["ratios"]) == 5
