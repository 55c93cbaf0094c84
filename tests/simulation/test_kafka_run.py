"""The simulated Kafka cluster: seeds pass, and known bugs put back are found."""

from typing import Any

import pytest

from mdserver.cluster.kafka_records import KeyPlace
from mdserver.cluster.kafka_repeats import Repeats
from mdserver.cluster.kafka_sweep import Sweep
from mdserver.core.message import Position
from simulation.kafka_run import run_kafka

SEEDS = 30
SEEDS_FOR_BUGS = 200


def test_seeds_pass_and_see_everything() -> None:
    seen: dict[str, int] = {}
    for seed in range(1, SEEDS + 1):
        result = run_kafka(seed)
        assert result.problems == (), f"seed {seed}"
        for what, count in result.coverage.items():
            seen[what] = seen.get(what, 0) + count
    assert {
        "repeats",
        "retention",
        "compaction",
        "kills",
        "failed",
        "lost acknowledgements",
        "retries of producers",
        "told of a gap",
        "dropped by position",
        "leaders",
    } <= {what for what, count in seen.items() if count}


def test_a_seed_is_the_same_every_time() -> None:
    assert run_kafka(7) == run_kafka(7)


def tell_too_little(self: Sweep, place: KeyPlace) -> None:
    """Tell that one record is missing, however many there are."""
    gone = self._lows.get((place.topic, place.partition))
    known = self._replica._cache.find(place.subject)
    if gone is not None and known is not None and known.seq < gone.seq:
        at = Position(gone.epoch, known.seq + 1)
        self._replica.missed(place.subject, at, self._outgoing.now, self._outgoing.out)


@pytest.mark.parametrize(
    ("owner", "name", "bug", "kind"),
    [
        (Repeats, "take", lambda *_: None, "duplicate"),
        (Sweep, "tell", lambda *_: None, "skip"),
        (Sweep, "tell", tell_too_little, "skip"),
    ],
    ids=["repeats are taken", "retention is not told", "a part of what retention took is told"],
)
def test_a_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, bug: Any, kind: str
) -> None:
    monkeypatch.setattr(owner, name, bug)
    found = (problem for seed in range(1, SEEDS_FOR_BUGS) for problem in run_kafka(seed).problems)
    assert any(problem.startswith(kind) for problem in found)
