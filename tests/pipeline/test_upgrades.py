"""Tables of the release before are gone on with; those of a newer one, or changed ones, are not."""

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from mdserver.journal.rows import ROW_VERSION, StatRow, checked
from mdserver.pipeline.common import checkpoints, delta, schema, tables
from mdserver.pipeline.common.files import add_actions
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.rollup import job as rollup_job
from mdserver.pipeline.rollup.summaries import LEVELS

from .conftest import run_archive, write_lines

pytestmark = pytest.mark.pipeline

TIME = pa.timestamp("us", "UTC")
STATS_BEFORE = pa.schema(
    [
        ("ts", TIME),
        ("node", pa.string()),
        ("indicator", pa.string()),
        ("value", pa.float64()),
        ("batch_id", pa.int64()),
    ]
)
"""The tables as the release before made them."""
SUMMARIES_BEFORE = pa.schema(
    [
        ("period", TIME),
        ("node", pa.string()),
        ("indicator", pa.string()),
        ("n", pa.int64()),
        ("mean", pa.float64()),
        ("m2", pa.float64()),
        ("max", pa.float64()),
        ("min", pa.float64()),
        ("last", pa.float64()),
        ("last_ts", TIME),
        ("sketch", pa.binary()),
    ]
)
GONE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
"""Of this minute there are summaries, and no samples any more."""
LEFT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
KEY = {"node": "n1", "indicator": "i"}


def write_tables_before(spark: Any, folder: Path) -> None:
    """Three samples, summaries of two of them, and of one that is deleted."""
    for name, columns in [("stats", STATS_BEFORE), *((e.table, SUMMARIES_BEFORE) for e in LEVELS)]:
        DeltaTable.create(folder / name, schema=columns)
    samples = [
        {"ts": LEFT + dt.timedelta(seconds=n), **KEY, "value": float(n), "batch_id": 1}
        for n in range(3)
    ]
    write_deltalake(folder / "stats", pa.Table.from_pylist(samples, STATS_BEFORE), mode="append")
    frame = spark.sql("select kll_sketch_agg_double(cast(id as double)) as sketch from range(2)")
    sketch = bytes(frame.collect()[0]["sketch"])
    for level in LEVELS:
        rows = [
            {
                "period": dt.datetime.fromtimestamp(
                    moment.timestamp() // level.seconds * level.seconds, dt.UTC
                ),
                **KEY,
                "n": n,
                "mean": 0.5,
                "m2": 0.5,
                "max": 1.0,
                "min": 0.0,
                "last": 1.0,
                "last_ts": moment,
                "sketch": sketch,
            }
            for moment, n in ((GONE, 7), (LEFT, 2))
        ]
        table = pa.Table.from_pylist(rows, SUMMARIES_BEFORE)
        write_deltalake(folder / level.table, table, mode="append")


def counts(folder: Path) -> list[list[int]]:
    found = (DeltaTable(folder / level.table).to_pyarrow_table() for level in LEVELS)
    return [table.sort_by("period")["n"].to_pylist() for table in found]


def test_tables_of_the_release_before_are_gone_on_with(spark: Any, tmp_path: Path) -> None:
    """Nothing is summarised twice, and what is left of deleted samples stays."""
    folder, journal = tmp_path / "tables", tmp_path / "journal"
    write_tables_before(spark, folder)
    assert tables.frame(spark, folder, "stats").where("source is null").count() == 3
    rollup_job.run_rollup(spark, folder)
    assert counts(folder) == [[7, 3]] * 4
    ts = int(LEFT.timestamp()) * 1_000_000 + 5_000_000
    row = StatRow(v=ROW_VERSION, ts=ts, value=9.0, **KEY)
    write_lines(journal / "stats", [checked(msgspec.json.encode(row))])
    run_archive(spark, journal, folder)
    rollup_job.run_rollup(spark, folder)
    assert counts(folder) == [[7, 4]] * 4
    assert delta.layout_of(DeltaTable(folder / "stats")) == schema.LAYOUT
    assert tables.frame(spark, folder, "stats").where("source = 1").count() == 1


