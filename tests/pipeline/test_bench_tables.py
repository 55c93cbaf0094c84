"""Tables that benchmarks write: they are those that the archive would write."""

import datetime as dt
from pathlib import Path

import numpy as np

from mdserver.bench import tables
from mdserver.bench.tables import START_US
from mdserver.pipeline.common import schema
from mdserver.pipeline.common.tables import history, opened

SECOND_US = 1_000_000


def test_columns_are_given_or_the_same_or_null(tmp_path: Path) -> None:
    seq = np.arange(1, 4)
    for subject in ("/bench/a", "/bench/b"):
        given = {"subject": [subject] * 3, "seq": seq, "ts_server": START_US + seq * SECOND_US}
        tables.append_messages(tmp_path, 3, given, b"some")
    found = opened(tmp_path, "messages").to_pyarrow_table().to_pylist()
    assert len(found) == 6
    for row in found:
        assert row["ts_server"].strftime("%Y-%m-%d") == row["dt"] == tables.DAY
        assert (row["root"], row["qos"], row["publisher"]) == ("bench", "GUARANTEED", None)
    read = history(tmp_path, "/bench/b").to_pylist()
    assert [(row["seq"], row["content_text"]) for row in read] == [(n, "some") for n in (1, 2, 3)]


def test_all_of_a_benchmark_is_of_one_day() -> None:
    first = dt.datetime.fromtimestamp(START_US / SECOND_US, dt.UTC)
    last = first + dt.timedelta(hours=1)
    assert {first.strftime("%Y-%m-%d"), last.strftime("%Y-%m-%d")} == {tables.DAY}
    assert schema.PARTITIONS["messages"] == ["dt"]
