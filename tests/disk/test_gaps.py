"""`JournalDiskFull = continue`: what the disk held before it refused is never given up."""

from pathlib import Path

import pytest

from tests.cluster.live_cluster import LiveCluster
from tests.disk.conftest import FailingDisk
from tests.disk.servers import FULL, history_id, killed, published, texts_of
from tests.journal.test_journal_process import (
    commit_settings,
    options,
    ready,
    wait_until,
)
from tests.live import lines_about, live_server, post, wait_for_line


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["commit", "none"])
@pytest.mark.parametrize(
    ("rule", "after"),
    [
        (FULL, ["before"]),
        ("rename EIO -1 */journal/log/seg-*", ["before"]),
        ("rename EIO -1 */journal/log/stream.gap", ["before", "without"]),
    ],
    ids=["full", "no checkpoint", "all checkpoints"],
)
def test_a_kill_at_any_moment_of_a_gap_leaves_what_the_disk_held(
    tmp_path: Path, disk: FailingDisk, fsync: str, rule: str, after: list[str]
) -> None:
    """Places of messages that are lost may be given again, so it is under a new history id."""
    arguments = options(tmp_path, 0, JournalDiskFull="continue", JournalFsync=fsync)
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        published(server, "before")
        killed(server)
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        history = history_id(server)
        disk.fails(FULL)
        published(server, "without")
        wait_for_line(server.log, "journal blocked")
        disk.fails(rule)
        if rule != FULL:
            wait_for_line(server.log, "journal goes on")
            wait_for_line(server.log, "journal blocked", 1)
        assert ready(server)[0] == 200
        killed(server)
    for _ in range(2):
        # The second time as well, however far the first one got with the new history id.
        with live_server(tmp_path, *arguments) as server:
            assert texts_of(server) == after
            assert history_id(server) != history
            assert len(lines_about(server.log, "journal not whole")) == 1
            published(server, f"{len(after)}")
            after = [*after, f"{len(after)}"]
            killed(server)


@pytest.mark.slow
def test_what_is_written_anew_after_a_gap_is_whole(tmp_path: Path, disk: FailingDisk) -> None:
    """And once more: nothing of the first gap is left."""
    arguments = options(tmp_path, 0, JournalDiskFull="continue")
    texts: list[str] = []
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        for number in range(2):
            disk.fails(FULL)
            texts.append(f"without {number}")
            published(server, texts[-1])
            wait_for_line(server.log, "journal blocked", number)
            disk.works()
            wait_for_line(server.log, "journal whole again", number)
            assert ready(server) == (200, "ready\n")
            texts.append(f"with {number}")
            published(server, texts[-1])
        killed(server)
    with live_server(tmp_path, *arguments) as server:
        assert texts_of(server) == texts
        assert lines_about(server.log, "journal not whole") == []


@pytest.mark.slow
def test_without_a_word_on_the_disk_nothing_is_left_out(tmp_path: Path, disk: FailingDisk) -> None:
    """A disk that does not even take another name: publications wait, as they would be lost."""
    arguments = options(tmp_path, 0, JournalDiskFull="continue")
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        published(server, "before")
        disk.fails(FULL, "rename EIO -1 */journal/log/stream.id")
        assert post(server.url, "/a/b", content="waits")["status"] == "FAILED"
        disk.works()
        wait_until(lambda: ready(server) == (200, "ready\n"), "a server without a warning")
        published(server, "after")
        assert [text for text in texts_of(server) if text != "waits"] == ["before", "after"]


@pytest.mark.slow
def test_a_seed_whose_log_has_a_gap_keeps_it_and_takes_its_logs_from_others(
    tmp_path: Path, disk: FailingDisk
) -> None:
    settings = {**commit_settings(tmp_path), "JournalDiskFull": "continue"}
    environment = disk.environment
    with LiveCluster(tmp_path, 3, settings=settings, environment=environment) as cluster:
        cluster.wait(lambda: cluster.produce(0, "/a/b", "before"), 20, "the first publication")
        disk.fails("write ENOSPC -1 */journal-0/*")
        cluster.wait(lambda: cluster.produce(0, "/a/b", "without"), 20, "a publication")
        # The disk may refuse lines of the messages first, which leave no gap in the log.
        gap = tmp_path / "journal-0/log/stream.gap"
        cluster.wait(gap.exists, 20, "a gap in the log")
        cluster.wait(lambda: "journal blocked" in cluster.log(0), 20, "a line about it")
        cluster.kill(0)
        before = sum(path.stat().st_size for path in (tmp_path / "journal-0/log").glob("seg-*"))
        disk.works()
        cluster.start(0)
        cluster.wait_ready(0, 60)
        told = lines_about(tmp_path / "member-0.log", "journal not used")
        assert "its end is missing" in str(told[-1]["reason"])
        kept = sum(path.stat().st_size for path in Path(str(told[-1]["kept_in"])).iterdir())
        assert kept >= before - 1000  # a torn line may be cut off
        assert [text for _, _, text in cluster.consume(0, "/a/b")] == ["before", "without"]
        for index in range(3):
            cluster.kill(index)
        for index in range(3):
            cluster.start(index)
        for index in range(3):
            cluster.wait_ready(index, 60)
        assert len(lines_about(tmp_path / "member-0.log", "journal not used")) == 1
        assert [text for _, _, text in cluster.consume(0, "/a/b")] == ["before", "without"]
