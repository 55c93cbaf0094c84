"""Which files of samples `rollup` opens: those that may have something new, and no other."""

import pytest

from mdserver.pipeline.common.rewrite import TableFile
from mdserver.pipeline.rollup import coverage


def file(
    sources: tuple[int, int] | None, batches: tuple[int, int] | None, *, nulls: int | None = 0
) -> TableFile:
    """A file with these bounds in the log; None if it has none."""
    bounds = {"source": sources, "batch_id": batches}
    known = {name: each for name, each in bounds.items() if each is not None}
    return TableFile(
        "f.parquet",
        1,
        {name: first for name, (first, _) in known.items()},
        {name: last for name, (_, last) in known.items()},
        {} if nulls is None else {"source": nulls},
    )


@pytest.mark.parametrize(
    ("given", "sources"),
    [
        (file((1, 1), (1, 9)), {1}),
        (file((1, 3), (1, 9)), {1, 2, 3}),
        (file((1, 1), (1, 9), nulls=4), {0, 1}),
        (file((1, 1), (1, 9), nulls=None), {0, 1}),
        (file(None, (1, 9), nulls=9), {0}),
    ],
)
def test_the_sources_of_a_file(given: TableFile, sources: set[int]) -> None:
    assert coverage.sources_of(given) == sources


@pytest.mark.parametrize(
    ("given", "covered", "new"),
    [
        (file((1, 1), (1, 9)), {}, True),
        (file((1, 1), (1, 9)), {1: 8}, True),
        (file((1, 1), (1, 9)), {1: 9}, False),
        (file((1, 2), (1, 9)), {1: 9}, True),
        (file((1, 2), (1, 9)), {1: 9, 2: 9}, False),
        (file(None, (0, 0), nulls=3), {1: 5}, True),
        (file(None, (0, 0), nulls=3), {0: 0}, False),
        (file((1, 1), None), {1: 9}, True),
    ],
)
def test_a_file_is_opened_unless_all_of_it_is_covered(
    given: TableFile, covered: dict[int, int], new: bool
) -> None:
    assert coverage.may_be_new(given, covered) == new
