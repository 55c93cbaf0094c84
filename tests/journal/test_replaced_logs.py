"""A log that is replaced by another seed's, under another history id: its segments are kept."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from mdserver.cluster.wal import WalAppended, WalLog
from mdserver.journal import segments, wal_lines
from mdserver.limits import JOURNAL_LOG_BYTES_MIN
from tests.cluster.live_cluster import LiveCluster
from tests.journal.test_journal_process import commit_settings
from tests.live import lines_about

SUBJECT = "/a/b"
CONTENT_BYTES = 1_000_000
PATIENCE_S = 60


def contents(folder: Path) -> list[bytes]:
    """The messages in the segments of a log, those of what was added to it."""
    return [
        entry.publication.content
        for record in wal_lines.read(segments.sealed(folder)).entries
        if isinstance(record, WalAppended | WalLog)
        for entry in record.entries
    ]


@pytest.mark.slow
def test_what_only_one_seed_holds_is_set_aside_and_not_deleted(tmp_path: Path) -> None:
    """Two disks are put back to an earlier moment, and the third comes too late to be asked."""
    settings = {**commit_settings(tmp_path), "MaxMessageSize": f"{2 * CONTENT_BYTES}"}
    with LiveCluster(tmp_path, 3, groups=2, settings=settings) as cluster:
        publish(cluster, "old")
        keep(cluster, (0, 1))
        publish(cluster, "only here")
        cluster.stop(2)  # and notes how much is committed
        for index in (0, 1):
            cluster.kill(index)
        put_back(cluster)
        for index in (0, 1):
            cluster.start(index)
        for index in (0, 1):
            cluster.wait_ready(index, PATIENCE_S)
        assert read(cluster, 0) == ["old"]
        cluster.start(2)
        missing = "acknowledged messages are missing"
        cluster.wait(
            lambda: any(missing in cluster.log(index) for index in range(3)), PATIENCE_S, missing
        )
        cluster.wait_ready(2, PATIENCE_S)
        shown = cluster.command(0, "status").stdout
        assert "history ids differ:" in shown, "only the group of the subject has a new one"
        assert re.findall(r"^  \w+: groups ([01])$", shown, re.MULTILINE) in (
            ["0", "1"],
            ["1", "0"],
        )
        publish(cluster, "after")
        cluster.kill(2)  # a restart in between forgets nothing of it
        cluster.start(2)
        cluster.wait_ready(2, PATIENCE_S)
        for _ in range(2 * JOURNAL_LOG_BYTES_MIN // CONTENT_BYTES):
            produce(cluster, "x" * CONTENT_BYTES)
        log = tmp_path / "member-2.log"
        cluster.wait(lambda: lines_about(log, "segments set aside"), PATIENCE_S, "what was kept")
        (told,) = lines_about(log, "segments set aside")
        cluster.kill(2)  # no segment comes or goes while they are read
        aside = Path(str(told["kept_in"]))
        assert aside.parent == tmp_path / "journal-2" / "log"
        assert b"only here" in contents(aside)
        assert b"only here" not in contents(aside.parent)


def produce(cluster: LiveCluster, content: str) -> None:
    cluster.wait(lambda: cluster.produce(0, SUBJECT, content), PATIENCE_S, content[:20])


def read(cluster: LiveCluster, index: int) -> list[str]:
    return [text for _, _, text in cluster.consume(index, SUBJECT)]


def publish(cluster: LiveCluster, content: str) -> None:
    """Publish, and wait until all have it."""
    produce(cluster, content)
    for index in range(3):
        cluster.wait(lambda n=index: read(cluster, n)[-1:] == [content], PATIENCE_S, content)


def keep(cluster: LiveCluster, indexes: Sequence[int]) -> None:
    """Copy the disks of seeds."""
    kept = cluster.folder / "kept"
    kept.mkdir()
    for index in indexes:
        shutil.copytree(cluster.folder / f"journal-{index}", kept / f"journal-{index}")
        votes = f"votes-{re.sub('[^0-9]', '-', cluster.peers[index])}.json"
        shutil.copyfile(cluster.folder / votes, kept / votes)


def put_back(cluster: LiveCluster) -> None:
    """Put the copies in place of what is there now."""
    for path in (cluster.folder / "kept").iterdir():
        target = cluster.folder / path.name
        if path.is_dir():
            shutil.rmtree(target)
            shutil.copytree(path, target)
        else:
            shutil.copyfile(path, target)
