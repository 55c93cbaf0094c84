"""A server with a journal, whose clock can be set, and the jobs of the pipeline."""

import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import trio

from simulation.chaos.processes import begin, ended
from simulation.chaos.wall_clock import WallClock
from tests.live import LiveServer, live_server

SETTINGS = {
    "Entitlement": "None",
    "Journal": "on",
    "JournalSegmentTime": "1s",
    # The clock is set forward by weeks, and nothing may be deleted for its age.
    "JournalAgeLimit": "3650d",
}
REFUSED = re.compile(r"give --new-source")
STOP_TIMEOUT_S = 90
SHOWN_LINES = 8


class Plant:
    """The processes of a run, and its folders. `problems` are what no fault of the run explains."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.tables = folder / "tables"
        self.problems: list[str] = []
        self.url = ""
        self.clock = WallClock(folder / "server.clock")
        self._server: LiveServer | None = None
        self._stack = ExitStack()

    async def start(self) -> None:
        """Start the server; all its processes listen on one port."""
        await trio.to_thread.run_sync(self._start)

    async def stop(self) -> None:
        """End the server by SIGTERM, after which all segments are sealed."""
        await trio.to_thread.run_sync(self._stack.close)
        self._server = None

    async def kill(self) -> None:
        """End the server by SIGKILL."""
        if self._server is not None:
            self._server.process.kill()
            await trio.to_thread.run_sync(self._server.process.wait)
        await self.stop()

    def job(self, name: str, *arguments: str) -> "Job":
        """A job of the pipeline over the tables."""
        return Job(self.folder / f"{name}.log", [name, "--tables", str(self.tables), *arguments])

    def archive(self, *arguments: str) -> "Job":
        """The archive of the journal, wherever that is now."""
        return self.job("archive", "--journal", str(self.journal), *arguments)

    def _start(self) -> None:
        listen = self.url.removeprefix("http://") or "127.0.0.1:0"
        settings = SETTINGS | {"Listen": listen, "JournalFolder": str(self.journal)}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        environment = os.environ | self.clock.environment()
        server = live_server(self.folder, *words, environment=environment)
        self._server = self._stack.enter_context(server)
        self.url = self._server.url


class Job:
    """A run of `mdserver pipeline`, in a process of its own."""

    def __init__(self, log: Path, words: list[str]) -> None:
        self.name = words[0]
        self._log = log
        self._begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            command = [sys.executable, "-m", "mdserver.cli.main", "pipeline", *words]
            self.process = begin(command, output)

    def kill(self) -> None:
        """End it by SIGKILL; its Java process sees that and ends as well."""
        self.process.kill()

    async def interrupt(self) -> None:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        with trio.move_on_after(STOP_TIMEOUT_S):
            await self.ended()
        self.kill()

    async def ended(self) -> int:
        """Wait for its end; its exit status. Waiting may be cancelled."""
        return await ended(self.process)

    def said(self) -> str:
        """What it wrote so far."""
        with self._log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")

    @property
    def refused(self) -> bool:
        """Whether it ended because the journal is not the one that it has read."""
        return bool(REFUSED.search(self.said()))

    def told(self) -> str:
        """How it ended, for a list of problems."""
        last = "; ".join(self.said().splitlines()[-SHOWN_LINES:])
        return f"{self.name} ended with {self.process.returncode}: {last}"


async def killed_after(job: Job, seconds: float, killed: Callable[[], None]) -> None:
    """Wait for the end of a job, and kill it if that does not come in time."""
    with trio.move_on_after(seconds) as waiting:
        await job.ended()
    if waiting.cancelled_caught:
        job.kill()
        await job.ended()
        killed()
