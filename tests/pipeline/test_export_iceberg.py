"""The Iceberg tables that `export-iceberg` makes have the rows of the Delta tables, always."""

import contextlib
import datetime as dt
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import StaticTable

from mdserver.cli.export_iceberg import check_iceberg
from mdserver.core.message import Publication
from mdserver.pipeline.common import checkpoints, delta, object_store, schema
from mdserver.pipeline.common.checkpoints import BusyError
from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.places import RemoteTables, Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.iceberg.job import JOB, Exported, export, run_export
from mdserver.pipeline.iceberg.table_folder import METADATA, TableFolder, file_io

from .conftest import archived, run_archive, write_messages

pytestmark = pytest.mark.pipeline

EXPORT = (sys.executable, "-m", "mdserver.cli.main", "pipeline", "export-iceberg")
NEW_YEAR = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def add_samples(tables: Tables, first: int, count: int) -> None:
    rows = [
        {"ts": NEW_YEAR + dt.timedelta(minutes=n), "node": "n1", "indicator": "i", "value": n / 7}
        for n in range(first, first + count)
    ]
    fresh = pa.Table.from_pylist(rows, schema.TABLES["stats"])
    write_deltalake(delta.table(tables, "stats"), fresh, mode="append")


def opened(tables: Tables, name: str) -> StaticTable:
    """The table as any reader opens it: by its folder alone."""
    location = TableFolder.of(tables, name).location
    return StaticTable.from_metadata(location, file_io(location).properties)


def same_rows(tables: Tables, name: str) -> int:
    """Assert that both tables have the same rows; return how many those are."""
    held = [
        each for each in schema.TABLES[name].names if each not in schema.PARTITIONS.get(name, [])
    ]
    ours = DeltaTable(tables / name).to_pyarrow_table(columns=held)
    # Files that deltalake writes again when it deletes rows have another type of text for Arrow,
    # over which pyiceberg's `to_arrow` alone stumbles.
    theirs = opened(tables, name).scan().to_arrow_batch_reader().read_all().select(held)
    assert in_order(theirs) == in_order(ours)
    return len(ours)


def in_order(found: pa.Table) -> list[str]:
    return sorted(str(row) for row in found.to_pylist())


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.mark.slow
def test_messages_before_and_after_compaction_and_deletion(
    spark: Any, tmp_path: Path, tables: Path
) -> None:
    def publications(start: int) -> list[Publication]:
        return [
            Publication(f"/a/b{n % 3}", b"%d\xff" % n, text=False, fields={"n": str(n)})
            if n % 2
            else Publication(f"/a/b{n % 3}", b"%d" % n, retained=bool(n % 4))
            for n in range(start, start + 20)
        ]

    archived(spark, tmp_path, publications(0))
    assert export(tables, "messages").added == 1
    assert same_rows(tables, "messages") == 20
    write_messages(tmp_path / "journal", publications(20), first_seq=100, later_s=24 * 3600)
    run_archive(spark, tmp_path / "journal", tables)
    write_messages(tmp_path / "journal", publications(40), first_seq=200, later_s=24 * 3600 + 60)
    run_archive(spark, tmp_path / "journal", tables)
    done = export(tables, "messages")
    assert (done.added, done.removed, done.files, done.rows) == (2, 0, 3, 60)
    assert same_rows(tables, "messages") == 60

    assert delta.compact(spark, tables, "messages") == 2
    done = export(tables, "messages")
    assert (done.added, done.removed, done.files, done.rows) == (1, 2, 2, 60)
    assert same_rows(tables, "messages") == 60

    first_day = min(DeltaTable(tables / "messages").to_pyarrow_table()["dt"].to_pylist())
    DeltaTable(tables / "messages").delete(f"dt = '{first_day}'")
    done = export(tables, "messages")
    assert (done.added, done.removed, done.rows) == (0, 1, 40)
    assert same_rows(tables, "messages") == 40


