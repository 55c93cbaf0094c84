"""The native code that sends to many sockets in one call: each way in which a send may end."""

import errno
import gc
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import hatch_build
from mdserver.config import FanoutEngine
from mdserver.server.clients import fanout
from mdserver.server.clients.fanout import RING_ENTRIES, SendMany
from tests.server.native import usable

ROOT = Path(__file__).parents[3]
BIG = b"x" * 1_000_000


@pytest.fixture(params=[FanoutEngine.SEND, FanoutEngine.IO_URING], ids=["send", "io_uring"])
def send(request: pytest.FixtureRequest) -> SendMany:
    found = usable(request.param)
    assert found is not None
    return found


@pytest.fixture
def pairs() -> Iterator["Pairs"]:
    with Pairs() as made:
        yield made


class Pairs(ExitStack):
    """Connected TCP sockets: those of the server, and those of its clients."""

    def __init__(self) -> None:
        super().__init__()
        self._listening = self.enter_context(socket.create_server(("127.0.0.1", 0)))

    def add(self, buffer: int | None = None) -> tuple[socket.socket, socket.socket]:
        far = self.enter_context(socket.socket())
        if buffer is not None:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        far.connect(self._listening.getsockname())
        near = self.enter_context(self._listening.accept()[0])
        near.setblocking(False)
        if buffer is not None:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        return near, far


