"""Files of a table as a frame: with the table's columns, whatever the files hold."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mdserver.pipeline.common import parquet, schema

pytestmark = pytest.mark.pipeline


def test_an_older_file_takes_no_column_from_a_newer_one(spark: Any, tmp_path: Path) -> None:
    files = []
    for number, names in enumerate((["reason"], ["reason", "stream"])):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({name: [f"{name} {number}"] for name in names}), path)
        files.append(str(path))
    found = parquet.read(spark, "quarantine", files)
    assert found.columns == schema.TABLES["quarantine"].names
    rows = [(row["reason"], row["stream"]) for row in found.orderBy("reason").collect()]
    assert rows == [("reason 0", None), ("reason 1", "stream 1")]


def test_no_file_has_the_columns_too(spark: Any) -> None:
    assert parquet.read(spark, "quarantine", []).columns == schema.TABLES["quarantine"].names
