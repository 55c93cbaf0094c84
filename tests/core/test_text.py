"""Foreign text is repeated only as valid, printable, bounded text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.core.text import is_unicode, safe_text

ANY_TEXT = st.text(st.characters(min_codepoint=0))  # halves of surrogate pairs among them


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("grüße 日本", "grüße 日本"),
        ("a\ud800b", "a\\ud800b"),
        ("a\nb\x1b[31m\0", "a\\nb\\x1b[31m\\x00"),
        ("\u202eevil", "\\u202eevil"),
        ("x" * 201, "x" * 200 + "..."),
        (ValueError("bad \udcff"), "bad \\udcff"),
    ],
)
def test_what_is_shown(text: object, shown: str) -> None:
    assert safe_text(text) == shown


@given(ANY_TEXT)
def test_any_text_becomes_valid_printable_and_bounded(text: str) -> None:
    shown = safe_text(text, 20)
    assert is_unicode(shown)
    assert shown.isprintable()
    assert len(shown) <= 20 * len("\\U0010ffff") + 3


@given(ANY_TEXT)
def test_text_is_unicode_if_it_can_be_encoded(text: str) -> None:
    assert is_unicode(text) is not any("\ud800" <= one <= "\udfff" for one in text)
