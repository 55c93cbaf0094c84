"""The audit's page says what the audit found, and runs nothing that a subject brings along."""

import re
from typing import Any

from mdserver.pipeline.audit.report import FOUND, SECTIONS, Content, page
from mdserver.pipeline.common.html_page import ROWS_MAX, bars

BAD: dict[str, Any] = dict.fromkeys(FOUND) | {
    "kind": "loss",
    "subscriber": "ann",
    "session": "s1",
    "member": "n1",
    "subject": "/a/<script>alert(1)</script>",
    "seq_lo": 3,
    "seq_hi": 9,
    "reason": "6 received, 7 archived",
}
UNARCHIVED = BAD | {"kind": "acknowledged_not_archived", "publisher": "p", "number": 3}


def content(whole: bool = True, verdicts: dict[str, int] | None = None, **rows: Any) -> Content:
    return Content(
        whole=whole,
        period=("2026-03-01 08:00:00", "2026-03-01 09:00:00"),
        messages=4_000,
        verdicts=verdicts or {"exact": 4000},
        subscribers={"ann": 1_600_000},
        rows={name: rows.get(name, []) for name in SECTIONS},
        counts={name: len(rows.get(name, [])) for name in SECTIONS},
    )


def test_a_whole_delivery() -> None:
    text = page(content())
    assert "Everything that was promised was delivered." in text
    assert "1,600,000" in text
    assert "from 2026-03-01 08:00:00 to 2026-03-01 09:00:00 UTC" in text
    assert text.count("<p>None.</p>") == len(SECTIONS)
    assert "Never judged" in text


def test_damage_is_named_and_escaped() -> None:
    text = page(content(whole=False, delivery=[BAD]))
    assert "Something is missing." in text
    assert "<td>ann</td><td>s1</td><td>n1</td><td>/a/&lt;script&gt;" in text
    assert "<script>" not in text
    assert "6 received, 7 archived" in text


def test_what_was_acknowledged_and_is_not_archived_is_told() -> None:
    text = page(content(whole=False, archive=[UNARCHIVED]))
    assert "<td>p</td><td class=n>3</td>" in text.split("What the archive lacks")[1]


def test_bars_are_as_long_as_their_counts() -> None:
    text = bars({"exact": 100, "loss": 50, "none": 0}, {})
    assert re.findall(r"width:calc\(([0-9.]+) ", text) == ["1.0000", "0.5000"]


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    text = page(content(whole=False, delivery=[BAD] * (ROWS_MAX + 7)))
    assert text.count("<tr>") == ROWS_MAX + 1
    assert "and 7 more" in text


def test_claims_and_what_cannot_be_judged_are_shown_by_themselves() -> None:
    text = page(content(claims=[BAD], unjudged=[BAD]))
    assert "Everything that was promised was delivered." in text
    assert "/a/&lt;script&gt;" in text.split("Claims that no member confirms")[1]
    assert "/a/&lt;script&gt;" in text.split("What could not be judged")[1]


def test_the_page_fits_a_phone_and_loads_nothing() -> None:
    text = page(content())
    assert "width=device-width" in text
    assert "http" not in text
