"""Costs that are known are found again, plans follow from them, and nothing is foretold too far."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from mdserver.bench import results
from mdserver.bench.results import Row, write
from mdserver.cli.pipeline import command
from mdserver.pipeline.capacity import job as capacity_job
from mdserver.pipeline.capacity import model as capacity
from mdserver.pipeline.capacity import report as capacity_report
from mdserver.pipeline.capacity.model import Demand, Observation
from mdserver.pipeline.common import object_store, schema
from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.places import RemoteTables, Tables
from mdserver.pipeline.common.requirements import PipelineError

pytestmark = pytest.mark.pipeline

DELIVERY_S, KIB_S, FIRST_S = 0.4e-6, 0.5e-6, 8e-6
"""Processor time of a delivery, of each KiB of it, and of the first one of a burst."""


def delivery(content_bytes: int, burst: int, error: float = 1.0) -> Observation:
    cost = DELIVERY_S + KIB_S * content_bytes / 1024 + FIRST_S / burst
    return Observation("deliveries", cost * error, content_bytes, burst, 1000)


DELIVERIES = [delivery(size, burst) for size in (64, 256, 1024) for burst in (1, 20)]
OTHERS = [
    Observation("publications", 15e-6, 128, 1, 1),
    Observation("replicated publications", 50e-6, 128, 1, 3),
    Observation("connects", 400e-6, 0, 1, 10_000),
    Observation("connections", 7000, 0, 1, 10_000),
    Observation("subjects", 1800, 128, 1, 1),
    Observation("cached messages", 500, 128, 1, 1),
]
FITS = capacity.fit_all([*DELIVERIES, *OTHERS])


def test_known_costs_are_found_again() -> None:
    fit = FITS["deliveries"]
    assert fit.constant == pytest.approx(DELIVERY_S, rel=1e-6)
    assert fit.terms == pytest.approx({"content_bytes": KIB_S, "per_burst": FIRST_S}, rel=1e-6)
    assert fit.error == pytest.approx(0, abs=1e-6)


def test_the_error_is_that_of_foretelling_a_run_from_the_others() -> None:
    noisy = [delivery(128, 1, 1.0), delivery(128, 1, 1.0), delivery(128, 1, 1.25)]
    fit = capacity.fit("deliveries", noisy)
    assert fit.terms == {}
    assert fit.error == pytest.approx(1 - 1 / 1.25)


def test_no_term_is_negative() -> None:
    falling = [
        Observation("publications", cost, size, 1, 1)
        for size, cost in ((64, 20e-6), (256, 18e-6), (1024, 12e-6))
    ]
    fit = capacity.fit("publications", falling)
    assert fit.terms == {}
    assert 12e-6 < fit.constant < 20e-6


def test_a_plan_is_the_smallest_cluster_that_carries_the_load() -> None:
    demand = Demand(connections=30_000, publications=1000, deliveries=200_000, burst=2, connects=50)
    plan = capacity.plan(FITS, demand)
    each = DELIVERY_S + KIB_S / 8 + FIRST_S / 2
    expected = {
        members: (200_000 / members * each + 1000 * 50e-6 + 50 / members * 400e-6) / 0.7
        for members in (3, 4)
    }
    assert expected[3] <= 1
    assert plan.members == 3
    assert sum(plan.processor.values()) == pytest.approx(expected[3])
    assert plan.limited_by == "deliveries (processor time)"
    assert plan.memory["connections"] == pytest.approx(10_000 * 7000 / 2**32)
    assert plan.fits[0].resource == "deliveries"


def test_one_member_is_enough_for_little() -> None:
    plan = capacity.plan(FITS, Demand(connections=100, publications=10, deliveries=1000))
    assert plan.members == 1
    assert set(plan.processor) == {"deliveries", "publications"}


def test_memory_may_be_what_limits() -> None:
    demand = Demand(connections=60_000, publications=1, deliveries=1, memory=150 << 20)
    plan = capacity.plan(FITS, demand)
    assert (plan.members, plan.limited_by) == (3, "connections (memory)")


@pytest.mark.parametrize(
    ("demand", "told"),
    [
        (
            Demand(connections=1, publications=1, deliveries=1, content_bytes=4096),
            "deliveries: 4,096 bytes of content is beyond twice the 1,024 that were measured",
        ),
        (
            Demand(connections=1, publications=1, deliveries=1, burst=100),
            "deliveries: 100 messages in a burst is beyond twice the 20 that were measured",
        ),
        (
            Demand(connections=30_000, publications=1, deliveries=1),
            "connections: 30,000 connections a member is beyond twice the 10,000",
        ),
        (
            Demand(connections=1, publications=1, deliveries=800_000),
            "replicated publications: 10 members is beyond twice the 3",
        ),
        (
            Demand(connections=1, publications=60_000, deliveries=1),
            "no cluster of up to 1000 members carries this: replicated publications",
        ),
    ],
)
def test_what_was_not_measured_is_not_foretold(demand: Demand, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        capacity.plan(FITS, demand)


def test_what_is_missing_is_named_with_the_command_that_measures_it() -> None:
    fits = {name: fit for name, fit in FITS.items() if name != "connects"}
    demand = Demand(connections=1, publications=1, deliveries=1, connects=1)
    with pytest.raises(PipelineError, match=r"nothing was measured of connects: .*bench connect"):
        capacity.plan(fits, demand)
    with pytest.raises(PipelineError, match=r"at least 4 runs of .*bench fanout"):
        capacity.fit("deliveries", [delivery(64, 1), delivery(128, 20), delivery(64, 20)])


def test_observations_are_taken_from_sound_runs_alone(spark: Any) -> None:
    columns = "bench string, mode string, connections long, content_bytes long, per_cpu_s double,"
    columns += " kib_each double, lost long, repeated long, altered long"
    runs = [
        ("fanout", "one at a time", 100, 128, 100_000.0, None, 0, 0, 0),
        ("fanout", "bursts of 20", 100, 128, 2_000_000.0, None, 0, 0, 0),
        ("fanout", "bursts of 50", 100, 128, 9_000_000.0, None, 1, 0, 0),
        ("cluster", "pipelined", 3, 128, 20_000.0, None, None, None, None),
        ("cluster", "one at a time", 3, 128, 900.0, None, None, None, None),
        ("idle", "64 at a time", 10_000, None, 3000.0, 6.5, None, None, None),
        ("cache", "one a subject", 1, 128, None, 1.75, None, None, None),
        ("cache", "in 100 histories", 1, 128, None, 0.5, None, None, None),
        ("stalled", "one at a time", 1000, 128, 1.0, None, None, None, None),
    ]
    found = capacity.observations(spark.createDataFrame(runs, columns)).collect()
    assert [tuple(row) for row in found] == [
        ("deliveries", 1e-5, 128.0, 1.0, 100.0),
        ("deliveries", 5e-7, 128.0, 20.0, 100.0),
        ("replicated publications", pytest.approx(1 / 60_000), 128.0, 1.0, 3.0),
        ("connections", 6656.0, 0.0, 1.0, 10_000.0),
        ("subjects", 1792.0, 128.0, 1.0, 1.0),
        ("cached messages", 512.0, 128.0, 1.0, 1.0),
    ]


def test_the_page_says_what_the_plan_rests_on() -> None:
    demand = Demand(connections=30_000, publications=1000, deliveries=200_000, burst=2)
    page = capacity_report.page(capacity.plan(FITS, demand), demand)
    assert "3 members <small>limited by deliveries (processor time)</small>" in page
    assert page.count("<circle") == len(DELIVERIES)
    assert "one run only" in page
    assert "http" not in page


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Lines of benchmarks as they write them."""
    rows = [
        bench_row("fanout", "one at a time" if run.burst == 1 else f"bursts of {run.burst}", run)
        for run in DELIVERIES
    ]
    rows += [
        bench_row("publish", "pipelined", OTHERS[0]),
        # What is measured of a cluster is the processor time of all its members.
        bench_row("cluster", "pipelined", attrs.evolve(OTHERS[1], cost=3 * OTHERS[1].cost)),
        attrs.evolve(bench_row("idle", "64 at a time", OTHERS[3]), per_cpu_s=1.0, kib_each=6.8),
    ]
    file = tmp_path / "runs.jsonl"
    write(rows, file)
    return file


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_runs_are_kept_once_however_often_they_are_given(
    runs: Path, tmp_path: Path, spark: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    tables: Tables = tmp_path / "tables"
    if kind == "s3":
        store = object_store.opened(f"{request.getfixturevalue('bucket')}/{tmp_path.name}")
        assert isinstance(store, RemoteStore)
        tables = RemoteTables(store)
    demand = Demand(connections=30_000, publications=1000, deliveries=200_000, burst=2)
    for files in ([runs], [runs], []):
        plan = capacity_job.run_capacity(spark, files, tables, demand, None)
        assert plan.members == 3
        assert [len(fit.runs) for fit in plan.fits] == [6, 1, 1]


def test_a_line_has_the_columns_of_a_measurement() -> None:
    told = [*results.environment(), *results.columns()]
    assert sorted(schema.BENCH_ROW.names) == sorted(told)


def test_a_run_that_an_earlier_release_stored_is_the_same_run(
    runs: Path, tmp_path: Path, spark: Any
) -> None:
    """It stored fewer columns, and is given the same file again."""
    tables = tmp_path / "tables"
    stored = [msgspec.json.decode(line) for line in runs.read_bytes().splitlines()]
    before = pa.schema(list(schema.TABLES["bench_runs"])[:24])
    write_deltalake(tables / "bench_runs", pa.Table.from_pylist(stored, before))
    demand = Demand(connections=30_000, publications=1000, deliveries=200_000, burst=2)
    capacity_job.run_capacity(spark, [runs], tables, demand, None)
    assert len(DeltaTable(tables / "bench_runs").to_pyarrow_table()) == len(stored)


def test_the_command_prints_the_plan_and_writes_the_page(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    command_line = [sys.executable, "-m", "mdserver.cli.main", "pipeline", "capacity", str(runs)]
    command_line += ["--connections", "30000", "--publications", "1000", "--deliveries", "200000"]
    command_line += ["--burst", "2", "--report", str(page)]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    assert "WARN" not in done.stderr.replace("WARNING: Using incubator modules", "")
    assert lines[0] == "3 members, limited by deliveries (processor time)"
    assert "deliveries: 6 runs, foretold within 0%" in lines
    assert "3 members" in page.read_text()
    told = subprocess.run(
        [*command_line, "--format", "json"], capture_output=True, text=True, timeout=120, check=True
    )
    plan = json.loads(told.stdout)
    assert (plan["members"], plan["limited_by"]) == (3, "deliveries (processor time)")
    assert [fit["runs"] for fit in plan["fits"]] == [6, 1, 1]


def bench_row(bench: str, mode: str, run: Observation) -> Row:
    return Row(
        bench=bench,
        mode=mode,
        encoding="binary",
        connections=int(run.connections),
        count=1,
        content_bytes=int(run.content_bytes),
        seconds=1.0,
        per_s=1.0,
        per_cpu_s=1 / run.cost,
    )


def test_a_size_that_is_none_is_one_line(tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_text(json.dumps({"bench": "idle"}) + "\n")
    arguments = ["capacity", str(runs), "--connections", "1", "--publications", "1"]
    arguments += ["--deliveries", "1", "--memory", "much"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert "--memory: expected a size from 1 MB to 1024 GB" in result.output
