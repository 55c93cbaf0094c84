"""The job `replay`: archived messages published again, with the pauses that they had.

Messages leave through the ordinary client, so the same entitlement and limits apply to them as to
all publications. A `speed` of 10 is ten times as fast as the messages were committed; without a
speed they are published as fast as the server takes them. No Spark is needed, so the first message
leaves at once.

A thread reads and prepares messages, and the client's task publishes them at their times. A bounded
channel between them keeps the thread a few chunks ahead, so memory is bounded however many messages
there are.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import trio
from attrs import define, frozen

from mdserver import limits
from mdserver.client.client import Client
from mdserver.core.commands import Publish
from mdserver.core.message import Qos
from mdserver.errors import leaves
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.replay.windows import Selection, windows

CHUNK = 500
"""The number of messages that are prepared together, in a thread beside the client's."""
CHUNKS_AHEAD = 4
UNANSWERED_MAX = 1_000
PROGRESS_S = 5.0
"""How often the progress is told."""
CHECKPOINT_EVERY = 50
"""How many late messages are published before the client's other tasks may run."""


@frozen
class Again:
    """One message to publish, `after_s` seconds after the first one."""

    after_s: float
    command: Publish


@frozen
class Replayed:
    """The number of published messages, and how far the last one was behind its time."""

    published: int
    behind_s: float


@define
class ReplayProgress:
    """How many messages have left, and how far the last one was behind its time."""

    published: int = 0
    behind_s: float = 0.0

    def now(self) -> Replayed:
        """Return the present values."""
        return Replayed(self.published, max(0.0, self.behind_s))


def tell_nobody(_: Replayed) -> None:
    """Tell nobody how a replay gets on."""


def rows(tables: Tables, selection: Selection) -> Iterator[dict[str, Any]]:
    """Yield the archived messages of a selection, in the order in which they were committed."""
    for window in windows(tables, selection):
        times = window["ts_server"].cast(pa.int64())
        timed = window.set_column(0, "ts_server", times)
        for start in range(0, len(timed), CHUNK):
            yield from timed.slice(start, CHUNK).to_pylist()


def plan(
    found: Iterable[dict[str, Any]], speed: float | None, prefix: str
) -> Iterator[list[Again]]:
    """Yield what to publish and when, `CHUNK` messages at a time.

    `found` are rows of the table `messages`, in order. `speed` is a factor, None for no pauses.
    `prefix` is put before each subject.
    """
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

    The reply subject gets the prefix as well, so that a requester of that time, who may still be
    subscribed, is not answered again.
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
    """Return the factor of a text such as `10x` or `0.5x`, None for `max`.

    Raises PipelineError for any other text.
    """
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < math.inf:
        raise PipelineError(f"--speed is a factor like 10x, or max, not {text!r}")
    return speed


async def replay(
    server: str,
    token: str | None,
    planned: Iterator[Sequence[Again]],
    tell: Callable[[Replayed], None] = tell_nobody,
) -> Replayed:
    """Publish through a connection of its own, as `publish` does.

    Raises PipelineError if the server does not answer, or is none.
    """
    refusal = f"publishing to {server} is not possible"
    try:
        made = Client([server], token=token)
    except ValueError as error:
        raise PipelineError(f"{refusal}: {error}") from None
    async with made as client:
        with trio.move_on_after(limits.PUBLISHER_CONNECT_TIMEOUT_S) as waiting:
            await client.connected()
        if waiting.cancelled_caught:
            raise PipelineError(f"{refusal}: no server answered")
        return await publish(client, planned, tell)


async def publish(
    client: Client,
    planned: Iterator[Sequence[Again]],
    tell: Callable[[Replayed], None] = tell_nobody,
) -> Replayed:
    """Publish at the planned times; `tell` gets the progress at once, now and then, and at the end.

    Raises PublishError if the server refuses a message.
    """
    progress = ReplayProgress()
    try:
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[Sequence[Again]](CHUNKS_AHEAD)
            nursery.start_soon(_prepare, planned, send)
            nursery.start_soon(_tell_now_and_then, progress, tell)
            await _publish(client, receive, progress)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise leaves(group)[0] from None
    tell(progress.now())
    return progress.now()


async def _tell_now_and_then(progress: ReplayProgress, tell: Callable[[Replayed], None]) -> None:
    while True:
        tell(progress.now())
        await trio.sleep(PROGRESS_S)


async def _prepare(
    planned: Iterator[Sequence[Again]], send: trio.MemorySendChannel[Sequence[Again]]
) -> None:
    """Send the planned chunks, which are computed in a thread since reading files blocks."""
    # Not `async with`: that lets others run before a failure of reading is known, and they would
    # take the end of the channel for the end of the messages.
    with send:
        while (chunk := await trio.to_thread.run_sync(next, planned, None)) is not None:
            await send.send(chunk)


async def _publish(
    client: Client, planned: trio.MemoryReceiveChannel[Sequence[Again]], progress: ReplayProgress
) -> None:
    """Publish chunks as they come, and wait for all results.

    Times count from the first chunk, so the reading of the first files delays nothing.
    """
    began: float | None = None
    waiting: deque[Any] = deque()
    async for chunk in planned:
        began = trio.current_time() if began is None else began
        for again in chunk:
            progress.behind_s = trio.current_time() - began - again.after_s
            if progress.behind_s < 0:
                await trio.sleep(-progress.behind_s)
            elif progress.published % CHECKPOINT_EVERY == 0:
                await trio.lowlevel.checkpoint()
            waiting.append(await client.submit_command(again.command))
            progress.published += 1
            while waiting and (waiting[0].result is not None or len(waiting) >= UNANSWERED_MAX):
                await waiting.popleft().outcome()
    for publication in waiting:
        await publication.outcome()
