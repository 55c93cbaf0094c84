"""A standalone Spark cluster from the PySpark wheel: a master and two workers on loopback.

The wheel has no `start-master.sh`, but the classes that it would start.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from attrs import frozen

HOME = Path(pyspark.__file__).parent
CONF = Path(__file__).parents[1] / "conf" / "pipeline"
WORKERS = 2
START_TIMEOUT_S = 240
STOP_TIMEOUT_S = 60
JOB_TIMEOUT_S = 600
POLL_S = 0.2
MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
ENVIRONMENT = {
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}


@frozen
class LiveSpark:
    """A running cluster. Each worker has a folder with what its executors wrote."""

    master: str
    workers: Sequence[Path]

    def submit(self, jars: Sequence[Path], *job: str) -> subprocess.CompletedProcess[str]:
        """Run `mdserver pipeline ...` on the cluster, one executor on each worker."""
        settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        options = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        options += ["--properties-file", str(CONF / "standalone.conf")]
        if jars:
            options += ["--jars", ",".join(map(str, jars))]
        submit = HOME / "bin" / "spark-submit"
        return subprocess.run(
            [submit, "--master", self.master, *options, CONF / "job.py", *job],
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            check=False,
        )

    def executors(self) -> list[int]:
        """How many executors each worker has run."""
        return [len(list(worker.glob("app-*/*/stderr"))) for worker in self.workers]


@contextmanager
def live_spark(folder: Path) -> Iterator[LiveSpark]:
    """Runs a cluster until the end of the `with` block."""
    loopback = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(_daemon("master.Master", *loopback, "--port", "0", log=log))
        url = _wait_for(MASTER_URL, log, 1)[0]
        workers = [folder / f"worker-{number}" for number in range(WORKERS)]
        for worker in workers:
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(worker))
            output = worker.with_suffix(".log")
            stack.enter_context(_daemon("worker.Worker", *loopback, *size, url, log=output))
        _wait_for(re.compile("Registering (worker)"), log, WORKERS)
        yield LiveSpark(url, workers)


@contextmanager
def _daemon(name: str, *arguments: str, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
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
