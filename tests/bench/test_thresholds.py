import pytest

from mdserver.bench.results import Row
from mdserver.bench.thresholds import Threshold
from mdserver.errors import ConfigError


def row(mode: str, p99_ms: float | None) -> Row:
    return Row(
        bench="storm",
        mode=mode,
        encoding="json",
        connections=1,
        count=1,
        seconds=1.0,
        per_s=1.0,
        p99_ms=p99_ms,
    )


ROWS = [row("before", 10.0), row("storm", 80.0), row("connections", None)]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("p99_ms > 100", 0),
        ("p99_ms > 50", 1),
        ("p99_ms>=10", 2),
        ("storm: p99_ms > 50", 1),
        ("before: p99_ms > 50", 0),
        ("per_s < 2", 3),
        ("p99_ms == 10", 1),
        ("p99_ms != 10", 1),
        ("p99_ms <= 9", 0),
    ],
)
def test_a_condition_is_looked_for_in_the_rows_of_its_mode(text: str, broken: int) -> None:
    assert len(Threshold.read(text).broken_by(ROWS)) == broken


def test_what_holds_is_told_with_its_figure() -> None:
    (told,) = Threshold.read("p99_ms > 50").broken_by(ROWS)
    assert told == "--fail-if 'p99_ms > 50': p99_ms is 80 in storm, storm"


@pytest.mark.parametrize("text", ["ratio < 1", "connections: p99_ms > 1", "elsewhere: per_s > 1"])
def test_a_condition_without_a_figure_fails(text: str) -> None:
    (told,) = Threshold.read(text).broken_by(ROWS)
    assert "no row has that figure; the rows are 'before', 'storm'" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("p99_ms", "expected COLUMN > NUMBER, as in 'p99_ms > 50'"),
        ("p99_ms => 5", "expected COLUMN > NUMBER"),
        ("p99_ms > many", "'many' is no number"),
        ("p99_ms > nan", "expected a finite number, not 'nan'"),
        ("p99_ms < inf", "expected a finite number, not 'inf'"),
        ("p99ms > 5", "there is no column 'p99ms'; did you mean 'p99_ms'?"),
        ("mode > 5", "there is no column 'mode'"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Threshold.read(text)
    assert told in str(refused.value)
