"""The job `rollup`: each sample is in the summaries of each level once, however runs end."""

import datetime as dt
import random
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from mdserver.core.windows import WINDOWS
from mdserver.pipeline.common import checkpoints, delta, tables
from mdserver.pipeline.common.maintenance import ROLLUP
from mdserver.pipeline.rollup import job as rollup_job
from mdserver.pipeline.rollup.summaries import DAY_S, LEVELS, WINDOWS_VIEW

pytestmark = pytest.mark.pipeline

START = dt.datetime.fromtimestamp(680 * 30 * DAY_S, dt.UTC)
Sample = dict[str, Any]


class KilledError(BaseException):
    """The process ends here."""


class Archive:
    """Tables with samples, of which the test remembers all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.samples: list[Sample] = []
        self._rng = random.Random(20)
        self._batches: dict[int, int] = defaultdict(int)

    def add(self, first: dt.datetime, count: int, *, source: int = 1, spread_s: int = 7200) -> None:
        """A batch of samples after a moment: of counters that are high and grow slowly."""
        self._batches[source] += 1
        batch = self._batches[source]
        rows = [
            {
                "ts": first + dt.timedelta(seconds=self._rng.randrange(spread_s), microseconds=n),
                "node": f"n{self._rng.randrange(2)}",
                "indicator": "bytes_out_total",
                "value": 1e12 + self._rng.randrange(1000),
                "batch_id": batch,
                "source": source or None,
            }
            for n in range(count)
        ]
        delta.append_rows(self.folder, "stats", f"archive-stats-{source}", batch, rows)
        self.samples += rows

    def expected(self, seconds: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Summaries in exact arithmetic, from all samples that ever were."""
        groups: dict[tuple[Any, ...], list[Sample]] = defaultdict(list)
        for row in self.samples:
            begin = int(row["ts"].timestamp()) // seconds * seconds
            groups[dt.datetime.fromtimestamp(begin, dt.UTC), row["node"]].append(row)
        found = {}
        for key, rows in groups.items():
            values = [Fraction(row["value"]) for row in rows]
            mean = sum(values) / len(values)
            last = max(rows, key=lambda row: row["ts"])
            found[key] = (
                len(rows),
                pytest.approx(float(mean), rel=1e-15),
                pytest.approx(float(sum((v - mean) ** 2 for v in values)), rel=1e-6, abs=1e-6),
                float(max(values)),
                float(min(values)),
                last["value"],
                last["ts"],
            )
        return found

    def stored(self, table: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        columns = ("n", "mean", "m2", "max", "min", "last", "last_ts")
        rows = DeltaTable(self.folder / table).to_pyarrow_table().to_pylist()
        found = {(row["period"], row["node"]): tuple(row[c] for c in columns) for row in rows}
        assert len(found) == len(rows), "a period has two rows"
        return found

    def check(self) -> None:
        for level in LEVELS:
            assert self.stored(level.table) == self.expected(level.seconds), level.table


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "tables")


def test_only_what_is_new_is_rolled_up(spark: Any, archive: Archive) -> None:
    archive.add(START, 200)
    first = rollup_job.run_rollup(spark, archive.folder)
    assert first.samples == 200
    assert rollup_job.run_rollup(spark, archive.folder) == rollup_job.RolledUp(
        0, dict.fromkeys(first.summaries, 0), 0
    )
    archive.add(START + dt.timedelta(seconds=30), 10, spread_s=20)  # late, of one minute
    archive.add(START + dt.timedelta(days=40), 5, source=2, spread_s=1)
    changed = rollup_job.run_rollup(spark, archive.folder)
    assert changed.samples == 15
    assert set(changed.summaries.values()) <= {3, 4}
    archive.check()


