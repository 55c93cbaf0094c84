"""The members of a chaos run: `mdserver run` processes, killed, paused and started again."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import trio

from simulation.chaos import releases
from simulation.chaos.disks import Disk
from simulation.chaos.identity import Change
from simulation.chaos.plan import Plan
from simulation.chaos.processes import begin, end, ended
from simulation.chaos.proxy import Address
from simulation.chaos.wall_clock import WallClock
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
        plan: Plan,
        *,
        release: Path | None = None,
    ) -> None:
        self.plan = plan
        self.number = number
        self.name = f"m{number}"
        self.running: subprocess.Popen[bytes] | None = None
        self.paused = False
        self._proven = False
        self._behind = False
        self.starts = 0
        self.log = folder / f"{self.name}.log"
        self.clock = WallClock(folder / f"{self.name}.clock")
        self._wire = wire
        self._folder = folder
        self._tell = tell
        self.disk = Disk(folder / f"disk-{self.name}") if plan.disks else None
        self._votes = folder if self.disk is None else self.disk.folder
        self.journal = self._votes / f"journal-{self.name}" if plan.journal else None
        self.keys = folder / "keys.pem"  # of all, where they speak TLS
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
        votes = self._votes / f"votes-{name}.json"
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
            "ClusterMemberListen": text(wire.peer(number)),
            "ClusterMemberBind": text(self.moved_to or wire.bind(number)),
            "ClusterSubjectGroups": str(GROUPS),
            "ClusterMemberCoordinationFolder": str(self._votes),
        }
        if self.journal is not None:
            settings |= JOURNAL | {"JournalFolder": str(self.journal)}
        if self.plan.standard:
            settings["ClusterDeliveryMode"] = "Standard"
        else:
            settings["ClusterSeedMemberCount"] = str(seeds)
        if self.plan.encrypted:
            settings |= self._encryption()
        settings |= dict(self.plan.settings)
        settings |= changed or {}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        run = [sys.executable, "-m", "mdserver.cli.main", "run", "--config", str(self._list)]
        return [*wire.command(number), *run, *words]

    def _encryption(self) -> dict[str, str]:
        """Return the parameters of TLS: for clients, and for members where the wire carries it."""
        found = {"ListenEncrypted": text(self._wire.encrypted(self.number))}
        found["KeyStore"] = str(self.keys)
        if not self._wire.reads:
            found["ClusterMemberKeyStore"] = str(self.keys)
            found["ClusterMemberCertificateAuthority"] = str(self.keys)
        return found

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "MDSERVER_CLUSTERPASSWORD": CLUSTER_PASSWORD}
        environment |= self.clock.environment()
        if self.release is not None:
            environment |= releases.environment(self.release)
        return environment

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
        """What it logged, if it ever began."""
        if not self.log.exists():
            return []
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def said(self, event: str) -> int:
        """How often it logged an event, all in all."""
        return sum(f'"{event}"' in line for line in self.lines())


ABOUT = timedelta(seconds=60)
OF_FAULTS = {"member out of service"}
"""Errors that are no findings: a run takes majorities away, and checks that all serve again."""
OF_FULL_DISKS = {"journal blocked", "vote file cannot be written"}
"""Counted when disks fill up: how often a member says so, and that it goes on."""


def at_wrong_times(members: Iterable[Member], since: datetime, until: datetime) -> int:
    """Return how many lines members logged by a wrong clock: at times long before or after."""
    count = 0
    for line in (line for member in members for line in member.lines()):
        with suppress(ValueError, KeyError, TypeError):  # what is no event has no time
            at = datetime.fromisoformat(json.loads(line)["time"])
            count += not since - ABOUT <= at <= until + ABOUT
    return count


def logged(members: list[Member], *, full: bool = False) -> tuple[Counter[str], list[str]]:
    """How often each event was logged, and what was logged as an error beyond `OF_FAULTS`.

    `full`: disks were, and `OF_FULL_DISKS` are expected as well.
    """
    expected = OF_FAULTS | OF_FULL_DISKS if full else OF_FAULTS
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
            if is_error and entry.get("event") not in expected:
                errors.append(f"{member.name}: {line}")
    return counted, errors
