"""The retention of `quarantine`: lines that could not be used, and nobody looked at in time.

Rows of missing segments stay, as the audit needs them as long as there are messages and receipts of
their time. So do rows of earlier releases, which have no time.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from deltalake.exceptions import CommitFailedError

from mdserver.pipeline.common import delta
from mdserver.pipeline.common.places import Tables

QUARANTINE = "quarantine"


def delete_lines(tables: Tables, before: datetime, held: Callable[[], None] = delta.nothing) -> int:
    """Delete the lines of `quarantine` that were set aside before a moment; return how many.

    Jobs may add rows meanwhile. `held` is called before each commit, and raises if the job's lock
    was lost.
    """
    at = before.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    for left in reversed(range(delta.COMMITS_MAX)):
        target = delta.table(tables, QUARANTINE)
        held()
        try:
            done = target.delete(f"ts < '{at}' and line is not null")
            return int(done["num_deleted_rows"])
        except CommitFailedError:
            # Delta refuses a deletion if rows were added meanwhile, which it has not looked at.
            if not left:
                raise
    raise AssertionError
