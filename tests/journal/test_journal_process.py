"""Server processes with a journal: killed under load, started again, on full disks."""

import http.client
import os
import random
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from mdserver.client.driver import now
from mdserver.journal import segments
from simulation.chaos.clients import RecordedClient
from simulation.checker import Checker
from simulation.history import Acked, Event, Settled
from simulation.recording import Recorder
from tests.cluster.live_cluster import LiveCluster
from tests.live import LiveServer, live_server, post, wait_for_line

SUBJECTS = [f"/s/{index}" for index in range(6)]
TIMEOUT_S = 60
MOUNT, UMOUNT = shutil.which("mount"), shutil.which("umount")
LIVES = 4


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def options(folder: Path, port: int, **settings: str) -> list[str]:
    named = {
        "Listen": f"127.0.0.1:{port}",
        "Entitlement": "None",
        "Journal": "on",
        "JournalFolder": str(folder / "journal"),
        "JournalFsync": "commit",
        **settings,
    }
    return [word for name, value in named.items() for word in ("--set", f"{name}={value}")]


def rows(folder: Path, stream: str = "messages") -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in segments.lines(folder / "journal" / stream)]


class Load:
    """Publishers and subscribers, whatever happens to the servers, and what they saw."""

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        self.events: list[Event] = []
        self.servers = [f"ws://{address}" for address in addresses]
        self.rng = random.Random(seed)
        self.subscribers: list[RecordedClient] = []
        self.publishers: list[RecordedClient] = []
        self.stopping = False

    def client(self, name: str) -> RecordedClient:
        recorder = Recorder(name, self.events.append, lambda _: None)
        rng = random.Random(self.rng.random())
        return RecordedClient(recorder, self.servers, "binary", "websocket", rng, lambda *_: None)

    @property
    def acked(self) -> list[Acked]:
        return [event for event in self.events if isinstance(event, Acked)]

    async def subscribe(self, *, task_status: trio.TaskStatus[None]) -> None:
        client = self.client(f"sub{len(self.subscribers)}")
        self.subscribers.append(client)
        async with client:
            await client.read(SUBJECTS, task_status=task_status)

    async def publish(self) -> None:
        client = self.client(f"pub{len(self.publishers)}")
        self.publishers.append(client)
        async with client:
            count = 0
            while not self.stopping:
                for _ in range(self.rng.choice((1, 5, 20))):
                    count += 1
                    await client.send(f"{client.recorder.name}-{count}", self.rng.choice(SUBJECTS))
                await trio.sleep(self.rng.random() / 20)
            await trio.sleep_forever()

    def unrest(self) -> list[str]:
        """Publications without a result, and subscribers that have not all there is."""
        newest: dict[str, int] = {}
        for event in self.acked:
            newest[event.subject] = max(event.seq, newest.get(event.subject, 0))
        return [
            f"{client.recorder.name}: {event.publication} on {event.subject} has no result"
            for client in self.publishers
            for event in client.recorder.pending.values()
        ] + [
            f"{client.recorder.name}: {subject} is at {seq}, {client.recorder.positions[subject]}"
            for client in self.subscribers
            for subject, seq in newest.items()
            if client.recorder.positions.get(subject, ("", 0, 0))[2] < seq
        ]

    def judge(self) -> Checker:
        checker = Checker(majority_kept=True)
        for event in self.events:
            checker.see(event)
        for client in self.subscribers:
            for subject in SUBJECTS:
                checker.see(Settled(now(), client.recorder.name, subject))
        checker.finish()
        return checker


async def until(condition: Callable[[], object], what: str) -> None:
    with trio.move_on_after(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - what other processes do is no event here
            await trio.sleep(0.02)
        return
    raise AssertionError(f"{what} did not come about")


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["commit", "interval", "none"])
async def test_a_server_killed_under_load_loses_nothing(tmp_path: Path, fsync: str) -> None:
    """kill -9 at random moments: clients recover without a reset, and no place is told twice."""
    port = free_port()
    load = Load([f"127.0.0.1:{port}"], seed=len(fsync))
    arguments = options(tmp_path, port, JournalFsync=fsync, JournalSegmentTime="200ms")
    async with trio.open_nursery() as nursery:
        with ExitStack() as first:
            server = await started(first, tmp_path, arguments)
            for _ in range(2):
                await nursery.start(load.subscribe)
                nursery.start_soon(load.publish)
            await live_on(load, server)
        for _ in range(LIVES - 1):
            with ExitStack() as life:
                await live_on(load, await started(life, tmp_path, arguments))
        with ExitStack() as last:
            await started(last, tmp_path, arguments)
            before = len(load.acked)
            await until(lambda: len(load.acked) >= before + 100, "acks in the last life")
            load.stopping = True
            await until(lambda: not load.unrest(), "rest")
            nursery.cancel_scope.cancel()
    checker = load.judge()
    assert checker.violations == []
    assert_rows_are_what_was_acked(tmp_path, load)


