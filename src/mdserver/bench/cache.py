"""The cost of the cache: resident memory for each subject and for each message in a history."""

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

HISTORIES = 100
WINDOW, BATCH = 1000, 50


@frozen
class CacheLoad:
    """The load: subjects with one message, then histories with many messages each."""

    encoding: Encoding
    subjects: int = 100_000
    messages: int = 100_000
    content_bytes: int = 128
    settings: Sequence[str] = ()


def measure(load: CacheLoad, progress: Callable[[str], None]) -> list[Row]:
    """Return a row for subjects and a row for messages, each from a server of its own.

    Raises BenchError if a publication is refused.
    """
    with processes.running_on(processes.cores()[1]):
        progress(f"{load.subjects:,} subjects with one message")
        subjects = _measured(load, "one a subject", load.subjects, load.subjects)
        progress(f"{HISTORIES} subjects with {load.messages:,} messages")
        return [subjects, _measured(load, f"in {HISTORIES} histories", load.messages, HISTORIES)]


def _measured(load: CacheLoad, mode: str, count: int, subjects: int) -> Row:
    # Nothing may expire or be dropped while the cache fills.
    kept = ("CacheExpireTime=1h", f"MaxCachedMessagesPerSubject={count}")
    publications = (
        Publish(
            subject=f"/bench/cache/{number % subjects}",
            content=content(number, load.content_bytes),
            id=number,
        )
        for number in range(1, count + 1)
    )
    with processes.server((*kept, *load.settings)) as (process, port), ExitStack() as stack:
        connection = publisher(stack, ServersUnderTest(Running(local(port))), load.encoding)
        pipeline = Pipeline(connection, publications, WINDOW, BATCH)
        before_kib = processes.resident_kib(process.pid)
        begun = time.perf_counter()
        latencies = Latencies()
        publish_all([pipeline], latencies)
        seconds = time.perf_counter() - begun
        resident_kib = processes.resident_kib(process.pid)
    row = Row(
        bench="cache",
        mode=mode,
        encoding=load.encoding.name,
        connections=1,
        content_bytes=load.content_bytes,
        count=count,
        seconds=seconds,
        per_s=count / seconds,
        resident_kib=resident_kib,
        kib_each=(resident_kib - before_kib) / count,
    )
    latencies.fill(row)
    return row
