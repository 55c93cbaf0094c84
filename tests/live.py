"""A server in a process of its own, as its users run it."""

import http.client
import json
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

from attrs import define

READY = re.compile(r"mdserver ready: (\S+(?: \S+)*?)(?: \(\d+ workers\))?\n")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
LINE_TIMEOUT_S = 30
ANSWER_TIMEOUT_S = 30  # a server itself gives up on a publication before that


@define
class LiveServer:
    """A running `mdserver run`. `urls` are those of its ready line, in the order of `Listen`."""

    process: subprocess.Popen[str]
    urls: list[str]
    log: Path

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self) -> int:
        """Drains the server and gives its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def live_server(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    under: tuple[str, ...] = (),
    inherited: tuple[int, ...] = (),
) -> Iterator[LiveServer]:
    """Runs `mdserver run` with these arguments until the end of the `with` block.

    Without arguments everybody may do everything, on a free port of 127.0.0.1. The server log goes
    to a file in `folder`. A server that is still there at the end must end by SIGTERM, with 0.
    `under` are words that go before the command, `inherited` the descriptors that it keeps open.
    """
    command = [*under, sys.executable, "-m", "mdserver.cli.main", "run"]
    command += arguments or ("--set", "Listen=127.0.0.1:0", "--set", "Entitlement=None")
    log = folder / "server.stderr"
    with log.open("a", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=dict(environment) if environment is not None else None,
            pass_fds=inherited,
        )
    with process:
        try:
            server = LiveServer(process, _ready_urls(process, log), log)
            yield server
            if process.returncode is None:
                status = server.stop()
                assert status == 0, f"exit status {status}: {log.read_text(encoding='utf-8')}"
        finally:
            process.kill()


def _ready_urls(process: subprocess.Popen[str], log: Path) -> list[str]:
    assert process.stdout is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(deadline - time.monotonic()):
            raise AssertionError(f"no ready line: {log.read_text(encoding='utf-8')}")
    line = process.stdout.readline()
    ready = READY.fullmatch(line)
    assert ready, f"{line!r} is no ready line: {log.read_text(encoding='utf-8')}"
    return ready[1].split(" ")


def lines_about(file: Path, word: str) -> list[dict[str, object]]:
    """The lines of a JSON lines file that hold this text."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if word in line]


def wait_for_line(file: Path, word: str, earlier: int = 0) -> dict[str, object]:
    """The first such line after a number of earlier ones, once it is there."""
    deadline = time.monotonic() + LINE_TIMEOUT_S
    while time.monotonic() < deadline:
        found = lines_about(file, word)
        if len(found) > earlier:
            return found[earlier]
        time.sleep(0.02)
    raise AssertionError(f"no {word} in {file}")


def post(url: str, subject: str, token: str = "", content: str = "hello") -> dict[str, str]:
    """Publishes over HTTP; the answer of the server at `url`."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_TIMEOUT_S)
    try:
        path = f"/rest/produce?subject={quote(subject)}&token={token}"
        connection.request("POST", path, body=content)
        answer: dict[str, str] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return answer


def children(pid: int) -> list[int]:
    """The processes that a process started and that still run."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread ended
            found += map(int, (thread / "children").read_text().split())
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