async def started(stack: ExitStack, folder: Path, arguments: list[str]) -> LiveServer:
    server = live_server(folder, *arguments)
    return await trio.to_thread.run_sync(stack.enter_context, server)


async def live_on(load: Load, server: LiveServer) -> None:
    """Let some be acknowledged, wait for any moment, and kill the server."""
    before = len(load.acked)
    await until(lambda: len(load.acked) >= before + 100, "acks")
    await trio.sleep(load.rng.random() / 2)
    server.process.kill()
    await trio.to_thread.run_sync(server.process.wait)


def assert_rows_are_what_was_acked(folder: Path, load: Load) -> None:
    """Every committed message has one row, at the place that its publisher was told."""
    found = rows(folder)
    places = Counter((row["subject"], row["seq"]) for row in found)
    assert set(places.values()) == {1}
    assert len({row["history"] for row in found}) == 1
    for subject in SUBJECTS:
        numbers = [seq for name, seq in places if name == subject]
        assert numbers == list(range(1, len(numbers) + 1))
    told = {(event.subject, event.epoch, event.seq): event.publication for event in load.acked}
    written = {(row["subject"], row["epoch"], row["seq"]): row["content"] for row in found}
    assert told.items() <= written.items()


def history_of(server: LiveServer) -> list[tuple[int, int, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", "/rest/consume?subject=/a/b&history=1000")
        messages = msgspec.json.decode(connection.getresponse().read())["messages"]
    finally:
        connection.close()
    return [(message["epoch"], message["seq"], message["content"]) for message in messages]


def ready(server: LiveServer) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.02)


def limit_files(server: LiveServer, size_bytes: int) -> None:
    """From now on the kernel lets no file of the server grow beyond this (EFBIG)."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    soft = hard if size_bytes < 0 else size_bytes
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("fsync", ["commit", "interval"])
def test_without_room_publications_are_refused_until_there_is_some(
    tmp_path: Path, fsync: str
) -> None:
    arguments = options(tmp_path, 0, JournalFsync=fsync)
    with live_server(tmp_path, *arguments) as server:
        assert post(server.url, "/a/b", content="before")["status"] == "OK"
        limit_files(server, 0)
        wait_until(lambda: ready(server)[0] == 503, "a server that is not ready")
        assert "The journal cannot be written: File too large" in ready(server)[1]
        refused = post(server.url, "/a/b", content="refused")
        assert refused["status"] == "FAILED"
        limit_files(server, -1)
        wait_until(lambda: ready(server)[0] == 200, "a server that is ready")
        assert post(server.url, "/a/b", content="after")["status"] == "OK"
        wait_for_line(server.log, "journal goes on")
    assert [row["content"] for row in rows(tmp_path)] == ["before", "after"]


@pytest.mark.slow
def test_without_room_a_server_may_go_on_and_says_so(tmp_path: Path) -> None:
    arguments = options(tmp_path, 0, JournalDiskFull="continue")
    with live_server(tmp_path, *arguments) as server:
        assert post(server.url, "/a/b", content="before")["status"] == "OK"
        wait_until(lambda: len(rows(tmp_path)) == 1, "the row")  # this policy may lose it later
        limit_files(server, 0)
        wait_until(lambda: "warning: The journal cannot be" in ready(server)[1], "a warning")
        assert ready(server)[0] == 200
        assert post(server.url, "/a/b", content="without")["status"] == "OK"
        limit_files(server, -1)
        wait_until(lambda: ready(server) == (200, "ready\n"), "no warning")
        assert post(server.url, "/a/b", content="after")["status"] == "OK"
        server.process.kill()
        server.process.wait()
    with live_server(tmp_path, *arguments) as server:
        assert [text for _, _, text in history_of(server)] == ["before", "without", "after"]
    texts = [row["content"] for row in rows(tmp_path)]
    assert (texts[0], texts[-1]) == ("before", "after")


def commit_settings(folder: Path) -> dict[str, str]:
    return {
        "Journal": "on",
        "JournalFsync": "commit",
        "JournalFolder": f"{folder}/journal-INDEX",
    }


@pytest.mark.slow
async def test_clusters_killed_as_a_whole_under_load_lose_nothing(tmp_path: Path) -> None:
    """All three seeds die within milliseconds, again and again, each in the midst of writing."""
    cluster = LiveCluster(tmp_path, 3, settings=commit_settings(tmp_path))
    load = Load(cluster.clients, seed=3)

    def restart() -> None:
        for index in load.rng.sample(range(3), 3):
            cluster.kill(index)
        for index in range(3):
            cluster.start(index)

    async def more_acks() -> None:
        before = len(load.acked)
        await until(lambda: len(load.acked) >= before + 100, "acks")

    with ExitStack() as stack:
        await trio.to_thread.run_sync(stack.enter_context, cluster)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                await nursery.start(load.subscribe)
                nursery.start_soon(load.publish)
            for _ in range(LIVES - 1):
                await more_acks()
                await trio.sleep(load.rng.random() / 2)
                await trio.to_thread.run_sync(restart)
            await more_acks()
            load.stopping = True
            await until(lambda: not load.unrest(), "rest")
            nursery.cancel_scope.cancel()
    assert load.judge().violations == []
    assert len({event.history for event in load.acked}) == 1


@pytest.mark.slow
def test_a_cluster_that_was_killed_as_a_whole_loses_nothing(tmp_path: Path) -> None:
    """With `JournalFsync = commit` all seeds are back at once, under the history id they had."""

    def history() -> str:
        status = cluster.command(0, "status", "--json")
        return str(msgspec.json.decode(status.stdout)["history"])

    with LiveCluster(tmp_path, 3, settings=commit_settings(tmp_path)) as cluster:
        histories = []
        for life in range(3):
            for subject in SUBJECTS:
                cluster.wait(
                    lambda s=subject, n=life: cluster.produce(n % 3, s, f"{n}"), 60, subject
                )
            histories.append(history())
            for index in range(3):
                cluster.kill(index)
            for index in range(3):
                cluster.start(index)
            for index in range(3):
                cluster.wait_ready(index, 60)
        assert set(histories) == {history()}
        for index in range(3):
            assert "recovering" not in cluster.log(index)
            for subject in SUBJECTS:
                found = cluster.consume(index, subject)
                assert [text for _, _, text in found] == ["0", "1", "2"]
                assert [seq for _, seq, _ in found] == [1, 2, 3]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 KB, so that the kernel says ENOSPC."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if MOUNT is None or UMOUNT is None:
        pytest.skip("there is no `mount` here")
    mount = [MOUNT, "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([UMOUNT, str(folder)], check=True)


def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    """What was acknowledged before and after is there after a kill -9, and nothing else is."""
    arguments = options(tmp_path, 0, JournalFolder=str(small_disk / "journal"))
    filler = small_disk / "filler"
    acked = []
    with live_server(tmp_path, *arguments) as server:
        filler.write_bytes(b"x" * 250_000)
        for number in range(1000):
            content = f"{number} " + "x" * 5000
            if post(server.url, "/a/b", content=content)["status"] != "OK":
                break
            acked.append(content)
        assert 3 < len(acked) < 100
        status, reason = ready(server)
        assert (status, "No space left on device" in reason) == (503, True)
        filler.unlink()
        wait_until(lambda: ready(server)[0] == 200, "a server that is ready")
        assert post(server.url, "/a/b", content="there is room again")["status"] == "OK"
        acked.append("there is room again")
        server.process.kill()
        server.process.wait()
    with live_server(tmp_path, *arguments) as server:
        wait_until(lambda: len(history_of(server)) >= len(acked), "the history")
        texts = [text for _, _, text in history_of(server)]
    assert [text for text in texts if text in acked] == acked
    assert len(texts) <= len(acked) + 1  # one had no answer before its time-out
    written = [
        row["content"]
        for row in map(msgspec.json.decode, segments.lines(small_disk / "journal" / "messages"))
    ]
    assert written == texts


@pytest.mark.slow
def test_every_member_of_a_cluster_writes_every_message(tmp_path: Path) -> None:
    settings = {"Journal": "on", "JournalFolder": f"{tmp_path}/INDEX/journal"}
    with LiveCluster(tmp_path, 3, settings=settings) as cluster:
        for subject in SUBJECTS:
            cluster.wait(lambda s=subject: cluster.produce(0, s, "x"), 60, subject)
        for index in range(3):
            wait_until(lambda n=index: len(rows(tmp_path / f"{n}")) == len(SUBJECTS), "rows")
    told = [
        sorted((row["subject"], row["epoch"], row["seq"]) for row in rows(tmp_path / f"{index}"))
        for index in range(3)
    ]
    assert told[0] == told[1] == told[2]
    assert not (tmp_path / "0" / "journal" / "log").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server for another user")
def test_the_user_that_the_server_runs_as_writes_the_journal(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        folder = Path(open_to_all)
        folder.chmod(0o755)
        arguments = options(folder, 0, RunAsUser="nobody", JournalSegmentTime="100ms")
        with live_server(tmp_path, *arguments) as server:
            assert post(server.url, "/a/b", content="one")["status"] == "OK"
            wait_until(lambda: segments.sealed(folder / "journal" / "messages"), "a sealed segment")
            assert post(server.url, "/a/b", content="two")["status"] == "OK"
        assert [row["content"] for row in rows(folder)] == ["one", "two"]
        owners = {segment.path.owner() for segment in segments.sealed(folder / "journal" / "stats")}
        assert owners <= {"nobody"}
