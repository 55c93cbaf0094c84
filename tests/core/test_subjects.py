"""Subjects and patterns, rule by rule where no scenario goes."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.core.subjects import (
    Pattern,
    group_of,
    parse_grant,
    parse_interest,
    segments_of,
    shown,
    validate_subject,
)
from mdserver.errors import InvalidSubjectError
from mdserver.limits import SUBJECT_BYTES_MAX

WORDS = st.sampled_from(["a", "b", "*", "__mdserver__"])
PATTERNS = st.lists(WORDS, min_size=1, max_size=3).flatmap(
    lambda words: st.sampled_from(["/" + "/".join(words), "/" + "/".join([*words, "**"])])
)
SUBJECTS = st.lists(st.sampled_from(["a", "b", "c", "__mdserver__"]), min_size=1, max_size=4)


def pattern(text: str) -> Pattern:
    return parse_grant(text)


@given(PATTERNS, SUBJECTS)
def test_patterns_meet_where_a_subject_is_one_of_both(text: str, segments: list[str]) -> None:
    for other in ("/**", "/a/**", "/a/b", "/*/b", "/__mdserver__/**", "/b/*/c"):
        one, two = pattern(text), pattern(other)
        if one.matches(segments) and two.matches(segments):
            assert one.meets(two)
            assert two.meets(one)


@given(PATTERNS, PATTERNS)
def test_patterns_that_meet_have_a_subject_in_common(one_text: str, two_text: str) -> None:
    one, two = pattern(one_text), pattern(two_text)
    depth = max(len(one.segments), len(two.segments)) + 1
    words = ["a", "b", "__mdserver__"]
    subjects: list[list[str]] = [[]]
    common = False
    for _ in range(depth):
        subjects = [[*subject, word] for subject in subjects for word in words]
        common = common or any(one.matches(s) and two.matches(s) for s in subjects)
    assert one.meets(two) == common


def test_a_subject_has_at_most_so_many_bytes() -> None:
    longest = "/a/" + "x" * (SUBJECT_BYTES_MAX - 3)
    validate_subject(longest)
    with pytest.raises(InvalidSubjectError, match=r"has 1025 bytes: at most 1024 are allowed"):
        validate_subject(longest + "x")
    with pytest.raises(InvalidSubjectError, match=r"has 1027 bytes"):
        validate_subject("/a/" + "\u00e9" * 512)


def test_a_right_may_not_have_a_wildcard_for_the_rest_in_its_middle() -> None:
    with pytest.raises(InvalidSubjectError, match=r"'\*\*' before its end"):
        parse_grant("/a/**/b")


def test_a_segment_with_a_star_in_it_is_no_wildcard() -> None:
    assert parse_interest("/a/b*") is None
    assert parse_interest("/a/***") is None


def test_a_pattern_shows_its_text() -> None:
    assert repr(parse_interest("/a/*")) == "Pattern('/a/*')"


def test_long_subjects_are_shortened_in_reasons() -> None:
    assert shown("/" + "x" * 200) == "'/" + "x" * 79 + "...'"
    assert segments_of("/a/b") == ["a", "b"]


def test_the_group_of_a_subject_is_the_crc_32_of_its_utf_8_bytes() -> None:
    """Members and clients of other versions compute the same, so these values never change."""
    assert group_of("/a/b", 128) == 0x21A0F97A % 128
    assert group_of("/ä", 7) == zlib.crc32(b"/\xc3\xa4") % 7
