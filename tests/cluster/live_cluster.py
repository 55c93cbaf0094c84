"""A cluster of server processes, as operators run it, with members that can be killed."""

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from mdserver.bench.processes import free_ports

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60


class LiveCluster:
    """`with LiveCluster(folder, 3) as cluster:` starts all members and waits until they serve.

    `settings`: further parameters, the same for all but for the word INDEX in them. `running`: how
    many of the members are started; `listed`: how many stand in `ClusterMembers`, where each has
    itself as well. `traced`: members write down their steps of the protocol. `environment`: further
    variables of their processes. `patience_s`: how long they may take until they serve.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        groups: int = 16,
        settings: dict[str, str] | None = None,
        *,
        running: int | None = None,
        listed: int | None = None,
        traced: bool = False,
        environment: dict[str, str] | None = None,
        patience_s: float = READY_TIMEOUT_S,
    ) -> None:
        self.folder = folder
        self.patience_s = patience_s
        self.environment = environment or {}
        self.traced = traced
        self.running = range(count if running is None else running)
        self.listed = count if listed is None else listed
        self.settings = settings or {}
        self.groups = groups
        ports = free_ports(3 * count)
        self.peers = [f"127.0.0.1:{port}" for port in ports[:count]]
        self.clients = [f"127.0.0.1:{port}" for port in ports[count : 2 * count]]
        self.monitors = [f"127.0.0.1:{port}" for port in ports[2 * count :]]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.started: dict[int, None] = {}

    def __enter__(self) -> Self:
        try:
            for index in self.running:
                self.start(index)
            for index in self.running:
                self.wait_ready(index, self.patience_s)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.processes.values():
            process.wait()

    def start(self, index: int, password: str = "secret of the tests", **changed: str) -> None:
        before = self.processes.get(index)
        assert before is None or before.poll() is not None, f"member {index} runs"
        members = [*self.peers[: self.listed], self.peers[index]]
        if not self.list_file(index).exists():
            self.write_list(index, *dict.fromkeys(members))
        settings = {
            "NodeName": f"member-{index + 1}",
            "Listen": self.clients[index],
            "Entitlement": "None",
            "MonitorHTTP.Listen": self.monitors[index],
            "MonitorPassword": "of the monitor",
            "ClusterMemberListen": self.peers[index],
            "ClusterSubjectGroups": str(self.groups),
            "ClusterMemberCoordinationFolder": str(self.folder),
            **{name: value.replace("INDEX", str(index)) for name, value in self.settings.items()},
            **changed,
        }
        arguments = ["--config", str(self.list_file(index))]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        if self.traced:
            arguments += ["--trace", str(self.trace(index))]
        self.started[index] = None
        with (self.folder / f"member-{index}.log").open("ab") as log:
            self.processes[index] = subprocess.Popen(
                [sys.executable, "-m", "mdserver.cli.main", "run", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "MDSERVER_CLUSTERPASSWORD": password, **self.environment},
            )

    def list_file(self, index: int) -> Path:
        """The configuration file of a member, which has `ClusterMembers` only."""
        return self.folder / f"member-{index}.conf"

    def write_list(self, index: int, *members: str) -> None:
        """Write the list of members that a member reads at its start, or after SIGHUP."""
        self.list_file(index).write_text(f"ClusterMembers = {', '.join(members)}\n")

    def monitor(self, index: int, method: str, path: str) -> tuple[int, str]:
        """Status and content of an operator's page at a member; 0 if it does not answer."""
        authorization = base64.b64encode(b"admin:of the monitor").decode()
        headers = {"Authorization": f"Basic {authorization}", "X-Mdserver": "1"}
        connection = http.client.HTTPConnection(self.monitors[index], timeout=15)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def state(self, index: int, asked: int) -> str:
        """What a member is, as another one sees it; empty if that one does not answer."""
        status, content = self.monitor(asked, "GET", "/cluster/status")
        rows = json.loads(content)["members"] if status == 200 else []
        return next((row["state"] for row in rows if row["address"] == self.peers[index]), "")

    def command(self, index: int, *words: str) -> subprocess.CompletedProcess[str]:
        """`mdserver cluster ...` at a member."""
        monitor = ("--monitor", f"http://{self.monitors[index]}")
        environment = {
            **os.environ,
            "MDSERVER_MONITORUSERNAME": "admin",
            "MDSERVER_MONITORPASSWORD": "of the monitor",
        }
        return subprocess.run(
            [sys.executable, "-m", "mdserver.cli.main", "cluster", *words, *monitor],
            capture_output=True,
            text=True,
            env=environment,
            timeout=20,
            check=False,
        )

    def log(self, index: int) -> str:
        return (self.folder / f"member-{index}.log").read_text()

    def trace(self, index: int) -> Path:
        """Where a member writes the steps of the protocol that it takes."""
        return self.folder / f"steps-{index}.jsonl"

    def kill(self, index: int) -> None:
        """kill -9, and wait until it is gone."""
        process = self.processes.pop(index)
        process.kill()
        process.wait()

    def stop(self, index: int) -> None:
        """SIGTERM, and wait until it ended by itself."""
        process = self.processes.pop(index)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=STOP_TIMEOUT_S) == 0, self.log(index)[-2000:]

    def status(self, index: int) -> dict[str, Any]:
        """`mdserver cluster status --json` at a member."""
        answer: dict[str, Any] = json.loads(self.command(index, "status", "--json").stdout)
        return answer

    def pause(self, index: int) -> None:
        self.processes[index].send_signal(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        self.processes[index].send_signal(signal.SIGCONT)

    def ready(self, index: int) -> str | None:
        """Why a member serves no clients; None if it does."""
        try:
            status, body = self.get(index, "/health/ready")
        except (OSError, http.client.HTTPException) as error:
            return str(error)
        return None if status == 200 else body.decode()

    def wait_ready(self, index: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        self.wait(lambda: self.ready(index) is None, timeout_s, f"member {index}")

    def wait(self, condition: object, timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        assert callable(condition)
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {i}\n{self.log(i)[-2000:]}" for i in self.started)
                raise AssertionError(f"{what}: not in {timeout_s} s\n{logs}")
            time.sleep(0.02)

    def get(self, index: int, path: str) -> tuple[int, bytes]:
        """Status and body of a path at a member."""
        connection = http.client.HTTPConnection(self.clients[index], timeout=15)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def produce(self, index: int, subject: str, content: str) -> bool:
        """Publish; whether it was acknowledged."""
        connection = http.client.HTTPConnection(self.clients[index], timeout=15)
        try:
            connection.request("POST", f"/rest/produce?subject={subject}", content)
            return bool(json.loads(connection.getresponse().read())["status"] == "OK")
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return False
        finally:
            connection.close()

    def consume(self, index: int, subject: str) -> list[tuple[int, int, str]]:
        """The whole history of a subject at a member, once that serves: epoch, seq and content."""
        path = f"/rest/consume?subject={subject}&history=1000"
        found: list[bytes] = []

        def served() -> bool:
            status, answer = self.get(index, path)
            found[:] = [answer]
            return status == 200

        self.wait(served, READY_TIMEOUT_S, f"member {index} serves {subject}")
        body = json.loads(found[0])
        return [(m["epoch"], m["seq"], m["content"]) for m in body["messages"]]


def wait_coordinators(cluster: LiveCluster, wanted: set[str]) -> None:
    """Wait until just these coordinate groups, as the first member sees it."""

    def agreed() -> bool:
        return {row["coordinator"] for row in cluster.status(0)["groups"]} == wanted

    cluster.wait(agreed, 60, f"only these coordinate: {wanted}")
