"""What a member is told of its cluster: who votes, how many are a majority."""

import random

import pytest

from mdserver.cluster.seeds import Seeds
from mdserver.cluster.settings import ClusterSettings, alone, delay


def members(count: int) -> tuple[str, ...]:
    return tuple(f"m{index}:1" for index in range(1, count + 1))


@pytest.mark.parametrize(
    ("count", "seed_count", "seeds", "majority"),
    [
        (1, 0, 1, 1),
        (2, 0, 2, 2),
        (3, 0, 3, 2),
        (4, 0, 3, 2),
        (5, 0, 5, 3),
        (9, 0, 5, 3),
        (9, 7, 7, 4),
    ],
)
def test_the_first_members_vote(count: int, seed_count: int, seeds: int, majority: int) -> None:
    settings = ClusterSettings("m1:1", members(count), seed_count)
    assert settings.seeds == members(count)[:seeds]
    found = Seeds(settings.me, settings.seeds)
    assert found.majority == majority
    assert 2 * majority > seeds
    assert found.include_me


def test_a_member_beyond_the_seeds_or_the_list_does_not_vote() -> None:
    for name in ("m4:1", "new:1"):
        assert name not in ClusterSettings(name, members(4)).seeds


def test_nobody_votes_in_standard_mode_and_one_member_is_no_single_server() -> None:
    settings = ClusterSettings("m1:1", members(1), guaranteed=False)
    assert settings.seeds == ()
    assert not settings.single


def test_a_single_server_is_a_majority_by_itself() -> None:
    settings = alone("here")
    assert settings.single
    assert settings.seeds == ("here",)
    assert (settings.writes_wal, settings.acks_wait_for_wal) == (False, False)


@pytest.mark.parametrize("turns", [0, 0.5, 3])
def test_random_delays_are_of_so_many_heartbeats_and_one_more_at_most(turns: float) -> None:
    settings = ClusterSettings("m1:1", members(3))
    drawn = [delay(settings, random.Random(seed), turns) for seed in range(100)]
    assert min(drawn) >= turns * settings.heartbeat
    assert max(drawn) < (turns + 1) * settings.heartbeat
    assert max(drawn) - min(drawn) > settings.heartbeat / 2
