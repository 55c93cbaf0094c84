"""The job `replay`: archived messages published again, with the pauses they had.

Spark selects and sorts; what is published leaves through the ordinary client, so it passes the same
entitlement and limits as anything else. `speed` 10 means ten times as fast as it happened; without
a speed, as fast as the server takes it.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any

import trio
from attrs import field, frozen
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mdserver.client.client import Client
from mdserver.core.commands import Publish
from mdserver.core.message import Qos
from mdserver.core.subjects import segments_of
from mdserver.pipeline.common import schema
from mdserver.pipeline.common.requirements import PipelineError


@frozen
class Again:
    """One message to publish, `after_s` seconds after the first one."""

    after_s: float
    command: Publish


@frozen
class Selection:
    """Which archived messages: a subject or pattern, and times of commitment, the end excluded."""

    subject: str
    start: dt.datetime | None = None
    end: dt.datetime | None = None
    roots: tuple[str, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        first = segments_of(self.subject)[0]
        object.__setattr__(self, "roots", () if first in {"*", "**"} else (first,))


def select(messages: DataFrame, selection: Selection) -> DataFrame:
    """The archived messages of a selection, in the order in which they were committed."""
    if selection.roots:
        messages = messages.where(f.col("root").isin(*selection.roots))
    if selection.start is not None:
        messages = messages.where(f.col("ts_server") >= f.lit(selection.start))
    if selection.end is not None:
        messages = messages.where(f.col("ts_server") < f.lit(selection.end))
    messages = messages.where(f.col("subject").rlike(schema.subject_regex(selection.subject)))
    return messages.orderBy("ts_server", "subject", "epoch", "seq")


def plan(rows: Iterable[Any], speed: float | None, prefix: str) -> Iterator[Again]:
    """Rows of the table `messages`, in order -> what to publish and when."""
    first: dt.datetime | None = None
    for row in rows:
        first = first or row["ts_server"]
        passed = (row["ts_server"] - first).total_seconds()
        yield Again(0.0 if speed is None else passed / speed, command(row, prefix))


def command(row: Any, prefix: str) -> Publish:
    """Return the command that publishes a row again, with all that its publisher gave.

    Replies go below the prefix as well: nobody who waits at the first place is answered again.
    """
    content = bytes(row["content"])
    reply = row["reply_subject"]
    return Publish(
        subject=prefix + row["subject"],
        content=content.decode() if row["text"] else None,
        content_base64=None if row["text"] else content,
        fields=row["fields"] or None,
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
    if not 0 < speed < float("inf"):
        raise PipelineError(f"--speed is a factor like 10x, or max, not {text!r}")
    return speed


async def publish(client: Client, planned: Iterable[Again]) -> int:
    """Publish at the planned times; how many were acknowledged. PublishError where one is refused.

    The rows are fetched from Spark in a thread, so that acknowledgements go on being read.
    """
    began = trio.current_time()
    rows = iter(planned)
    count = 0
    waiting = []
    while (again := await trio.to_thread.run_sync(next, rows, None)) is not None:
        await trio.sleep_until(began + again.after_s)
        waiting.append(await client.submit_command(again.command))
        while waiting and (waiting[0].result is not None or len(waiting) >= 1000):
            await waiting.pop(0).outcome()
            count += 1
    for publication in waiting:
        await publication.outcome()
        count += 1
    return count