@pytest.mark.slow
def test_readers_skip_files_of_other_days_and_subjects(
    spark: Any, tmp_path: Path, tables: Path
) -> None:
    for day, subject in enumerate(["/a/b", "/c/d", "/e/f"]):
        publications = [Publication(subject, b"%d" % n) for n in range(5)]
        write_messages(tmp_path / "journal", publications, later_s=day * 24 * 3600)
        run_archive(spark, tmp_path / "journal", tables)
    export(tables, "messages")
    days = sorted(set(DeltaTable(tables / "messages").to_pyarrow_table()["dt"].to_pylist()))
    for chosen, files in [
        ("subject = '/c/d'", 1),
        (f"ts_server >= '{days[1]}T00:00:00+00:00'", 2),
        (f"ts_server < '{days[1]}T00:00:00+00:00' and subject = '/c/d'", 0),
    ]:
        scan = opened(tables, "messages").scan(row_filter=chosen)
        assert len(list(scan.plan_files())) == files
        assert len(scan.to_arrow()) == 5 * files


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 20)),
        st.tuples(st.just("delete"), st.integers(0, 100)),
        st.tuples(st.sampled_from(["compact", "export", "kill"]), st.just(0)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_whatever_was_done_to_a_table(steps: list[tuple[str, int]]) -> None:
    """Of what was exported readers see all, and nothing else, also if an export was killed."""
    no_spark: Any = None
    with tempfile.TemporaryDirectory() as name:
        tables, count = Path(name), 0
        add_samples(tables, 0, 1)
        for step, number in [*steps, ("export", 0)]:
            match step:
                case "add":
                    count += number
                    add_samples(tables, count, number)
                case "delete":
                    limit = NEW_YEAR + dt.timedelta(minutes=number)
                    DeltaTable(tables / "stats").delete(f"ts < '{limit:%Y-%m-%dT%H:%M:%SZ}'")
                case "compact":
                    delta.compact(no_spark, tables, "stats")
                case "kill":
                    with contextlib.suppress(KeyboardInterrupt):
                        export(tables, "stats", killed)
                case _:
                    export(tables, "stats")
                    assert same_rows(tables, "stats") == rows_in(tables)


def killed() -> None:
    raise KeyboardInterrupt


def rows_in(tables: Path) -> int:
    return DeltaTable(tables / "stats").to_pyarrow_table().num_rows


def test_only_what_changed_is_looked_at(tables: Path) -> None:
    for n in range(3):
        add_samples(tables, n, 1)
    first = export(tables, "stats")
    assert (first.added, first.files, first.rows) == (3, 3, 3)
    folder = TableFolder.of(tables, "stats")
    versions = folder.versions()
    assert (export(tables, "stats").added, folder.versions()) == (0, versions)
    add_samples(tables, 3, 1)
    # Of files that were there no footer is read.
    for path in DeltaTable(tables / "stats").file_uris()[1:]:
        Path(path).rename(f"{path}.away")
    assert export(tables, "stats").added == 1


def test_a_version_without_new_files_is_noted(tables: Path) -> None:
    add_samples(tables, 0, 1)
    export(tables, "stats")
    DeltaTable(tables / "stats").alter.set_table_properties({"delta.appendOnly": "false"})
    folder = TableFolder.of(tables, "stats")
    done = export(tables, "stats")
    assert (done.added, done.removed, done.files) == (0, 0, 1)
    versions = folder.versions()
    export(tables, "stats")
    assert folder.versions() == versions


def test_columns_that_a_release_added_are_null_in_older_rows(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        before = schema.TABLES["stats"].remove(schema.TABLES["stats"].get_field_index("source"))
        patched.setitem(schema.TABLES, "stats", before)
        add_samples(tables, 0, 2)
        DeltaTable(tables / "stats").alter.set_table_properties(
            {schema.LAYOUT_PROPERTY: str(schema.LAYOUT - 1)}, raise_if_not_exists=False
        )
        export(tables, "stats")
        assert "source" not in opened(tables, "stats").schema().column_names
    add_samples(tables, 2, 1)
    done = export(tables, "stats")
    assert (done.added, done.removed) == (1, 0)
    assert same_rows(tables, "stats") == 3
    assert pc.sum(opened(tables, "stats").scan().to_arrow()["value"]).as_py() == pytest.approx(
        3 / 7
    )


def test_a_table_that_was_replaced_by_another_one_is_followed(tables: Path) -> None:
    add_samples(tables, 0, 2)
    export(tables, "stats")
    (tables / "stats").rename(tables / "away")
    add_samples(tables, 5, 2)
    done = export(tables, "stats")
    assert (done.added, done.removed) == (1, 1)
    assert same_rows(tables, "stats") == 2


def test_two_exports_at_a_time_and_a_folder_without_tables(tables: Path) -> None:
    told: list[Exported] = []
    tables.mkdir()
    with pytest.raises(PipelineError, match="has no tables: run `mdserver pipeline archive` first"):
        run_export(tables, told.append)
    add_samples(tables, 0, 1)
    with checkpoints.alone(tables, JOB), pytest.raises(BusyError, match="another export-iceberg"):
        run_export(tables, told.append)
    run_export(tables, told.append)
    assert [each.table for each in told] == ["stats"]


def for_newer_readers(tables: Path, name: str) -> None:
    DeltaTable.create(
        tables / name,
        schema=schema.TABLES[name],
        partition_by=schema.PARTITIONS.get(name),
        configuration={"delta.enableDeletionVectors": "true"},
    )


def test_a_table_for_newer_readers_is_refused(tables: Path) -> None:
    for_newer_readers(tables, "stats")
    with pytest.raises(PipelineError, match="features of newer readers of Delta"):
        export(tables, "stats")


def test_a_table_that_is_refused_does_not_keep_others_from_being_exported(tables: Path) -> None:
    refused = next(iter(schema.TABLES))
    assert refused != "stats"
    for_newer_readers(tables, refused)
    add_samples(tables, 0, 3)
    run = command("--tables", str(tables), "--format", "json")
    assert (run.returncode, len(run.stderr.splitlines())) == (1, 1), run.stderr
    assert f"{refused} has features of newer readers of Delta" in run.stderr
    assert json.loads(run.stdout)["table"] == "stats"
    assert same_rows(tables, "stats") == 3


def test_with_pauses_it_says_so_and_goes_on(tables: Path) -> None:
    for_newer_readers(tables, "messages")
    add_samples(tables, 0, 3)
    with subprocess.Popen(
        [*EXPORT, "--tables", str(tables), "--every", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        try:
            for _ in range(2):
                assert "messages has features of newer readers of Delta" in run.stderr.readline()
                assert run.stdout.readline().startswith("stats: version ")
        finally:
            run.kill()


def test_the_command_says_what_it_did(tables: Path) -> None:
    add_samples(tables, 0, 3)
    for added in (1, 0):
        run = command("--tables", str(tables), "--format", "json")
        assert run.returncode == 0, run.stderr
        told = json.loads(run.stdout)
        assert (told["table"], told["added"], told["rows"]) == ("stats", added, 3)
    assert same_rows(tables, "stats") == 3
    (tables / "iceberg" / "stats" / METADATA / "v2.metadata.json").write_text("{}")
    run = command("--tables", str(tables))
    assert (run.returncode, len(run.stderr.splitlines())) == (1, 1), run.stderr
    assert "v2.metadata.json is damaged: remove file://" in run.stderr


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EXPORT, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_tables_in_an_object_store(bucket: str, tmp_path: Path) -> None:
    store = object_store.opened(f"{bucket}/{tmp_path.name}/tables")
    assert isinstance(store, RemoteStore)
    tables = RemoteTables(store)
    for n in range(3):
        add_samples(tables, n, 1)
        assert export(tables, "stats").added == 1
    assert same_rows(tables, "stats") == 3


def test_without_its_library_it_says_what_to_install(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)
    with pytest.raises(PipelineError, match=r"pip install '.\[pipeline,iceberg\]'"):
        check_iceberg()
