"""Parsers raise nothing but what they say, for all that the guided fuzzer kept."""

import pytest

from tests.fuzz.parsers import PARSERS, corpus, keep


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_takes_whatever_it_is_given(name: str) -> None:
    inputs = corpus(name)
    assert len(inputs) >= 5
    for one in inputs:
        PARSERS[name](one)
        PARSERS[name](one[: len(one) // 2])
        PARSERS[name](one + one)


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_kept_is_small_and_in_order(
    name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = corpus(name)
    assert sum(map(len, before)) < 40_000
    monkeypatch.setattr("tests.fuzz.parsers.SEEDS", tmp_path)
    keep(name, before)
    assert corpus(name) == before
    assert len(set(before)) == len(before)