def test_samples_that_are_deleted_stay_in_the_summaries(
    spark: Any, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came while the run was at work are left for the next one."""
    archive.add(START, 100)
    archive.add(START + dt.timedelta(days=1), 100)
    later = START + dt.timedelta(days=1, hours=5)
    told = rollup_job.run_rollup(spark, archive.folder, later)
    assert told.deleted == 100
    left = DeltaTable(archive.folder / "stats").to_pyarrow_table()["ts"].to_pylist()
    assert len(left) == 100
    assert min(left) >= START + dt.timedelta(days=1)
    archive.add(START, 50)
    advance = rollup_job.Rollup.advance

    def advancing(self: Any, *levels: Any) -> int:
        monkeypatch.undo()
        archive.add(START, 30)
        return advance(self, *levels)

    monkeypatch.setattr(rollup_job.Rollup, "advance", advancing)
    assert rollup_job.run_rollup(spark, archive.folder, later).deleted == 50
    assert rollup_job.run_rollup(spark, archive.folder).samples == 30
    archive.check()


def test_summaries_of_a_source_of_which_no_sample_is_left_stay(
    spark: Any, archive: Archive
) -> None:
    """Late samples of the next source are of the same minutes. Seen before: they replaced them."""
    archive.add(START, 100)
    after = START + dt.timedelta(days=2)
    assert rollup_job.run_rollup(spark, archive.folder, after).deleted == 100
    archive.add(START, 50, source=2)
    rollup_job.run_rollup(spark, archive.folder, after)
    archive.add(START, 20, source=3)
    rollup_job.run_rollup(spark, archive.folder)
    archive.check()


def test_a_kill_at_any_point_leaves_each_sample_once(
    spark: Any, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite = rollup_job.rewrite
    for number in range(2 * len(LEVELS)):
        archive.add(START + dt.timedelta(minutes=45 * number), 20)
        commits: list[int] = []

        def killed(*given: Any, at: int = number, commits: list[int] = commits) -> int:
            commits.append(at)
            if len(commits) == at // 2 + 1:
                if at % 2:
                    rewrite(*given)
                raise KilledError
            return rewrite(*given)

        monkeypatch.setattr(rollup_job, "rewrite", killed)
        with pytest.raises(KilledError):
            rollup_job.run_rollup(spark, archive.folder)
    monkeypatch.undo()
    rollup_job.run_rollup(spark, archive.folder)
    archive.check()


def test_a_batch_is_archived_although_samples_were_deleted_meanwhile(
    spark: Any, archive: Archive
) -> None:
    """Delta takes the deletion for a reason to refuse a writer that began before it."""
    archive.add(START, 20)
    batch = delta.TableBatch("archive-stats-1", 2)
    row = {**archive.samples[0], "ts": START + dt.timedelta(days=3), "batch_id": 2}
    schema = "ts timestamp, node string, indicator string, value double, batch_id long, source long"
    staged = delta.stage(archive.folder, "stats", batch, spark.createDataFrame([row], schema))
    assert staged is not None
    deleted = rollup_job.run_rollup(spark, archive.folder, START + dt.timedelta(days=2)).deleted
    assert deleted == 20
    delta.commit(staged, batch)
    assert DeltaTable(archive.folder / "stats").to_pyarrow_table().num_rows == 1
    with pytest.raises(Exception, match=r"(?i)transaction"):
        delta.commit(staged, batch)


def test_one_rollup_at_a_time(spark: Any, archive: Archive) -> None:
    archive.add(START, 1)
    with (
        checkpoints.alone(archive.folder, ROLLUP),
        pytest.raises(checkpoints.BusyError, match="another rollup job is at work"),
    ):
        rollup_job.run_rollup(spark, archive.folder)


def test_the_view_of_the_windows_equals_exact_arithmetic(spark: Any, archive: Archive) -> None:
    """For Spark and DuckDB, of counters that are high and grow slowly."""
    archive.add(START, 300, spread_s=15 * DAY_S)
    archive.add(START + dt.timedelta(days=15), 200, spread_s=3600)
    rollup_job.run_rollup(spark, archive.folder)
    connection = duckdb.connect()
    for level in LEVELS:
        table = DeltaTable(archive.folder / level.table).to_pyarrow_table()
        connection.register(level.table, table)
        tables.frame(spark, archive.folder, level.table).createOrReplaceTempView(level.table)
    view = WINDOWS_VIEW.read_text(encoding="utf-8")
    connection.execute(view)
    spark.sql(view)
    query = "select * exclude (indicator) from stats_windows order by window_name, node"
    asked = [tuple(row) for row in spark.sql(query.replace("exclude", "except")).collect()]
    assert asked == [pytest.approx(row) for row in connection.execute(query).fetchall()]
    assert len(asked) == 24
    for name, node, n, highest, lowest, average, deviation in asked:
        unit, count = WINDOWS[name]
        level = LEVELS[unit]
        newest = max(archive.stored(level.table))[0]
        begin = newest - dt.timedelta(seconds=level.seconds * (count - 1))
        inside = [
            Fraction(row["value"])
            for row in archive.samples
            if row["node"] == node and row["ts"] >= begin
        ]
        mean = sum(inside) / len(inside)
        exact = (sum((each - mean) ** 2 for each in inside) / len(inside)) ** 0.5
        assert (n, highest, lowest) == (len(inside), max(inside), min(inside))
        assert average == pytest.approx(float(mean), rel=1e-15)
        assert deviation == pytest.approx(exact, rel=1e-6)
