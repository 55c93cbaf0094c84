"""Which files a change of some rows is about, and what a commit that replaces files leaves."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from mdserver.pipeline.common import delta, parquet
from mdserver.pipeline.common.rewrite import TableFile, files_of, rewrite

pytestmark = pytest.mark.pipeline


@pytest.mark.parametrize(
    ("first", "last", "may"),
    [(0, 4, False), (0, 5, True), (6, 7, True), (9, 9, True), (10, 11, False)],
)
def test_a_file_may_have_what_its_bounds_allow(first: int, last: int, may: bool) -> None:
    file = TableFile("f.parquet", 1, {"n": 5}, {"n": 9}, {})
    assert file.may_have("n", first, last) == may
    assert file.may_have("other", first, last)


def test_files_are_replaced_once(spark: Any, tmp_path: Path) -> None:
    """With the transaction of the run; a second run with the same files is refused."""
    for batch in (1, 2):
        row = {"stream": "messages", "reason": f"r{batch}", "batch_id": batch}
        delta.append_rows(tmp_path, "quarantine", "job", batch, [row])
    first, second = (delta.table(tmp_path, "quarantine") for _ in range(2))
    (old,) = (file for file in files_of(first) if file.may_have("batch_id", 1, 1))
    path = str(tmp_path / "quarantine" / old.path)
    rows = parquet.read(spark, "quarantine", [path]).replace("r1", "changed", "reason")
    assert rewrite(first, (tmp_path, "quarantine"), rows, [old], {"run": 7}) == 1
    with pytest.raises(CommitFailedError):
        rewrite(second, (tmp_path, "quarantine"), rows, [old], {"run": 7})
    found = DeltaTable(tmp_path / "quarantine")
    assert sorted(found.to_pyarrow_table()["reason"].to_pylist()) == ["changed", "r2"]
    assert (found.transaction_version("run"), found.transaction_version("job")) == (7, 2)
