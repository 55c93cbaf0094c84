"""The findings of an audit as an HTML page."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from mdserver.pipeline.common.html_page import STYLE, bars, table

COLOURS = {
    "exact": "#2a7f4f",
    "conflated": "#5b7db1",
    "loss": "#c0392b",
    "dup_or_corrupt": "#d35400",
    "reordered": "#b7950b",
    "not_archived": "#8e44ad",
    "unknown_epoch": "#7f8c8d",
}
BAD = ("session", "subject", "epoch", "seq_lo", "seq_hi", "verdict", "reason")
GAPS = ("session", "subscriber", "subject", "seq_lo", "seq_hi", "n")


@frozen
class Claims:
    """What no member confirms: receipts that are not whole, and gaps."""

    receipts: Sequence[Mapping[str, Any]]
    gaps: Sequence[Mapping[str, Any]]


def page(
    verdicts: Mapping[str, int],
    subscribers: Mapping[str, int],
    bad: Sequence[Mapping[str, Any]],
    gaps: Sequence[Mapping[str, Any]],
    unarchived: Sequence[Mapping[str, Any]],
    claims: Claims,
) -> str:
    """The report. `verdicts` counts receipts, `subscribers` delivered messages; the others are rows
    of the audit: receipts that are not whole, gaps between them, and publications that were
    acknowledged and are not archived. `claims` are no proof, and shown by themselves.
    """
    whole = not (bad or gaps or unarchived)
    said = "Everything that was promised was delivered." if whole else "Something is missing."
    return "\n".join(
        [
            "<!doctype html><html lang=en><meta charset=utf-8><title>Delivery audit</title>",
            f"<style>{STYLE}</style><h1>Delivery audit <small>{said}</small></h1>",
            "<h2>Receipts by verdict</h2>",
            bars(verdicts, COLOURS),
            "<h2>Messages delivered, by subscriber</h2>",
            bars(subscribers, {}),
            "<h2>Receipts that are not whole</h2>",
            table(bad, BAD),
            "<h2>Gaps between receipts</h2>",
            table(gaps, GAPS),
            "<h2>Acknowledged, but not archived</h2>",
            table(unarchived, ("node", "subject", "epoch", "seq", "publisher", "number")),
            "<h2>Claims that no member confirms: receipts that are not whole</h2>",
            table(claims.receipts, BAD),
            "<h2>Claims that no member confirms: gaps</h2>",
            table(claims.gaps, GAPS),
            "</html>",
        ]
    )
