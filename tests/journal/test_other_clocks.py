"""The journal of a server whose clock is not that of its disk."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mdserver.journal.segments import StreamWriter, expired, sealed
from simulation.chaos.wall_clock import WallClock
from tests.live import live_server, post

PATIENCE_S = 60
HOUR_S = 3600
BRIEF = ("JournalSegmentTime=1s", "JournalAgeLimit=5min")
SEALED = 8  # segments of one second each: the server looked for what is too old more than once


def test_a_segment_has_the_time_of_the_clock_that_sealed_it(tmp_path: Path) -> None:
    with StreamWriter(tmp_path, 100, clock=lambda: 7) as writer:
        writer.append([b"line"])
        writer.seal()
        assert [segment.modified for segment in writer.sealed] == [7]
    assert [segment.modified for segment in sealed(tmp_path)] == [7]


def test_a_segment_of_the_future_is_as_old_as_the_start_that_found_it(tmp_path: Path) -> None:
    """The machine's clock was ahead when it was written, and was set right since."""
    with StreamWriter(tmp_path, 100, clock=lambda: 9000) as writer:
        writer.append([b"line"])
    (path,) = (segment.path for segment in writer.sealed)
    os.utime(path, ns=(9000, 9000))
    with StreamWriter(tmp_path, 100, clock=lambda: 500) as writer:
        assert [segment.modified for segment in writer.sealed] == [500]
        assert expired(writer.sealed, 700, None, 100) == writer.sealed


@pytest.mark.slow
def test_what_was_just_written_is_not_too_old_for_a_clock_an_hour_ahead(tmp_path: Path) -> None:
    words = with_journal(tmp_path / "journal", *BRIEF)
    with live_server(tmp_path, *words, environment=hour_ahead(tmp_path)) as server:
        assert post(server.url, "/a/b")["status"] == "OK"
        deadline = time.monotonic() + PATIENCE_S
        while len(list((tmp_path / "journal" / "stats").glob("seg-*.jsonl"))) < SEALED:
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.1)
        assert list((tmp_path / "journal" / "messages").glob("seg-*.jsonl"))


@pytest.mark.slow
def test_a_start_with_a_clock_an_hour_ahead_deletes_nothing(tmp_path: Path) -> None:
    """What a server before it sealed is not older for a time in which no server ran."""
    words = with_journal(tmp_path / "journal", *BRIEF)
    stats = tmp_path / "journal" / "stats"
    with live_server(tmp_path, *words) as server:
        assert post(server.url, "/a/b")["status"] == "OK"
    for _ in range(2):  # the second start finds segments that the first one sealed
        before = len(list(stats.glob("seg-*.jsonl")))
        with live_server(tmp_path, *words, environment=hour_ahead(tmp_path)) as server:
            deadline = time.monotonic() + PATIENCE_S
            while len(list(stats.glob("seg-*.jsonl"))) < before + SEALED:
                assert time.monotonic() < deadline, server.log.read_text()
                time.sleep(0.1)
    assert [row["seq"] for row in rows(tmp_path / "journal")] == [1]
    names = sorted(path.name for path in stats.glob("seg-*.jsonl"))
    assert names == [f"seg-{number + 1:012d}.jsonl" for number in range(len(names))]


@pytest.mark.slow
def test_a_row_is_not_written_again_because_the_clock_was_set_back(tmp_path: Path) -> None:
    """The clock is an hour ahead when a message is published, and right when the server restarts.

    The first server is killed, so its log may lack the commit, and the second commits once more.
    """
    words = with_journal(tmp_path / "journal")
    with live_server(tmp_path, *words, environment=hour_ahead(tmp_path)) as server:
        assert post(server.url, "/a/b")["status"] == "OK"
        deadline = time.monotonic() + PATIENCE_S
        while not rows(tmp_path / "journal"):
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.05)
        server.process.kill()
        server.process.wait()
    with live_server(tmp_path, *words) as server:
        assert post(server.url, "/a/b")["status"] == "OK"
    assert [row["seq"] for row in rows(tmp_path / "journal")] == [1, 2]


def hour_ahead(folder: Path) -> dict[str, str]:
    """The environment of a clock that is an hour ahead; skips the test without the means."""
    clock = WallClock(folder / "hour-ahead.clock")
    if not clock.can_be_set:
        pytest.skip("libfaketime is not installed")
    clock.set(HOUR_S)
    return {**os.environ, **clock.environment()}


def with_journal(folder: Path, *settings: str) -> list[str]:
    """The arguments of a server that keeps a journal in this folder."""
    own = ("Listen=127.0.0.1:0", "Entitlement=None", "Journal=on", f"JournalFolder={folder}")
    return [word for setting in (*own, *settings) for word in ("--set", setting)]


def rows(journal: Path) -> list[dict[str, Any]]:
    """The whole rows of the messages, in order."""
    return [
        json.loads(line)
        for path in sorted((journal / "messages").glob("seg-*"))
        for line in path.read_bytes().splitlines()
    ]
