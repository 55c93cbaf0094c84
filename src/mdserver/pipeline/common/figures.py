"""The progress of a job: as figures for Prometheus, and as messages on the job's meta-subject.

A job adds each batch and goes on at once. A reader that is slow, or a server that is away, has no
influence on it.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import trio
from attrs import asdict, field, frozen
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    start_http_server,
    write_to_textfile,
)

from mdserver.client import Client, Qos
from mdserver.errors import MdserverError
from mdserver.pipeline.common.requirements import PipelineError

META_SUBJECT = "/__mdserver__/pipeline/{job}"
PUBLISH_EVERY_S = 5.0
LEAVE_S = 5.0
"""How long a job that ends waits for its last figures to be published."""


@frozen
class Outlets:
    """The destinations of figures, by default none.

    `file` is written after each batch, Prometheus reads them at `host` and `port`, and they are
    published to `servers` with `token`.
    """

    file: Path | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    servers: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)


@frozen(kw_only=True)
class Progressed:
    """One step of a job, such as a batch of a stream.

    `lag_s` is how old the newest row was when the step was done, None if that is not known.
    """

    stream: str
    rows: int
    set_aside: int = 0
    seconds: float
    lag_s: float | None = None


class Figures:
    """The figures of one job: `add` may be called from any thread."""

    def __init__(self, job: str, outlets: Outlets) -> None:
        self.registry = CollectorRegistry()
        self._file = outlets.file
        self._job = job
        self._latest: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        names = ["job", "stream"]
        self._rows = self._counter("rows", "Rows that the job has done with.", names)
        self._aside = self._counter("set_aside_rows", "Rows that it could not use.", names)
        self._pace = self._gauge("rows_per_second", "Pace of the last batch with rows.", names)
        self._lag = self._gauge(
            "lag_seconds", "Age of the newest row when the last batch was done.", names
        )
        self._done = self._gauge(
            "last_batch_timestamp_seconds", "When the last batch was done.", names
        )

    def add(self, step: Progressed) -> None:
        """Count a step of the job. Raises PipelineError if the file cannot be written."""
        labels = self._job, step.stream
        self._rows.labels(*labels).inc(step.rows)
        self._aside.labels(*labels).inc(step.set_aside)
        self._done.labels(*labels).set_to_current_time()
        if step.rows:
            self._pace.labels(*labels).set(step.rows / max(step.seconds, 1e-6))
        if step.lag_s is not None:
            self._lag.labels(*labels).set(step.lag_s)
        with self._lock:
            self._latest[step.stream] = {**asdict(step), "time": time.time_ns() // 1_000_000}
        self.write()

    def write(self) -> None:
        """Write the file, if there is to be one. Raises PipelineError if that is not possible."""
        if self._file is not None:
            try:
                write_to_textfile(str(self._file), self.registry)
            except OSError as error:
                raise PipelineError(f"{self._file} cannot be written: {error.strerror}") from None

    def taken(self) -> list[dict[str, Any]]:
        """Return the last step of each stream that had one since this was called last."""
        with self._lock:
            latest, self._latest = self._latest, {}
        return list(latest.values())

    def _counter(self, name: str, meaning: str, labels: list[str]) -> Counter:
        return Counter(f"mdserver_pipeline_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, labels: list[str]) -> Gauge:
        return Gauge(f"mdserver_pipeline_{name}", meaning, labels, registry=self.registry)


@contextlib.contextmanager
def told(job: str, outlets: Outlets) -> Iterator[Figures]:
    """Yield the figures of a job, which go to their outlets until the end of the block.

    Raises PipelineError if the port cannot be used, or the file cannot be written.
    """
    figures = Figures(job, outlets)
    figures.write()
    with contextlib.ExitStack() as stack:
        if outlets.port is not None:
            try:
                server, _ = start_http_server(outlets.port, outlets.host, figures.registry)
            except OSError as error:
                where = f"{outlets.host}:{outlets.port}"
                raise PipelineError(f"metrics at {where}: {error.strerror}") from None
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        if outlets.servers:
            stack.enter_context(_published(job, outlets, figures))
        yield figures


@contextlib.contextmanager
def _published(job: str, outlets: Outlets, figures: Figures) -> Iterator[None]:
    """Publish figures in a thread of its own until the end of the block, then the last ones."""
    ended = threading.Event()

    async def publish() -> None:
        async with Client(outlets.servers, token=outlets.token) as client:
            last = False
            while not last:
                last = await trio.to_thread.run_sync(
                    ended.wait, PUBLISH_EVERY_S, abandon_on_cancel=True
                )
                for value in figures.taken():
                    content = msgspec.json.encode(value).decode()
                    subject = META_SUBJECT.format(job=job)
                    with trio.move_on_after(LEAVE_S):
                        sent = await client.submit(subject, content, qos=Qos.STANDARD)
                        if last:
                            await sent.outcome()

    def run() -> None:
        # A server that refuses or is away must not end the job.
        with contextlib.suppress(MdserverError, ExceptionGroup, ValueError):
            trio.run(publish)

    thread = threading.Thread(target=run, name="figures", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(LEAVE_S)
