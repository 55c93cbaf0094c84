"""pub, sub and snapshot as processes, against a server on a real socket."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from attrs import frozen

from mdserver.cli.main import exit_status
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from tests.server.serving import serving

MDSERVER = [sys.executable, "-m", "mdserver.cli.main"]


@frozen
class Ran:
    """How a command ended."""

    status: int
    out: str
    err: str


@frozen
class Shell:
    """Runs the commands of users against one server."""

    url: str

    def words(self, *words: str) -> list[str]:
        return [*MDSERVER, words[0], "--server", self.url, *words[1:]]

    async def run(self, *words: str, stdin: bytes = b"") -> Ran:
        with trio.fail_after(30):
            ended = await trio.run_process(
                self.words(*words),
                stdin=stdin,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        return Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    async def start(self, *words: str, **pipes: Any) -> Any:
        return await trio.lowlevel.open_process(self.words(*words), **pipes)

    async def call(self, *words: str) -> int:
        """As `run`, without a process of its own; what is printed goes to `capsys`."""
        with trio.fail_after(30):
            return await trio.to_thread.run_sync(exit_status, self.words(*words)[len(MDSERVER) :])


@pytest.fixture
async def shell() -> AsyncIterator[Shell]:
    broker = BrokerSettings(policy=Policy.NONE, message_bytes_max=1000)
    async with serving(broker=broker) as server:
        yield Shell(server.urls[0])


async def lines_of(stream: trio.abc.ReceiveStream, count: int) -> list[str]:
    """Read so many lines; they must come while the process runs."""
    read = b""
    with trio.fail_after(20):
        while read.count(b"\n") < count:
            block = await stream.receive_some()
            assert block, f"the output ended after {read!r}"
            read += block
    return read.decode().splitlines()


@pytest.mark.parametrize("encoding", ["binary", "json"])
async def test_publish_subscribe_snapshot(
    shell: Shell, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    async def out(*words: str) -> str:
        assert await shell.call(*words, "--encoding", encoding) == 0
        return capsys.readouterr().out

    fields = ["--field", "volume=6.62M", "--field", "note=a=b"]
    assert await out("pub", "/stocks/A", "193", *fields) == ""
    assert await out("snapshot", "/stocks/A") == "193\n"
    line = await out("sub", "/stocks/*", "--count", "1")
    assert line == "/stocks/A 193 volume=6.62M note=a=b\n"
    line = await out("sub", "/stocks/A", "--count", "1", "--format", "json")
    assert msgspec.json.decode(line) == {
        "op": "message",
        "subject": "/stocks/A",
        "content": "193",
        "type": "SNAPSHOT",
        "fields": {"volume": "6.62M", "note": "a=b"},
        "epoch": 1,
        "seq": 1,
    }


async def test_not_retained_and_standard_leave_the_snapshot_alone(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await shell.call("pub", "/a/b", "kept") == 0
    assert await shell.call("pub", "/a/b", "passing", "--not-retained") == 0
    assert await shell.call("pub", "/a/b", "once", "--qos", "standard") == 0
    assert await shell.call("snapshot", "/a/b") == 0
    assert capsys.readouterr().out == "kept\n"
    assert await shell.call("sub", "/a/b", "--history", "10", "--timeout", "0.5") == 0
    assert capsys.readouterr().out == "/a/b kept\n/a/b passing\n"


async def test_no_snapshot(shell: Shell) -> None:
    ran = await shell.run("snapshot", "/a/none")
    assert ran == Ran(1, "", "mdserver: there is no snapshot of /a/none\n")
    ran = await shell.run("snapshot", "/a/**")
    assert ran == Ran(1, "", "mdserver: there is no snapshot of any subject of /a/**\n")


async def test_snapshots_of_a_pattern_come_with_their_subjects(shell: Shell) -> None:
    await shell.run("pub", "/a/1", "one", "--field", "x=1")
    await shell.run("pub", "/a/2", "two")
    await shell.run("pub", "/b/1", "other")
    ran = await shell.run("snapshot", "/a/*")
    assert (ran.status, ran.err) == (0, "")
    assert sorted(ran.out.splitlines()) == ["/a/1 one x=1", "/a/2 two"]
    ran = await shell.run("snapshot", "/a/**", "--format", "json")
    found = [msgspec.json.decode(line) for line in ran.out.splitlines()]
    assert sorted((one["subject"], one["content"]) for one in found) == [
        ("/a/1", "one"),
        ("/a/2", "two"),
    ]


async def test_snapshots_that_a_server_brings_in_many_steps_are_all_printed(shell: Shell) -> None:
    commands = b"".join(b'{"subject": "/many/%d", "content": "x"}\n' % one for one in range(5000))
    assert await shell.run("pub", "--stdin", stdin=commands) == Ran(0, "", "")
    ran = await shell.run("snapshot", "/many/**")
    assert len(set(ran.out.splitlines())) == 5000


@pytest.mark.slow
async def test_a_silence_is_not_taken_for_the_end_of_snapshots(shell: Shell) -> None:
    """A network that stands still for two seconds, after a part of them."""
    commands = b"".join(b'{"subject": "/many/%d", "content": "x"}\n' % one for one in range(5000))
    assert await shell.run("pub", "--stdin", stdin=commands) == Ran(0, "", "")
    port = int(shell.url.rpartition(":")[2])

    async def relay(near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", port)
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(carry, near, far, False)
            await carry(far, near, True)
            nursery.cancel_scope.cancel()

    async def carry(source: trio.SocketStream, target: trio.SocketStream, halting: bool) -> None:
        carried = 0
        with suppress(trio.BrokenResourceError):
            while block := await source.receive_some(10_000):
                if halting and carried < 60_000 <= carried + len(block):
                    await trio.sleep(2)
                carried += len(block)
                await target.send_all(block)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, relay, 0, host="127.0.0.1"))
        where = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        ran = await Shell(where).run("snapshot", "/many/**", "--encoding", "json")
        assert (ran.status, len(set(ran.out.splitlines()))) == (0, 5000)
        nursery.cancel_scope.cancel()


async def test_positions_of_publications_are_printed_if_asked_for(shell: Shell) -> None:
    assert await shell.run("pub", "/a/b", "one", "--verbose") == Ran(0, "/a/b 1/1\n", "")
    ran = await shell.run("pub", "/a/b", "--stdin", "--format", "json", stdin=b"two\nthree\n")
    assert [msgspec.json.decode(line) for line in ran.out.splitlines()] == [
        {"subject": "/a/b", "status": "PUBLISH_OK", "epoch": 1, "seq": seq} for seq in (2, 3)
    ]


async def test_sub_says_once_it_is_subscribed(shell: Shell) -> None:
    await shell.run("pub", "/a/b", "one")
    ran = await shell.run("sub", "/a/b", "/c/**", "-n", "1")
    where = shell.url.removeprefix("http://")
    told = f"mdserver: subscribed to /a/b, /c/** at {where}\n"
    assert ran == Ran(0, "/a/b one\n", told)
    assert await shell.run("sub", "/a/b", "-n", "1", "-q") == Ran(0, "/a/b one\n", "")


async def test_the_environment_names_servers(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MDSERVER_SERVER", f"50 {shell.url}, {shell.url}")
    run = partial(trio.to_thread.run_sync, exit_status)
    assert await run(["pub", "/a/b", "x"]) == 0
    assert await run(["snapshot", "/a/b"]) == 0
    assert await run(["check-config"]) == 0, "a variable of clients is no parameter"
    assert capsys.readouterr().out.startswith("x\n")
    assert await run(["snapshot", "/a/b", "-s", "127.0.0.1:1"]) == 1, "an option wins"


async def test_lines_of_stdin_are_contents(shell: Shell) -> None:
    lines = "first\n\ntab\tand é\n".encode() + b"\xff no text\nlast without end"
    ran = await shell.run("pub", "/a/lines", "--stdin", "--field", "x=1", stdin=lines)
    assert ran == Ran(0, "", "")
    ran = await shell.run("sub", "/a/lines", "--history", "9", "--count", "5")
    assert ran.out.splitlines() == [
        "/a/lines first x=1",
        "/a/lines  x=1",
        "/a/lines tab\\tand é x=1",
        "/a/lines \\xff no text x=1",
        "/a/lines last without end x=1",
    ]
    ran = await shell.run("sub", "/a/lines", "--history", "2", "--count", "1", "--format", "json")
    assert msgspec.json.decode(ran.out)["content_base64"] == "/yBubyB0ZXh0"


async def test_lines_of_stdin_are_commands(shell: Shell) -> None:
    commands = [
        b'{"subject": "/a/1", "content": "one", "fields": {"x": "y"}, "closure": "c"}',
        b"",
        b'{"subject": "/a/2", "content": "long long long long", "compressed": true}',
        b'{"op": "publish", "subject": "/a/3", "content_base64": "AAE=", "retained": false}',
    ]
    assert await shell.run("pub", "--stdin", stdin=b"\n".join(commands)) == Ran(0, "", "")
    ran = await shell.run("sub", "/a/*", "--history", "9", "--count", "3", "--format", "json")
    messages = {m["subject"]: m for m in map(msgspec.json.decode, ran.out.splitlines())}
    assert messages["/a/1"]["fields"] == {"x": "y"}
    assert messages["/a/1"]["closure"] == "c"
    assert messages["/a/2"]["content"] == "long long long long"
    assert messages["/a/3"]["content_base64"] == "AAE="
    assert messages["/a/3"]["retained"] is False


async def test_bad_lines_are_told_and_the_others_published(shell: Shell) -> None:
    commands = [
        b"nonsense",
        b'{"subject": 1, "content": "x"}',
        b'{"content": "x"}',
        b'{"subject": "no slash", "content": "x"}',
        b'{"subject": "/a/b", "content": "' + b"x" * 1001 + b'"}',
        b'{"subject": "/a/b", "content": "fine"}',
    ]
    ran = await shell.run("pub", "--stdin", stdin=b"\n".join(commands))
    assert ran.status == 1
    told = sorted(ran.err.splitlines())
    assert told[0] == "mdserver: 5 of 6 messages were not published"
    wrong = [
        "JSON is malformed",
        "Expected `str`",
        "missing required field `subject`",
        "does not start with '/'",
        "MESSAGE_SIZE_LIMIT_EXCEEDED",
    ]
    for number, (line, what) in enumerate(zip(told[1:], wrong, strict=True), start=1):
        assert line.startswith(f"mdserver: line {number}: ")
        assert what in line
    assert (await shell.run("snapshot", "/a/b")).out == "fine\n"


async def test_very_many_failures_are_counted(shell: Shell) -> None:
    ran = await shell.run("pub", "--stdin", stdin=b"x\n" * 500)
    assert ran.err.splitlines()[-1] == "mdserver: 500 of 500 messages were not published"
    assert len(ran.err.splitlines()) == 21


async def test_thousands_of_lines_in_order(shell: Shell) -> None:
    lines = b"".join(b"%d\n" % number for number in range(5000))
    async with trio.open_nursery() as nursery:
        sub = await shell.start("sub", "/a/many", "--count", "5000", stdout=subprocess.PIPE)
        first = await shell.run("pub", "/a/many", "--stdin", stdin=lines)
        assert first == Ran(0, "", "")
        nursery.cancel_scope.cancel()
        sub.terminate()
        with trio.CancelScope(shield=True):
            await sub.wait()
        await sub.stdout.aclose()
    ran = await shell.run("sub", "/a/many", "--history", "1000", "--count", "1000")
    assert ran.out.splitlines() == [f"/a/many {number}" for number in range(4000, 5000)]


async def test_messages_come_through_pipes_while_they_happen(shell: Shell) -> None:
    pub = await shell.start("pub", "/a/b", "--stdin", stdin=subprocess.PIPE)
    sub = await shell.start("sub", "/a/b", "--count", "3", stdout=subprocess.PIPE)
    for word in (b"one", b"two", b"three"):
        await pub.stdin.send_all(word + b"\n")
        assert await lines_of(sub.stdout, 1) == [f"/a/b {word.decode()}"]
    assert await sub.wait() == 0
    await pub.stdin.aclose()
    assert await pub.wait() == 0
    await sub.stdout.aclose()


async def test_a_reader_that_goes_away_is_no_traceback(shell: Shell) -> None:
    sub = await shell.start("sub", "/a/b", "-q", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await shell.run("pub", "/a/b", "one")
    await lines_of(sub.stdout, 1)
    await sub.stdout.aclose()
    await shell.run("pub", "/a/b", "two")
    with trio.fail_after(20):
        assert await sub.wait() == 1
    assert await sub.stderr.receive_some() == b""
    await sub.stderr.aclose()


async def test_a_count_that_is_not_reached(shell: Shell) -> None:
    await shell.run("pub", "/a/b", "one")
    ran = await shell.run("sub", "/a/b", "--count", "2", "--timeout", "0.5")
    where = shell.url.removeprefix("http://")
    assert ran.out == "/a/b one\n"
    assert ran.err.splitlines() == [
        f"mdserver: subscribed to /a/b at {where}",
        "mdserver: 1 of 2 messages came in 0.5 s",
    ]
    assert ran.status == 1


async def test_a_rate(shell: Shell) -> None:
    start = trio.current_time()
    ran = await shell.run("pub", "/a/b", "--stdin", "--rate", "10", stdin=b"x\n" * 11)
    assert ran.status == 0
    assert trio.current_time() - start >= 1.0


@pytest.mark.parametrize("words", [["sub", "/a/b"], ["pub", "/a/b", "--stdin"]])
async def test_an_interruption(shell: Shell, words: list[str]) -> None:
    command = [*words, *(["--count", "5"] if words[0] == "sub" else [])]
    process = await shell.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if words[0] == "sub":
        await shell.run("pub", "/a/b", "one")
        await lines_of(process.stdout, 1)
    else:
        sub = await shell.start("sub", "/a/b", "--count", "1", stdout=subprocess.PIPE)
        await process.stdin.send_all(b"one\n")
        await lines_of(sub.stdout, 1)
        await sub.wait()
        await sub.stdout.aclose()
    process.send_signal(signal.SIGINT)
    with trio.fail_after(20):
        assert await process.wait() == 130
    await process.stdin.aclose()
    await process.stdout.aclose()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["sub", "nonsense"], "does not start with '/'"),
        (["sub", "/one"], "one segment"),
        (["pub", "nonsense", "x"], "does not start with '/'"),
        (["pub", "/a/*", "x"], "wildcard"),
        (["pub", "/a/b", "x" * 1001], "MESSAGE_SIZE_LIMIT_EXCEEDED"),
    ],
)
async def test_refusals_have_one_line(
    shell: Shell, capsys: pytest.CaptureFixture[str], words: list[str], wrong: str
) -> None:
    assert await shell.call(*words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert wrong in err


@pytest.mark.parametrize(
    "words",
    [
        ["pub"],
        ["pub", "/a/b"],
        ["pub", "/a/b", "x", "--stdin"],
        ["pub", "/a/b", "x", "--field", "noequals"],
        ["pub", "/a/b", "x", "--qos", "best"],
        ["pub", "/a/b", "--stdin", "--rate", "0"],
        ["sub"],
        ["sub", "/a/b", "--count", "0"],
        ["sub", "/a/b", "--format", "xml"],
        ["sub", "/a/b", "--server", "ftp://a"],
        ["snapshot"],
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert exit_status(words) == 2
    assert "Error: " in capsys.readouterr().err


async def test_nobody_listens() -> None:
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = await Shell(address).run("pub", "/a/b", "x")
    hint = "(is a server running there? --server or MDSERVER_SERVER names another one)"
    assert ran == Ran(1, "", f"mdserver: cannot connect to {address}: Connection refused {hint}\n")


async def test_progress_shows_on_a_terminal_only(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    try:
        with trio.fail_after(20):
            run = partial(trio.run_process, stdin=b"x\n" * 30, capture_stdout=True, stderr=theirs)
            await run(shell.words("pub", "/a/b", "--stdin", "--rate", "100"))
        shown = await trio.to_thread.run_sync(os.read, ours, 65536)
        assert b"published" in shown
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    "words", [("snapshot", "/a/b"), ("sub", "/a/b", "--count", "1", "--format", "json")]
)
async def test_a_terminal_gets_no_commands_and_a_pipe_what_was_published(
    shell: Shell, words: tuple[str, ...]
) -> None:
    content = "a\x1b]0;title\x07\x9b2Jb\u202e"
    assert await shell.call("pub", "/a/b", content) == 0
    piped = (await shell.run(*words)).out
    assert "\x9b2Jb\u202e" in piped
    ours, theirs = pty.openpty()
    try:
        with trio.fail_after(20):
            await trio.run_process(shell.words(*words), stdout=theirs)
        shown = (await trio.to_thread.run_sync(os.read, ours, 65536)).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert r"a\u001b]0;title\u0007\u009b2Jb\u202e" in shown
    assert shown.replace("\r\n", "").isprintable()
