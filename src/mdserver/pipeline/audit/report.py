"""The findings of an audit as an HTML page."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from mdserver.pipeline.common.html_page import bars, document, table

COLOURS = {
    "exact": "#2a7f4f",
    "conflated": "#5b7db1",
    "loss": "#c0392b",
    "dup_or_corrupt": "#d35400",
    "reordered": "#b7950b",
    "not_archived": "#8e44ad",
    "unknown_epoch": "#7f8c8d",
    "differing": "#34495e",
    "unjudged": "#95a5a6",
}
BARS_MAX = 50
FOUND = (
    *("kind", "subscriber", "session", "member", "subject", "epoch", "seq_lo", "seq_hi", "n"),
    *("first_bad_seq", "reason"),
)
SECTIONS = {
    "delivery": ("What subscribers did not get as it was published", FOUND),
    "archive": (
        "What the archive lacks, or has with several contents",
        (*FOUND[:8], "publisher", "number", "reason"),
    ),
    "claims": ("Claims that no member confirms", FOUND),
    "unjudged": (
        "What could not be judged",
        ("subscriber", "session", "member", "subject", "seq_lo", "seq_hi", "n", "reason"),
    ),
}
NEVER_JUDGED = (
    "Never judged, as receipts do not have it: closures and other properties of messages (checksums"
    " are about subject, position, content and fields); fields, of clients of earlier releases and"
    " where messages may have been conflated; STANDARD messages, which promise nothing; what a"
    " conflated subscription left out; what was committed in the last seconds before a session's"
    " last receipt; clients that give no receipts."
)


@frozen
class Content:
    """The content of the page.

    `period` is the time of the first and the last message, None without messages. `verdicts` counts
    receipts, `subscribers` counts delivered messages. `rows` are the first findings of each
    section, `counts` how many it has.
    """

    whole: bool
    period: tuple[str | None, str | None]
    messages: int
    verdicts: Mapping[str, int]
    subscribers: Mapping[str, int]
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    counts: Mapping[str, int]


def page(content: Content) -> str:
    """Return the report as HTML."""
    first, last = content.period
    period = (
        "The archive has no message."
        if first is None
        else (f"{content.messages:,} messages, committed from {first} to {last} UTC.")
    )
    said = (
        "Everything that was promised was delivered." if content.whole else "Something is missing."
    )
    parts = [
        f"<h1>Delivery audit <small>{said}</small></h1>",
        f"<p>{period}</p>",
        "<h2>Receipts by verdict</h2>",
        bars(content.verdicts, COLOURS),
        "<h2>Messages delivered, by subscriber</h2>",
        bars(content.subscribers, {}),
    ]
    for name, (title, columns) in SECTIONS.items():
        parts.append(f"<h2>{title}</h2>")
        parts.append(table(content.rows[name], columns, content.counts[name]))
    parts.append(f"<p>{NEVER_JUDGED}</p>")
    return document("Delivery audit", parts)
