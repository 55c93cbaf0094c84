"""`mdserver pub --stdin` of many lines while servers with a journal are killed or told to end."""

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec
import pytest
from attrs import define, field

from mdserver.cluster.wal import WalAppended, WalCommitted, WalLog
from mdserver.journal import segments, wal_lines
from tests.cluster.live_cluster import LiveCluster
from tests.journal.test_journal_process import commit_settings, free_port, options
from tests.live import live_server, post

TIMEOUT_S = 60
LIVES = 3
LINES_A_LIFE = 3000  # several times the numbers that are kept of a publisher


@define
class Feed:
    """A publisher of the lines 1, 2, 3, ... to /a/b, until `finish`."""

    process: "subprocess.Popen[bytes]"
    written: int = 0
    stopping: threading.Event = field(factory=threading.Event)

    def write(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError), self.process.stdin as stdin:
            for first in count(1, 100):
                if self.stopping.is_set():
                    return
                stdin.write(b"".join(b"%d\n" % number for number in range(first, first + 100)))
                self.written = first + 99

    def finish(self) -> list[str]:
        """End the input; what was published, once every line has its result."""
        self.stopping.set()
        assert self.process.wait(TIMEOUT_S) == 0
        return [str(number) for number in range(1, self.written + 1)]


@contextmanager
def feed(addresses: Sequence[str]) -> Iterator[Feed]:
    servers = [word for address in addresses for word in ("--server", f"ws://{address}")]
    command = [sys.executable, "-m", "mdserver.cli.main", "pub", "/a/b", "--stdin", *servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        running = Feed(process)
        writer = threading.Thread(target=running.write)
        writer.start()
        try:
            yield running
        finally:
            running.stopping.set()
            process.kill()
            writer.join()


def newest(address: str) -> int:
    """The sequence number of the last message of /a/b; 0 while there is none."""
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/rest/consume?subject=/a/b&history=1")
        messages = msgspec.json.decode(connection.getresponse().read()).get("messages", [])
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
    return max((message["seq"] for message in messages), default=0)


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.02)


def contents(*folders: Path) -> list[str]:
    """What stands in journals, in order: all say the same of each place, and each says it once."""
    found: dict[tuple[int, int], str] = {}
    for folder in folders:
        rows = [msgspec.json.decode(line) for line in segments.lines(folder / "messages")]
        told = {(row["seq"], row["epoch"]): row["content"] for row in rows}
        assert len(told) == len(rows)
        assert {place: found.get(place, text) for place, text in told.items()} == told
        found |= told
    return [text for _, text in sorted(found.items())]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("fsync", ["commit", "interval"])
def test_a_server_starts_again_after_any_end_in_mid_stream(
    tmp_path: Path, ending: signal.Signals, fsync: str
) -> None:
    """Each line is there exactly once, in order, although the server ended in between."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    arguments = options(tmp_path, port, JournalFsync=fsync)
    with ExitStack() as stack:
        server = stack.enter_context(live_server(tmp_path, *arguments))
        publisher = stack.enter_context(feed([address]))
        for _ in range(LIVES):
            before = newest(address)
            wait_until(lambda n=before: newest(address) >= n + LINES_A_LIFE, "publications")
            server.process.send_signal(ending)
            assert server.process.wait(TIMEOUT_S) == (0 if ending == signal.SIGTERM else -9)
            server = stack.enter_context(live_server(tmp_path, *arguments))
        published = publisher.finish()
    assert contents(tmp_path / "journal") == published


@pytest.mark.slow
def test_seeds_start_again_after_all_were_killed_in_mid_stream(tmp_path: Path) -> None:
    """In another order each time; what is published is there once, at every member."""
    with LiveCluster(tmp_path, 3, settings=commit_settings(tmp_path)) as cluster:
        with feed(cluster.clients) as publisher:
            for life in range(LIVES):
                before = max(map(newest, cluster.clients))
                wait_until(
                    lambda n=before: newest(cluster.clients[0]) >= n + LINES_A_LIFE, "publications"
                )
                for index in range(3):
                    cluster.kill(index)
                for turn in range(3):
                    cluster.start((life + 2 * turn) % 3)
                for index in range(3):
                    cluster.wait_ready(index, TIMEOUT_S)
            published = publisher.finish()
        for address in cluster.clients:
            wait_until(lambda a=address: newest(a) == len(published), f"every line at {address}")
        for index in range(3):
            cluster.stop(index)
    # A member that was behind the others may have been given its cache instead of the messages.
    journals = [tmp_path / f"journal-{index}" for index in range(3)]
    assert contents(*journals) == published


def test_rows_that_were_on_the_disk_before_their_log_are_not_written_again(tmp_path: Path) -> None:
    """A kill between the two leaves a member with them, and others give it the messages again."""
    folder = tmp_path / "journal-2"

    def published(cluster: LiveCluster, numbers: Sequence[int]) -> None:
        for number in numbers:
            assert cluster.produce(0, "/a/b", str(number))
        for address in cluster.clients:
            wait_until(lambda a=address: newest(a) == numbers[-1], f"every line at {address}")

    with LiveCluster(tmp_path, 3, settings=commit_settings(tmp_path)) as cluster:
        for index in range(3):
            cluster.wait_ready(index, TIMEOUT_S)
        published(cluster, range(1, 11))
        (log,) = (folder / "log").glob("*.open")
        size = log.stat().st_size
        published(cluster, range(11, 21))
        # All end: a coordinator that has this member's acks would not take the shorter log.
        for index in range(3):
            cluster.kill(index)
        os.truncate(log, size)
        for index in range(3):
            cluster.start(index)
        for index in range(3):
            cluster.wait_ready(index, TIMEOUT_S)
        published(cluster, range(21, 31))
        cluster.stop(2)
        assert contents(folder) == [str(number) for number in range(1, 31)]


@pytest.mark.parametrize("fsync", ["commit", "interval"])
def test_an_orderly_end_leaves_nothing_to_commit(tmp_path: Path, fsync: str) -> None:
    """What was acknowledged is on the disk as committed, not as a tail that may be taken back."""
    arguments = options(tmp_path, 0, JournalFsync=fsync, ClusterSubjectGroups="4")
    with live_server(tmp_path, *arguments) as server:
        for number in range(20):
            assert post(server.url, f"/a/{number % 5}")["status"] == "OK"
    lengths: dict[int, int] = {}
    learned: dict[int, int] = {}
    for record in wal_lines.read(segments.sealed(tmp_path / "journal" / "log")).entries:
        match record:
            case WalLog(group=group, start=start, entries=entries, committed=committed):
                lengths[group], learned[group] = start + len(entries), committed
            case WalAppended(group=group, start=start, entries=entries):
                lengths[group] = start + len(entries)
            case WalCommitted(group=group, length=length):
                learned[group] = length
    assert sum(lengths.values()) == 20
    assert learned == lengths
