"""The members of a chaos run: `mdserver run` processes, killed, paused and started again."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import trio

from simulation.chaos import releases
from simulation.chaos.identity import Change
from simulation.chaos.processes import begin, end, ended
from simulation.chaos.proxy import Address
from simulation.chaos.wire import Wire, text

GROUPS = 8
USER, PASSWORD = "admin", "of the monitor"
CLUSTER_PASSWORD = "of the members, all of them"
JOURNAL = {
    "Journal": "on",
    "JournalFsync": "commit",
    "MaxCachedMessagesPerSubject": "1000000",
    "CacheExpireTime": "1h",
}
"""Whoever was away recovers all of it: a gap would be a finding."""
LOG_SHOWN = 3
REFUSED_TIMEOUT_S = 60
FAKE_CLOCKS = ("libfaketimeMT.so.1", "libfaketime.so.1")
LIBRARIES = (Path("/usr/lib"), Path("/usr/local/lib"))


def fake_clock() -> Path | None:
    """The library by which a process sees another wall clock; None where it is not installed."""
    for name in FAKE_CLOCKS:
        for folder in LIBRARIES:
            found = sorted((*folder.glob(f"faketime/{name}"), *folder.glob(f"*/faketime/{name}")))
            if found:
                return found[0]
    return None


class Member:
    """One member. `running` is the process, None while it is down.

    `proven`: since its start it was seen with a vote in every group. A seed that was keeps its
    logs until its process ends. `release`: where Python finds the release that its next process
    runs; None: this one. `moved_to`: where it listens for the others since it moved, if it did.
    """

    def __init__(
        self,
        number: int,
        wire: Wire,
        folder: Path,
        tell: Callable[[str], None],
        *,
        journal: bool = False,
        release: Path | None = None,
    ) -> None:
        self.number = number
        self.name = f"m{number}"
        self.running: subprocess.Popen[bytes] | None = None
        self.paused = False
        self._proven = False
        self._behind = False
        self.starts = 0
        self.log = folder / f"{self.name}.log"
        self._clock = folder / f"{self.name}.clock"
        self._wire = wire
        self._folder = folder
        self._tell = tell
        self.journal = folder / f"journal-{self.name}" if journal else None
        self.library = fake_clock()
        self.release = release
        self.moved_to: Address | None = None
        self._list = folder / f"{self.name}.conf"

    def write_list(self, places: Iterable[str]) -> None:
        """Write the list of members that it reads when it starts, or is told to reload."""
        self._list.write_text(f"ClusterMembers = {', '.join(places)}\n", encoding="utf-8")

    def reload(self) -> None:
        """SIGHUP, at once or when it is proven: before it handles the signal, that would end it."""
        if self.running is not None:
            self._behind = not self.proven
            if self.proven:
                self.running.send_signal(signal.SIGHUP)

    @property
    def proven(self) -> bool:
        """Whether it was seen with a vote in every group since its start."""
        return self._proven

    def prove(self) -> None:
        """Note that it was; tell it to read a list that was written while it began."""
        self._proven = True
        if self._behind:
            self.reload()

    @property
    def up(self) -> bool:
        """Whether it runs and is not paused."""
        return self.running is not None and not self.paused

    def start(self, seeds: int, clients: Address) -> "subprocess.Popen[bytes]":
        """Start the process; `clients` is where its clients find it."""
        with self.log.open("ab") as log:
            self.running = begin(self._command(seeds, clients), log, self._environment())
        self.starts += 1
        self.paused = self._proven = self._behind = False
        return self.running

    async def refused(self, seeds: int, clients: Address, change: Change) -> None:
        """Start it with parameters of another identity: it has to end at once, to name what differs
        and to leave every file as it is.
        """
        before = self.files()
        said = self._folder / f"{self.name}-{change.name.replace(' ', '-')}.said"
        with said.open("wb") as file:
            command = self._command(seeds, clients, change.parameters)
            process = begin(command, file, self._environment())
        try:
            with trio.move_on_after(REFUSED_TIMEOUT_S):
                await ended(process)
        finally:
            end(process)
        text_said = said.read_text(encoding="utf-8", errors="replace")
        missing = [word for word in change.named if word not in text_said]
        if process.returncode != 1 or missing:
            self._tell(
                f"{self.name}, started with {dict(change.parameters)}, ended with "
                f"{process.returncode} and did not name {missing}: {text_said}"
            )
        after = self.files()
        if after != before:
            changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
            self._tell(f"{self.name}, refused for {change.name}, wrote {changed}")

    def files(self) -> dict[str, bytes]:
        """What the next start relies on: the vote file and the journal, with their content."""
        assert self.journal is not None, "only seeds with a journal are compared"
        name = text(self._wire.peer(self.number)).replace(".", "-").replace(":", "-")
        votes = self._folder / f"votes-{name}.json"
        found = [votes, *sorted(path for path in self.journal.glob("*/*") if path.is_file())]
        return {str(path): path.read_bytes() for path in found}

    def _command(
        self, seeds: int, clients: Address, changed: Mapping[str, str] | None = None
    ) -> list[str]:
        wire, number = self._wire, self.number
        settings = {
            "NodeName": self.name,
            "Listen": text(wire.clients(number)),
            "ClientAddress": text(clients),
            "Entitlement": "None",
            "MonitorHTTP.Listen": text(wire.monitor(number)),
            "MonitorUsername": USER,
            "MonitorPassword": PASSWORD,
            "ClusterSeedMemberCount": str(seeds),
            "ClusterMemberListen": text(wire.peer(number)),
            "ClusterMemberBind": text(self.moved_to or wire.bind(number)),
            "ClusterSubjectGroups": str(GROUPS),
            "ClusterMemberCoordinationFolder": str(self._folder),
        }
        if self.journal is not None:
            settings |= JOURNAL | {"JournalFolder": str(self.journal)}
        settings |= changed or {}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        run = [sys.executable, "-m", "mdserver.cli.main", "run", "--config", str(self._list)]
        return [*wire.command(number), *run, *words]

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "MDSERVER_CLUSTERPASSWORD": CLUSTER_PASSWORD}
        if self.release is not None:
            environment |= releases.environment(self.release)
        if self.library is not None:
            if not self._clock.exists():
                self.set_clock(0)
            environment |= {
                "LD_PRELOAD": str(self.library),
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_CACHE_DURATION": "1",
                # As with a real clock that is set: only the wall clock jumps.
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        return environment

    def set_clock(self, seconds: int) -> None:
        """Its wall clock goes wrong by so much from now on."""
        self._clock.write_text(f"{seconds:+d}s\n", encoding="ascii")

    async def watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Until one of its processes ends; an end that nobody brought about is told."""
        status = await ended(process)
        if self.running is process:
            self.running = None
            said = "; ".join(self.lines()[-LOG_SHOWN:])
            self._tell(f"{self.name} ended by itself with {status}: {said}")

    def kill(self) -> None:
        """kill -9."""
        process, self.running = self.running, None
        self.paused = False
        if process is not None:
            end(process)

    async def stop(self, timeout_s: float) -> None:
        """SIGTERM, and wait for the graceful end."""
        process, self.running = self.running, None
        self.paused = False
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        with trio.move_on_after(timeout_s) as waiting:
            status = await ended(process)
            if status:
                self._tell(f"{self.name} was to end gracefully and ended with {status}")
        if waiting.cancelled_caught:
            self._tell(f"{self.name} had not ended {timeout_s:g} s after SIGTERM")
            end(process)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.running is not None:
            self.running.send_signal(signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.running is not None:
            self.running.send_signal(signal.SIGCONT)
            self.paused = False

    def lines(self) -> list[str]:
        """What it logged."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()


OF_FAULTS = {"member out of service"}
"""Errors that are no findings: a run takes majorities away, and checks that all serve again."""


def logged(members: list[Member]) -> tuple[Counter[str], list[str]]:
    """How often each event was logged, and what was logged as an error beyond `OF_FAULTS`."""
    counted: Counter[str] = Counter()
    errors: list[str] = []
    for member in members:
        for line in member.lines():
            try:
                entry = json.loads(line)
            except ValueError:
                if not line.startswith("mdserver ready"):
                    errors.append(f"{member.name}: {line}")
                continue
            counted[str(entry.get("event"))] += 1
            is_error = entry.get("level") in {"error", "critical"}
            if is_error and entry.get("event") not in OF_FAULTS:
                errors.append(f"{member.name}: {line}")
    return counted, errors
