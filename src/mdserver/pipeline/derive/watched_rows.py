"""Rows of a batch of watched lines: their events, and the time that they reached. Pure."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from mdserver.client.message import inflated
from mdserver.pipeline.derive.operators import WatchedMessage
from mdserver.pipeline.derive.rule_engine import Refusal

JOURNAL = "journal"
"""The name of a journal's clock, which is one, as its segments are one sequence."""


def event_of(row: Mapping[str, Any]) -> WatchedMessage:
    """Return the event of a row. Content that is not text gives no field `content`."""
    fields = dict(row["fields"] or ())
    content: str | bytes | None = row["content"]
    if content is None:
        content = base64.b64decode(row["content_base64"])
        if row["compressed"]:
            content = inflated(content)
    if isinstance(content, str):
        fields["content"] = content
    return WatchedMessage(row["subject"], row["ts"], fields)


def clocks_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the time (us) of the newest usable row of each part of the source in a batch.

    A journal is one part. The partitions of Kafka are not ordered against each other; they have
    numbers within their topic, and the same stream may be read from several topics.
    """
    clocks: dict[str, int] = {}
    for row in rows:
        if row["reason"] is None:
            name = JOURNAL
            if row["src_kind"] != JOURNAL:
                name = f"{row['src_topic']}/{row['src_partition']}"
            clocks[name] = max(int(row["ts"]), clocks.get(name, 0))
    return clocks


def reached_by_all(clocks: Mapping[str, int]) -> int | None:
    """Return the time (us) that each part of the source has reached, None without any.

    Of a job that catches up, one batch may have a morning of one partition and an evening of
    another. The next batch then goes on with that morning, whose periods must be open.
    """
    return min(clocks.values(), default=None)


def aside(row: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the row of `quarantine` for a line that cannot be used."""
    place = {name: row[name] for name in ("src_kind", "src_partition", "src_pos")}
    value = row["value"]
    line = None if value is None else value.decode(errors="replace")  # steps are JSON
    return {"stream": "messages", "reason": reason, "line": line, **place}


def refused(refusal: Refusal) -> str:
    """Return the reason of a refusal, with the rule."""
    return f"rule {refusal.rule}: {refusal.reason}"
