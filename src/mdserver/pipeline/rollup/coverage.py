"""Coverage: which samples are in a table of summaries.

Samples are in the table `stats` with their source and batch. `source` counts the sources that the
archive of the stream had, and batches of one source come in the order of their numbers. So the
coverage of a table of summaries is one number for each source: the last batch.

The commit that adds summaries carries their coverage, as a transaction for each source. So a run
that is killed, at whatever moment, has either left its summaries together with their coverage, or
nothing.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from deltalake import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as f

from mdserver.pipeline.common.rewrite import TableFile

UNNAMED = 0
"""The source of samples that an earlier release archived, in which that column is null."""

Coverage = Mapping[int, int]
"""The last batch of each source that is covered."""


def job(source: int) -> str:
    """Return the name of the transactions that cover a source."""
    return f"rollup-{source}"


def of_table(summaries: DeltaTable, sources: Iterable[int]) -> dict[int, int]:
    """Return the coverage of a table of summaries, for these sources."""
    found = {source: summaries.transaction_version(job(source)) for source in sources}
    return {source: batch for source, batch in found.items() if batch is not None}


def transactions(coverage: Coverage) -> dict[str, int]:
    """Return the transactions of the commit that gives a table this coverage."""
    return {job(source): batch for source, batch in coverage.items()}


def sources_of(file: TableFile) -> set[int]:
    """Return the sources of which a file may have samples, by its bounds in the log."""
    first, last = file.least.get("source"), file.greatest.get("source")
    if first is None or last is None:
        return {UNNAMED}
    return set(range(first, last + 1)) | ({UNNAMED} if file.nulls.get("source", 1) else set())


def may_be_new(file: TableFile, covered: Coverage) -> bool:
    """Return whether a file may have samples that are not covered."""
    last = file.greatest.get("batch_id")
    return last is None or any(last > covered.get(source, -1) for source in sources_of(file))


def is_new(covered: Coverage) -> Column:
    """Return the condition that a sample is not covered."""
    source = f.coalesce(f.col("source"), f.lit(UNNAMED))
    known = [
        (source == each) & (f.col("batch_id") > batch) for each, batch in sorted(covered.items())
    ]
    return reduce(or_, known, ~source.isin(*sorted(covered)) if covered else f.lit(True))
