"""Restarting: how long a server with a journal takes to restore its state after kill -9."""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from attrs import frozen

from mdserver.bench import processes
from mdserver.bench.encodings import Encoding
from mdserver.bench.pipelining import Pipeline, publish_all, publisher
from mdserver.bench.results import Latencies, Row
from mdserver.bench.target import Running, ServersUnderTest, local
from mdserver.bench.verify import content
from mdserver.core.commands import Publish


@frozen
class RestartLoad:
    """The load: `count` publications to `subjects` subjects, a kill -9, and the next start."""

    encoding: Encoding
    content_bytes: int = 128
    count: int = 200_000
    subjects: int = 1000
    settings: Sequence[str] = ()


def measure(load: RestartLoad, progress: Callable[[str], None]) -> list[Row]:
    """Return one row; `seconds` is from the start of the process to its ready line."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [*load.settings, "Journal=on", f"JournalFolder={folder}"]
        with processes.running_on(processes.cores()[1]):
            progress(f"{load.count:,} publications, {load.subjects:,} subjects")
            _publish(load, settings)
            progress("starting again")
            return [_restarted(load, settings)]


def _publish(load: RestartLoad, settings: Sequence[str]) -> None:
    with processes.server(settings) as (process, port), ExitStack() as stack:
        connection = publisher(stack, ServersUnderTest(Running(local(port))), load.encoding)
        publications = (
            Publish(
                subject=f"/bench/{number % load.subjects}",
                content=content(number, load.content_bytes),
                id=number,
            )
            for number in range(1, load.count + 1)
        )
        pipeline = Pipeline(connection, publications, 1000, 50)
        pipeline.join = True
        publish_all([pipeline], Latencies())
        process.kill()
        process.wait()


def _restarted(load: RestartLoad, settings: Sequence[str]) -> Row:
    begun = time.perf_counter()
    with processes.server(settings) as (process, _):
        seconds = time.perf_counter() - begun
        return Row(
            bench="restart",
            mode="after kill -9",
            encoding=load.encoding.name,
            connections=0,
            content_bytes=load.content_bytes,
            count=load.count,
            seconds=seconds,
            per_s=load.count / seconds,
            per_cpu_s=load.count / processes.cpu_s(process.pid),
            resident_kib=processes.resident_kib(process.pid),
        )
