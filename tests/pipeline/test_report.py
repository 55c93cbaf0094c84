"""The audit's page says what the audit found, and runs nothing that a subject brings along."""

import re

from mdserver.pipeline.audit.report import Claims, page
from mdserver.pipeline.common.html_page import ROWS_MAX

NO_CLAIMS = Claims([], [])

BAD = {
    "session": "s1",
    "subject": "/a/<script>alert(1)</script>",
    "epoch": 1,
    "seq_lo": 3,
    "seq_hi": 9,
    "verdict": "loss",
    "reason": "6 received, 7 archived",
}


def test_a_whole_delivery() -> None:
    text = page({"exact": 4000}, {"ann": 1_600_000}, [], [], [], NO_CLAIMS)
    assert "Everything that was promised was delivered." in text
    assert "1,600,000" in text
    assert text.count("<p>None.</p>") == 5


def test_damage_is_named_and_escaped() -> None:
    text = page({"exact": 1, "loss": 1}, {"ann": 9}, [BAD], [], [], NO_CLAIMS)
    assert "Something is missing." in text
    assert "/a/&lt;script&gt;" in text
    assert "<script>" not in text
    assert "6 received, 7 archived" in text


def test_what_was_acknowledged_and_is_not_archived_is_told() -> None:
    lost = {"node": "n1", "subject": "/a/b", "epoch": 1, "seq": 7, "publisher": "p", "number": 3}
    text = page({"exact": 1}, {"ann": 9}, [], [], [lost], NO_CLAIMS)
    assert "Something is missing." in text
    assert "<td>/a/b</td><td class=n>1</td><td class=n>7</td>" in text


def test_bars_are_as_long_as_their_counts() -> None:
    text = page({"exact": 100, "loss": 50}, {}, [], [], [], NO_CLAIMS)
    assert re.findall(r'<rect[^>]* width="(\d+)"', text) == ["480", "240"]


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    text = page({"loss": 1}, {}, [BAD] * (ROWS_MAX + 7), [], [], NO_CLAIMS)
    assert text.count("<tr>") == ROWS_MAX + 1
    assert "and 7 more" in text


def test_claims_are_shown_by_themselves_and_prove_nothing() -> None:
    text = page({"loss": 1}, {"ann": 9}, [], [], [], Claims([BAD], []))
    assert "Everything that was promised was delivered." in text
    assert "/a/&lt;script&gt;" in text.split("Claims that no member confirms")[1]
