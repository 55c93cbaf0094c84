import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from mdserver.bench.results import Latencies, Row, columns, show, write


def row(**columns: object) -> Row:
    given = {
        "bench": "fanout",
        "mode": "one at a time",
        "encoding": "json",
        "connections": 10,
        "count": 1000,
        "seconds": 0.5,
        "per_s": 2000.0,
    }
    return Row(**(given | columns))  # type: ignore[arg-type]


def test_a_line_has_all_columns_and_says_where_and_when(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write([row(), row(lost=3)], path)
    write([row(bench="idle")], path)
    first, second, third = (json.loads(line) for line in path.read_text().splitlines())
    assert set(first) == set(columns()) | {
        "columns_version",
        "time",
        "mdserver",
        "python",
        "system",
        "cpus",
    }
    assert (first["per_s"], first["lost"], second["lost"]) == (2000.0, None, 3)
    assert third["bench"] == "idle"


def test_the_documented_columns_are_those_of_a_line() -> None:
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert set(columns()) <= documented


def test_the_table_leaves_out_columns_that_do_not_apply() -> None:
    written = StringIO()
    show([row(), row(lost=3)], Console(file=written))
    lines = written.getvalue().splitlines()
    assert any("per s" in line and line.count("2,000") == 2 for line in lines)
    assert any("lost" in line for line in lines)
    assert not any("resident" in line for line in lines)


def test_percentiles_are_of_all_recorded_latencies() -> None:
    latencies = Latencies()
    latencies.add(1_000_000, 99)
    latencies.add(50_000_000, 1)
    measured = row()
    latencies.fill(measured)
    assert measured.p50_ms is not None
    assert measured.max_ms is not None
    assert 0.99 < measured.p50_ms < 1.01
    assert 49.9 < measured.max_ms < 50.1


def test_histograms_of_several_processes_become_one() -> None:
    one, other, both = Latencies(), Latencies(), Latencies()
    one.add(1_000_000, 3)
    other.add(1_000_000, 1)
    other.add(50_000_000, 1)
    both.merge(one.counts())
    both.merge(other.counts())
    assert both.count == 5
    assert both.counts()[0][1] == 4
    assert both.max_ms == other.max_ms
