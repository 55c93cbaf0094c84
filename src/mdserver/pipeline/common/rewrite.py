"""Replacement of some files of a table by others, in one commit.

The commit may carry transactions, so a run that is repeated finds in the table itself what is done
(Delta Lake protocol, "Transaction Identifiers"). Delta refuses the commit if another writer removed
one of the files meanwhile. The table is then unchanged, and the next run begins anew.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from attrs import frozen
from deltalake import DeltaTable
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql import DataFrame

from mdserver.pipeline.common import places
from mdserver.pipeline.common.files import add_actions
from mdserver.pipeline.common.places import Tables


@frozen
class TableFile:
    """A file of a table's present version, with the bounds and nulls of its columns in the log."""

    path: str
    size_bytes: int
    least: Mapping[str, Any]
    greatest: Mapping[str, Any]
    nulls: Mapping[str, int]

    def may_have(self, column: str, first: Any, last: Any) -> bool:
        """Return whether a value of the column may lie between `first` and `last`, both included.

        A column without bounds may have any value.
        """
        least, greatest = self.least.get(column), self.greatest.get(column)
        return least is None or greatest is None or (least <= last and first <= greatest)


def files_of(target: DeltaTable) -> list[TableFile]:
    """Return the files of the version that the handle has."""
    found = []
    for row in pa.table(target.get_add_actions(flatten=True)).to_pylist():

        def named(kind: str, row: dict[str, Any] = row) -> dict[str, Any]:
            start = f"{kind}."
            return {
                name.removeprefix(start): value
                for name, value in row.items()
                if name.startswith(start) and value is not None
            }

        found.append(
            TableFile(
                row["path"], row["size_bytes"], named("min"), named("max"), named("null_count")
            )
        )
    return found


def rewrite(
    target: DeltaTable,
    table: tuple[Tables, str],
    rows: DataFrame | None,
    replaced: Sequence[TableFile],
    transactions: Mapping[str, int],
    held: Callable[[], None] = lambda: None,
) -> int:
    """Replace files of a table without partitions by rows; return how many rows those are.

    `table` is where the table is, and its name. `transactions` are the versions that the commit
    carries, by name. If `rows` is None the files are only removed. `held` is called before the
    commit, and raises if the job's lock was lost. Raises deltalake's CommitFailedError if another
    writer removed one of the files meanwhile.
    """
    actions: list[AddAction | RemoveAction] = []
    count = 0
    if rows is not None:
        staged = f"data/rewritten/{secrets.token_hex(8)}"
        with places.written(*table, staged) as folder:
            rows.write.parquet(str(folder / staged))
            actions, count = add_actions(folder, staged, [])
    now = time.time_ns() // 1_000_000
    actions += [RemoveAction(file.path, True, now, file.size_bytes, {}) for file in replaced]
    held()
    target.create_write_transaction(
        actions,
        "append",
        target.schema(),
        [],
        commit_properties=CommitProperties(
            app_transactions=[Transaction(job, version) for job, version in transactions.items()]
        ),
    )
    return count
