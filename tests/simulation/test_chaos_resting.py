"""Members at rest: what they may differ in, and what is found."""

import pytest

from simulation.chaos.promises import Cached
from simulation.chaos.resting import Held, differences

WHOLE: Cached = {seq: (1, f"p-{seq}") for seq in range(1, 6)}
LAST: Cached = {5: WHOLE[5]}


def found(messages: Cached, snapshot: Cached = LAST) -> list[str]:
    """What differs between a member that has everything and one that has this."""
    return list(differences("/s", {"m0": Held(WHOLE, LAST), "m1": Held(messages, snapshot)}))


@pytest.mark.parametrize("messages", [WHOLE, {seq: WHOLE[seq] for seq in (3, 4, 5)}, LAST])
def test_caches_may_begin_at_different_messages(messages: Cached) -> None:
    assert found(messages) == []


@pytest.mark.parametrize(
    ("messages", "snapshot", "said"),
    [
        ({**WHOLE, 3: (1, "another")}, LAST, "m1 has (1, 'another') at 3 of /s, another member"),
        ({seq: WHOLE[seq] for seq in (1, 2, 3, 4)}, LAST, "the last of /s is {'m0': 5, 'm1': 4}"),
        ({seq: WHOLE[seq] for seq in (1, 2, 4, 5)}, LAST, "m1 lacks [3] of /s"),
        ({}, LAST, "the last of /s is {'m0': 5, 'm1': 0}"),
        (WHOLE, {4: WHOLE[4]}, "the snapshot of /s is"),
        (WHOLE, {}, "the snapshot of /s is"),
    ],
)
def test_all_else_is_found(messages: Cached, snapshot: Cached, said: str) -> None:
    (difference,) = found(messages, snapshot)
    assert said in difference
