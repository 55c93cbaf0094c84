"""Publishing: one connection with many acknowledged publications in flight."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from attrs import frozen

from mdserver.bench import processes
from mdserver.bench.encodings import Encoding
from mdserver.bench.pipelining import Pipeline, publish_all, publisher
from mdserver.bench.results import Latencies, Row
from mdserver.bench.target import Running, opened, own_subject
from mdserver.bench.verify import content
from mdserver.core.commands import Publish


@frozen
class PublishLoad:
    """The load: `count` publications, at most `window` of them without their result.

    `batch` publications go with one system call. In the first row each of them is a WebSocket
    message of its own, in the second row all of them are one.
    """

    encoding: Encoding
    content_bytes: int = 128
    count: int = 100_000
    window: int = 1000
    batch: int = 50
    running: Running | None = None
    settings: Sequence[str] = ()


def measure(load: PublishLoad, progress: Callable[[str], None]) -> list[Row]:
    """Return a row for one publication a WebSocket message, and one for `batch` of them.

    Raises BenchError if a publication is refused.
    """
    with processes.running_on(processes.cores()[1]):
        return [_measured(load, join, progress) for join in (False, True)]


def _measured(load: PublishLoad, join: bool, progress: Callable[[str], None]) -> Row:
    with opened(load.running, load.settings) as target, ExitStack() as stack:
        connection = publisher(stack, target, load.encoding)
        subject = own_subject()
        mode = f"{load.batch} a WebSocket message" if join else "a WebSocket message each"
        progress(f"{load.count:,} publications, {mode}")
        publications = (
            Publish(subject=subject, content=content(number, load.content_bytes), id=number)
            for number in range(1, load.count + 1)
        )
        cpu_s = target.cpu_s
        begun = time.perf_counter()
        pipeline = Pipeline(connection, publications, load.window, load.batch)
        pipeline.join = join
        latencies = Latencies()
        publish_all([pipeline], latencies)
        seconds = time.perf_counter() - begun
        cpu_s = target.cpu_s - cpu_s
    row = Row(
        bench="publish",
        mode=mode,
        encoding=load.encoding.name,
        connections=1,
        content_bytes=load.content_bytes,
        count=load.count,
        seconds=seconds,
        per_s=load.count / seconds,
        per_cpu_s=load.count / cpu_s if cpu_s else None,
    )
    latencies.fill(row)
    return row
