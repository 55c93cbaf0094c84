"""A standalone Spark cluster from the PySpark wheel: a master and two workers on loopback.

The wheel has no `start-master.sh`, but the classes that it would start.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark
from attrs import frozen

from tests.live_kafka import QUICK_JVM

HOME = Path(pyspark.__file__).parent
CONF = Path(__file__).parents[1] / "conf" / "pipeline"
WORKERS = 2
START_TIMEOUT_S = 240
STOP_TIMEOUT_S = 60
JOB_TIMEOUT_S = 600
POLL_S = 0.2
MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
QUICK = " ".join(QUICK_JVM)
CLUSTER_QUICK = {
    "spark.driver.defaultJavaOptions": QUICK,
    "spark.executor.defaultJavaOptions": QUICK,
    # The default of 200 is for a cluster of many cores: each costs a task for a handful of rows.
    "spark.sql.shuffle.partitions": "4",
}
ENVIRONMENT = {
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": QUICK,
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}


@frozen
class LiveSpark:
    """A running cluster. Each worker has a folder with what its executors wrote."""

    master: str
    workers: Sequence[Path]
    processes: Sequence[int]
    """The workers' processes, whose children are executors."""
    settings: Mapping[str, str]

    def submit(self, jars: Sequence[Path], *job: str) -> subprocess.CompletedProcess[str]:
        """Run `mdserver pipeline ...` on the cluster, one executor on each worker."""
        return subprocess.run(
            self._command(jars, *job),
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )

    @contextmanager
    def driver(self, log: Path, *job: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start such a job in a group of processes of its own, which is killed at the end."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                self._command([], *job),
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        with process:
            try:
                yield process
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def kill_executor(self, worker: int) -> bool:
        """Kill the executors of a worker; whether it had one. The worker starts another one."""
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int(process.joinpath("stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.processes[worker]:
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
        return found

    def _command(self, jars: Sequence[Path], *job: str) -> list[str | Path]:
        options = [word for item in self.settings.items() for word in ("--conf", "=".join(item))]
        options += ["--properties-file", str(CONF / "standalone.conf")]
        if jars:
            options += ["--jars", ",".join(map(str, jars))]
        submit = HOME / "bin" / "spark-submit"
        return [submit, "--master", self.master, *options, CONF / "job.py", *job]

    def executors(self) -> list[int]:
        """How many executors each worker has run."""
        return [len(list(worker.glob("app-*/*/stderr"))) for worker in self.workers]


@contextmanager
def live_spark(folder: Path, settings: Mapping[str, str]) -> Iterator[LiveSpark]:
    """Runs a cluster until the end of the `with` block; the settings are those of its jobs."""
    loopback = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(_daemon("master.Master", *loopback, "--port", "0", log=log))
        url = _wait_for(MASTER_URL, log, 1)[0]
        workers = [folder / f"worker-{number}" for number in range(WORKERS)]
        processes = []
        for worker in workers:
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(worker))
            output = worker.with_suffix(".log")
            daemon = _daemon("worker.Worker", *loopback, *size, url, log=output)
            processes.append(stack.enter_context(daemon))
        _wait_for(re.compile("Registering (worker)"), log, WORKERS)
        yield LiveSpark(url, workers, processes, LOOPBACK | settings)


@contextmanager
def _daemon(name: str, *arguments: str, log: Path) -> Iterator[int]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()


def _wait_for(pattern: re.Pattern[str], log: Path, count: int) -> list[str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(found := pattern.findall(log.read_text(encoding="utf-8"))) < count:
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(POLL_S)
    return found
