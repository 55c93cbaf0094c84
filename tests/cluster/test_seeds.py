"""The present list of seeds: who votes, and how many are a majority."""

import pytest

from mdserver.cluster.seeds import Seeds


@pytest.mark.parametrize(
    ("names", "majority"), [("a", 1), ("ab", 2), ("abc", 2), ("abcd", 3), ("abcde", 3)]
)
def test_any_two_majorities_share_a_seed(names: str, majority: int) -> None:
    found = Seeds("a", tuple(names))
    assert found.majority == majority
    assert 2 * found.majority > len(names)
    assert found.include_me
    assert found.others == list(names[1:])


def test_a_member_beyond_the_list_does_not_vote() -> None:
    found = Seeds("x", ("a", "b", "c"))
    assert not found.include_me
    assert found.others == ["a", "b", "c"]


def test_nobody_votes_in_standard_mode() -> None:
    assert not Seeds("a", ()).include_me
