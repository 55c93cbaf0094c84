"""The job `replay`: archived messages published again, with the pauses they had.

What is published leaves through the ordinary client, so it passes the same entitlement and limits
as anything else. `speed` 10 means ten times as fast as it happened; without a speed, as fast as the
server takes it. No Spark is needed, so the first message leaves at once.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import trio
from attrs import frozen

from mdserver.client.client import Client
from mdserver.core.commands import Publish
from mdserver.core.message import Qos
from mdserver.errors import leaves
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.replay.windows import Selection, windows

CHUNK = 500
"""Messages that are prepared together, in a thread beside the client's."""
CHUNKS_AHEAD = 4
UNANSWERED_MAX = 1_000
CHECKPOINT_EVERY = 50
"""Messages that are late are published so many at a time before results are read."""


@frozen
class Again:
    """One message to publish, `after_s` seconds after the first one."""

    after_s: float
    command: Publish


@frozen
class Replayed:
    """How many messages were published, and how far the last of them was behind its time."""

    published: int
    behind_s: float


def rows(tables: Path, selection: Selection) -> Iterator[dict[str, Any]]:
    """Yield the archived messages of a selection, in the order in which they were committed."""
    for window in windows(tables, selection):
        times = window["ts_server"].cast(pa.int64())
        timed = window.set_column(0, "ts_server", times)
        for start in range(0, len(timed), CHUNK):
            yield from timed.slice(start, CHUNK).to_pylist()


def plan(
    found: Iterable[dict[str, Any]], speed: float | None, prefix: str
) -> Iterator[list[Again]]:
    """Rows of the table `messages`, in order -> what to publish and when, some at a time."""
    first: int | None = None
    chunk: list[Again] = []
    for row in found:
        first = row["ts_server"] if first is None else first
        passed_s = (row["ts_server"] - first) / 1_000_000
        chunk.append(Again(0.0 if speed is None else passed_s / speed, command(row, prefix)))
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def command(row: dict[str, Any], prefix: str) -> Publish:
    """Return the command that publishes a row again, with all that its publisher gave.

    Replies go below the prefix as well: nobody who waits at the first place is answered again.
    """
    content = row["content"]
    reply = row["reply_subject"]
    return Publish(
        subject=prefix + row["subject"],
        content=content.decode() if row["text"] else None,
        content_base64=None if row["text"] else content,
        fields=dict(row["fields"]) if row["fields"] else None,
        closure=row["closure"],
        retained=row["retained"],
        qos=Qos(row["qos"]),
        compressed=row["compressed"],
        reply_subject=None if reply is None else prefix + reply,
    )


def parse_speed(text: str) -> float | None:
    """`10x`, `0.5x` or `max`; PipelineError for anything else."""
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < math.inf:
        raise PipelineError(f"--speed is a factor like 10x, or max, not {text!r}")
    return speed


async def publish(client: Client, planned: Iterator[Sequence[Again]]) -> Replayed:
    """Publish at the planned times. PublishError if the server refuses one.

    A thread prepares what comes next, and never more than a few chunks ahead.
    """
    try:
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[Sequence[Again]](CHUNKS_AHEAD)
            nursery.start_soon(_prepare, planned, send)
            return await _publish(client, receive)
    except BaseExceptionGroup as group:
        raise leaves(group)[0] from None


async def _prepare(
    planned: Iterator[Sequence[Again]], send: trio.MemorySendChannel[Sequence[Again]]
) -> None:
    async with send:
        while (chunk := await trio.to_thread.run_sync(next, planned, None)) is not None:
            await send.send(chunk)


async def _publish(client: Client, planned: trio.MemoryReceiveChannel[Sequence[Again]]) -> Replayed:
    began: float | None = None
    count, behind_s = 0, 0.0
    waiting: deque[Any] = deque()
    async for chunk in planned:
        began = trio.current_time() if began is None else began
        for again in chunk:
            behind_s = trio.current_time() - began - again.after_s
            if behind_s < 0:
                await trio.sleep(-behind_s)
            elif count % CHECKPOINT_EVERY == 0:
                await trio.lowlevel.checkpoint()
            waiting.append(await client.submit_command(again.command))
            count += 1
            while waiting and (waiting[0].result is not None or len(waiting) >= UNANSWERED_MAX):
                await waiting.popleft().outcome()
    for publication in waiting:
        await publication.outcome()
    return Replayed(count, max(0.0, behind_s))
