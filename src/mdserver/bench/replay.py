"""`python -m mdserver.bench.replay`: the memory and the pace of a replay of many messages.

Writes the table of an archive, in files as the archive makes them: each has the messages of a span
of time, sorted by subject. A server runs, `mdserver pipeline replay` publishes all of it, and a
subscriber notes when some of the messages come. Needs the extra `pipeline`, and no Java.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import trio
from attrs import frozen
from rich.console import Console

from mdserver.bench import processes
from mdserver.bench.processes import BenchError
from mdserver.bench.tables import START_US, append_messages
from mdserver.client import Client
from mdserver.errors import MdserverError, leaves
from mdserver.limits import KB

SUBJECTS = 10_000
PACE_SUBJECT = "/bench/pace"
PACE_EVERY = 1_000
"""One in so many messages is about the subject whose arrivals are noted."""
CONTENT = b"x" * 128
FILE_ROWS = 200_000
US = 1_000_000
SETTLING_S = 1.0
SPAN_S = 10.0
POLL_S = 0.1
LAST_TIMEOUT_S = 60.0


@frozen
class ReplayLoad:
    """`rows` messages, of which `rate` were committed in each second."""

    rows: int
    rate: int


@frozen
class ReplayFound:
    """What was measured.

    `resident_mb` is the most memory that the process had. `pace` is how long everything took, from
    one second on, in relation to how long it had taken; `span_pace` is that of the span of ten
    seconds that deviates most. `late_ms` is how late the latest message was.
    """

    rows: int
    seconds: float
    resident_mb: float
    pace: float
    span_pace: float
    late_ms: float


def write_tables(tables: Path, load: ReplayLoad) -> None:
    """Write the table `messages`, one file for each `FILE_ROWS` messages."""
    for first in range(0, load.rows, FILE_ROWS):
        number = np.arange(first, min(first + FILE_ROWS, load.rows), dtype=np.int64)
        paced = number % PACE_EVERY == 0
        # In the order of the file's subjects, and of the numbers within each.
        order = np.lexsort((number, np.where(paced, -1, number % SUBJECTS)))
        number, paced = number[order], paced[order]
        names = [
            PACE_SUBJECT if pace else f"/bench/subject{each % SUBJECTS:06d}"
            for each, pace in zip(number.tolist(), paced.tolist(), strict=True)
        ]
        given: dict[str, Any] = {
            "subject": pa.array(names),
            "seq": number + 1,
            "ts_server": START_US + number * US // load.rate,
        }
        append_messages(tables, len(number), given, CONTENT)


def measure(tables: Path, load: ReplayLoad) -> ReplayFound:
    """Replay the table at its own pace. Raises BenchError if messages are missing."""
    everywhere = set(processes.ALLOWED)
    with processes.started(processes.server_command(()), on=everywhere) as server:
        url = f"http://127.0.0.1:{processes.server_port(server)}"
        job = [sys.executable, "-m", "mdserver.cli.main", "pipeline", "replay"]
        job += ["--tables", str(tables), "--subject", "/bench/*", "--format", "json"]
        try:
            return trio.run(_replay, job, url, load)
        except BaseExceptionGroup as group:
            raise leaves(group)[0] from None


async def _replay(job: Sequence[str], url: str, load: ReplayLoad) -> ReplayFound:
    came: list[float] = []
    resident = 0
    with_server = [*job, "--server", url]
    async with (
        Client([url]) as client,
        client.subscribe(f"/replay{PACE_SUBJECT}") as subscription,
        trio.open_nursery() as nursery,
    ):
        await subscription.confirmed()

        wanted = -(-load.rows // PACE_EVERY)

        async def note() -> None:
            while len(came) < wanted:
                messages = await subscription.batch()
                came.extend([time.perf_counter()] * len(messages))

        nursery.start_soon(note)
        with processes.started(with_server, on=set(processes.ALLOWED)) as process:
            while process.poll() is None:
                resident = max(resident, processes.highest_resident_kib(process.pid))
                await trio.sleep(POLL_S)
            assert process.stdout is not None
            published = json.loads(process.stdout.read() or b"{}").get("published", 0)
            if process.returncode or published != load.rows:
                raise BenchError(f"{published} of {load.rows} messages were published again")
        nursery.cancel_scope.deadline = trio.current_time() + LAST_TIMEOUT_S
    if len(came) < wanted:
        raise BenchError(f"{len(came)} of {wanted} messages came back")
    return _found(came, load, resident)


def _found(came: Sequence[float], load: ReplayLoad, resident_kib: int) -> ReplayFound:
    arrived = np.array(came) - came[0]
    planned = np.arange(len(came)) * PACE_EVERY / load.rate
    from_ = int(np.searchsorted(planned, SETTLING_S))
    step = max(1, int(SPAN_S * load.rate / PACE_EVERY))
    spans = (arrived[from_ + step :] - arrived[from_:-step]) / (step * PACE_EVERY / load.rate)
    whole = (arrived[-1] - arrived[from_]) / (planned[-1] - planned[from_])
    return ReplayFound(
        rows=load.rows,
        seconds=round(float(arrived[-1]), 3),
        resident_mb=round(resident_kib / KB, 1),
        pace=round(float(whole), 5),
        span_pace=round(float(spans[np.argmax(abs(spans - 1))]) if len(spans) else 1.0, 5),
        late_ms=round(float((arrived - planned)[from_:].max() * 1_000), 1),
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", type=click.IntRange(10_000), default=3_000_000, show_default=True)
@click.option(
    "--rate",
    type=click.IntRange(PACE_EVERY),
    default=10_000,
    show_default=True,
    help="Messages a second, at the time and again.",
)
def main(rows: int, rate: int) -> None:
    """Replay so many messages at their own pace; print the memory that took, and the pace."""
    load = ReplayLoad(rows, rate)
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="mdserver-bench-") as folder,
        console.status("writing tables") as status,
    ):
        write_tables(Path(folder), load)
        status.update(f"replaying for {rows / rate:.0f} s")
        found = measure(Path(folder), load)
    print(
        f"{found.rows} messages in {found.seconds} s: {found.resident_mb} MB resident at most;"
        f" {found.pace:.2%} of the planned time from the first second on, {found.span_pace:.2%} in"
        f" the worst {SPAN_S:g} s; {found.late_ms} ms late at most;"
        f" load average {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    try:
        main.main()
    except MdserverError as error:
        click.echo(f"mdserver.bench.replay: {error}", err=True)
        sys.exit(1)