def rings() -> set[int]:
    """The descriptors of io_uring that this process has."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            if "io_uring" in str(path.readlink()):
                found.add(int(path.name))
    return found


def read(far: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size and (part := far.recv(size - len(received))):
        received += part
    return received


def test_each_socket_gets_its_own_bytes(send: SendMany, pairs: Pairs) -> None:
    made = [pairs.add() for _ in range(5)]
    wires = [b"%d" % at * (at + 1) for at in range(5)]
    assert send(wires, [near for near, _ in made]) == ([0, 1, 2, 3, 4], [], [])
    assert [read(far, at + 1) for at, (_, far) in enumerate(made)] == wires


def test_none_is_a_batch_as_well(send: SendMany) -> None:
    assert send([], []) == ([], [], [])


def test_more_sockets_than_the_ring_holds(send: SendMany) -> None:
    count = 2 * RING_ENTRIES + 3
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count + 100:
        pytest.skip("too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count + 100), hard))
    with ExitStack() as opened:
        made = [socket.socketpair() for _ in range(count)]
        for pair in made:
            for end in pair:
                opened.enter_context(end)
        wires = [b"%04d" % at for at in range(count)]
        done, partial, failed = send(wires, [near for near, _ in made])
        assert (done, partial, failed) == (list(range(count)), [], [])
        assert [far.recv(100) for _, far in made] == wires


def test_a_socket_takes_a_part_and_then_nothing(send: SendMany, pairs: Pairs) -> None:
    near, far = pairs.add(4096)
    other, others = pairs.add()
    done, [(at, sent)], failed = send([BIG, b"1"], [near, other])
    assert (done, at, failed) == ([1], 0, [])
    assert 0 < sent < len(BIG)
    assert read(others, 1) == b"1"
    while sent < len(BIG):
        done, partial, failed = send([BIG[sent:]], [near])
        if partial == [(0, 0)]:  # it takes nothing: the call has not waited
            break
        sent += partial[0][1]
    assert failed == []
    near.shutdown(socket.SHUT_WR)
    received = 0
    while part := far.recv(1_000_000):
        assert part == BIG[: len(part)]
        received += len(part)
    assert received == sent  # not a byte was sent of which nothing is known


def test_broken_connections_fail_alone(send: SendMany, pairs: Pairs) -> None:
    made = [pairs.add() for _ in range(4)]
    made[1][1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    made[1][1].close()  # a reset
    made[2][0].shutdown(socket.SHUT_WR)
    made[3][0].close()
    done, partial, failed = send([b"1"] * 4, [near for near, _ in made])
    assert (done, partial) == ([0], [])
    assert [at for at, _ in failed] == [1, 2, 3]
    assert failed[0][1] in (errno.ECONNRESET, errno.EPIPE)
    assert failed[1:] == [(2, errno.EPIPE), (3, errno.EBADF)]


def test_a_closed_socket_never_sends_to_the_one_that_has_its_number_now(
    send: SendMany, pairs: Pairs
) -> None:
    near, _ = pairs.add()
    number = near.fileno()
    near.close()
    stranger, far = socket.socketpair()
    with stranger, far:
        if stranger.fileno() != number:
            os.dup2(stranger.fileno(), number)
        assert send([b"secret"], [near]) == ([], [], [(0, errno.EBADF)])
        far.setblocking(False)
        with pytest.raises(BlockingIOError):
            far.recv(10)
        if stranger.fileno() != number:
            os.close(number)


def test_a_reset_between_two_batches(send: SendMany, pairs: Pairs) -> None:
    made = [pairs.add() for _ in range(3)]
    nears = [near for near, _ in made]
    assert send([b"1"] * 3, nears)[0] == [0, 1, 2]
    made[1][1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    made[1][1].close()
    done, partial, failed = send([b"2"] * 3, nears)
    assert (done, partial, [at for at, _ in failed]) == ([0, 2], [], [1])
    assert read(made[0][1], 2) == read(made[2][1], 2) == b"12"


@pytest.mark.parametrize(
    ("wires", "socks", "error"),
    [
        (b"1", [], TypeError),
        ([b"1"], [], ValueError),
        ([b""], [socket.SocketType], Exception),
        (["text"], [None], TypeError),
        ([b"1"], [None], AttributeError),
    ],
)
def test_wrong_arguments(send: SendMany, wires: object, socks: object, error: type) -> None:
    with pytest.raises(error):
        send(wires, socks)  # type: ignore[arg-type]


def test_a_ring_is_closed_with_the_last_reference() -> None:
    usable(FanoutEngine.IO_URING)
    gc.collect()  # those that other tests have left
    before = rings()
    for _ in range(5):
        assert fanout._sends.Ring(4).closed is False
    assert rings() == before


def test_a_ring_that_was_closed_sends_with_a_loop(pairs: Pairs) -> None:
    usable(FanoutEngine.IO_URING)
    ring = fanout._sends.Ring(4)
    near, far = pairs.add()
    assert ring.send([b"1"], [near]) == ([0], [], [])
    ring.close()
    ring.close()
    assert ring.closed
    assert ring.send([b"2"], [near]) == ([0], [], [])
    assert read(far, 2) == b"12"


def test_a_kernel_that_stops_taking_requests_is_replaced_by_the_loop(pairs: Pairs) -> None:
    """The descriptor of the ring becomes that of something else, as after a filter was set."""
    usable(FanoutEngine.IO_URING)
    before = rings()
    ring = fanout._sends.Ring(4)
    (number,) = rings() - before
    with Path(os.devnull).open("rb") as file:
        os.dup2(file.fileno(), number)
    made = [pairs.add() for _ in range(9)]
    assert ring.send([b"1"] * 9, [near for near, _ in made]) == (list(range(9)), [], [])
    assert ring.closed
    assert [read(far, 1) for _, far in made] == [b"1"] * 9


def test_threads_must_not_share_a_ring_and_may_share_the_loop(pairs: Pairs) -> None:
    loop = usable(FanoutEngine.SEND)
    assert loop is not None
    made = [pairs.add() for _ in range(20)]

    def run() -> None:
        for _ in range(200):
            done, partial, failed = loop([b"1"] * 20, [near for near, _ in made])
            assert (len(done), partial, failed) == (20, [], [])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(read(far, 800) == b"1" * 800 for _, far in made)


def test_what_an_installation_compiles(tmp_path: Path) -> None:
    """It has no warnings, needs nothing but the limited API, and is the same each time."""
    if hatch_build.compiled(ROOT, tmp_path / "tried.so") == "no C compiler was found":
        pytest.skip("no C compiler")
    made = [tmp_path / name / hatch_build.MODULE for name in ("one", "two")]
    for path in made:
        assert hatch_build.compiled(ROOT, path, "-Werror") is None
    assert made[0].read_bytes() == made[1].read_bytes()
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import _sends; print(_sends.send([], []))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, made[0].parent], capture_output=True, text=True, check=True
    )
    assert done.stdout == "([], [], [])\n"


@pytest.mark.parametrize("wish", ["", "no", "yes"])
def test_without_a_compiler_the_installation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wish: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("MDSERVER_NATIVE", wish)
    if wish == "yes":
        with pytest.raises(SystemExit):
            hatch_build.build(ROOT, tmp_path / "_sends.so")
    else:
        assert hatch_build.build(ROOT, tmp_path / "_sends.so") is False
    said = "" if wish == "no" else "mdserver: without native code (no C compiler was found)\n"
    assert capsys.readouterr().err == said
