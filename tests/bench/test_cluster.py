"""The servers that `bench` starts: their journals, and what they say when they do not start."""

from pathlib import Path

import pytest

from mdserver.bench import processes
from mdserver.bench.cluster import cluster, single
from mdserver.bench.processes import BenchError

JOURNAL = ("Journal=on", "JournalFsync=commit")


@pytest.mark.slow
def test_each_member_has_a_journal_of_its_own_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second does not find what the first one wrote
        with cluster(JOURNAL) as members, single(JOURNAL) as alone:
            assert len({server.port for server in (*members, *alone)}) == 4
        with processes.server(JOURNAL):
            pass
    assert list(tmp_path.iterdir()) == []


def test_the_last_words_of_a_member_that_does_not_start_are_told() -> None:
    with (
        pytest.raises(BenchError, match="NoSuchParameter"),
        cluster(("NoSuchParameter=1",)),
    ):
        pytest.fail("it started")