VALUES: dict[pa.DataType, Any] = {
    pa.string(): "x",
    pa.int64(): 77,
    pa.float64(): 0.5,
    pa.bool_(): False,
    pa.binary(): b"x",
    TIME: LEFT,
    pa.map_(pa.string(), pa.string()): [("a", "b")],
}


def add_file(folder: Path, name: str, staged: str, columns: pa.Schema) -> None:
    """A row of these columns, in a file of its own; the order of files is that of `staged`."""
    partitions = schema.PARTITIONS.get(name, [])
    below = "".join(f"/{column}=x" for column in partitions)
    path = folder / name / f"{staged}{below}" / "part.parquet"
    path.parent.mkdir(parents=True)
    held = pa.schema([column for column in columns if column.name not in partitions])
    row = {column.name: VALUES[column.type] for column in held}
    pq.write_table(pa.Table.from_pylist([row], held), path)
    adds, _ = add_actions(folder / name, staged, partitions)
    target = DeltaTable(folder / name)
    target.create_write_transaction(adds, "append", target.schema(), partitions)


@pytest.mark.parametrize("order", ["older first", "newer first"])
@pytest.mark.parametrize("name", schema.TABLES)
def test_files_of_two_layouts_are_joined_without_loss(
    spark: Any, tmp_path: Path, name: str, order: str
) -> None:
    """Whichever file comes first, what the newer one has in added columns stays."""
    whole = schema.TABLES[name]
    kept = {*schema.PARTITIONS.get(name, []), *schema.SORT.get(name, [])}
    added = [column.name for column in whole if column.name not in kept][1::2]
    before = pa.schema([column for column in whole if column.name not in added])
    partitions = schema.PARTITIONS.get(name)
    DeltaTable.create(tmp_path / name, schema=before, partition_by=partitions)
    older, newer = ("data/1", "data/2") if order == "older first" else ("data/2", "data/1")
    add_file(tmp_path, name, older, before)
    delta.table(tmp_path, name)
    add_file(tmp_path, name, newer, whole)
    assert delta.compact(spark, tmp_path, name) == 2
    rows = DeltaTable(tmp_path / name).to_pyarrow_table(columns=whole.names).to_pylist()
    values = {column.name: VALUES[column.type] for column in whole}
    assert sorted(rows, key=lambda row: row[added[0]] is None) == [
        values,
        values | dict.fromkeys(added),
    ]


@pytest.mark.parametrize(
    ("columns", "layout", "told"),
    [
        (STATS_BEFORE, 99, "was written by a newer release: its layout is 99"),
        (STATS_BEFORE, schema.LAYOUT, "lacks the columns source, which were dropped"),
        (STATS_BEFORE.append(pa.field("more", pa.string())), None, "has the columns more, which"),
    ],
)
def test_a_table_that_is_newer_or_changed_is_one_sentence(
    tmp_path: Path, columns: pa.Schema, layout: int | None, told: str
) -> None:
    made = DeltaTable.create(tmp_path / "stats", schema=columns)
    if layout is not None:
        properties = {schema.LAYOUT_PROPERTY: str(layout)}
        made.alter.set_table_properties(properties, raise_if_not_exists=False)
    for opening in (tables.opened, delta.table):
        with pytest.raises(PipelineError, match=rf"{tmp_path}/stats {told}"):
            opening(tmp_path, "stats")


def test_what_is_beside_a_checkpoint_may_be_newer_too(tmp_path: Path) -> None:
    file = tmp_path / checkpoints.FOLDER / "stats.json"
    file.parent.mkdir()
    file.write_text('{"stream": "stats", "number": 1, "source": {}, "more": 1}')
    with pytest.raises(PipelineError, match=r"stats\.json is damaged, or of another release"):
        checkpoints.opened(tmp_path, "stats", {}, new=False)
