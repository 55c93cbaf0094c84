"""Which member should coordinate a group, the same order on every member."""

from collections import Counter

from mdserver.cluster.placement import ranking

GROUPS = 1000


def first(weights: dict[str, int]) -> list[str]:
    return [ranking(group, weights)[0] for group in range(GROUPS)]


def test_shares_follow_the_weights() -> None:
    found = Counter(first({"m1:1": 1, "m2:1": 1, "m3:1": 2}))
    assert 200 < found["m1:1"] < 300
    assert 200 < found["m2:1"] < 300
    assert 450 < found["m3:1"] < 550


def test_the_order_of_the_members_does_not_matter() -> None:
    assert first({"m1:1": 1, "m2:1": 1}) == first({"m2:1": 1, "m1:1": 1})


def test_only_the_groups_of_a_member_that_goes_move() -> None:
    before = first({"m1:1": 1, "m2:1": 1, "m3:1": 1})
    after = first({"m1:1": 1, "m2:1": 1})
    assert [b for b in before if b != "m3:1"] == [
        a for a, b in zip(after, before, strict=True) if b != "m3:1"
    ]


def test_a_drained_member_is_the_last_of_all() -> None:
    assert all(ranking(group, {"m1:1": 0, "m2:1": 1})[-1] == "m1:1" for group in range(50))
