"""Steps of a run: logged before they are published, and carried out again after a crash."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable

from mdserver.client import Numbering
from mdserver.pipeline.derive.operators import Derived
from mdserver.pipeline.derive.publisher import Unpublished
from mdserver.pipeline.derive.set_aside import HOUR_S, ROWS_MAX
from mdserver.pipeline.derive.step_log import StepLog
from mdserver.pipeline.derive.steps import Steps

SAID = Derived("rule", "/to/b", "42", 7)
ASIDE = {"stream": "messages", "reason": "no JSON", "line": "{", "src_kind": "journal"}


class Server:
    """In place of a connection; refuses everything, or is away."""

    numbering = Numbering()

    def __init__(self) -> None:
        self.away = False
        self.got: list[Derived] = []

    def publish(self, derived: Sequence[Derived]) -> list[Unpublished]:
        if self.away:
            raise ConnectionError
        self.got += derived
        return [Unpublished(each, "too long") for each in derived]


@pytest.fixture
def server() -> Server:
    return Server()


def steps(folder: Path, server: Server, now: Callable[[], float] = time.time) -> Steps:
    return Steps(StepLog(folder / "steps", []), cast("Any", server), folder, now)


def quarantined(folder: Path) -> list[tuple[str, int]]:
    rows = DeltaTable(folder / "quarantine").to_pyarrow_table().to_pylist()
    return sorted((row["reason"], row["batch_id"]) for row in rows)


def test_a_step_that_was_not_published_is_carried_out_by_the_next_run(
    server: Server, tmp_path: Path
) -> None:
    server.away = True
    with pytest.raises(ConnectionError):
        steps(tmp_path, server).finish(3, [], [SAID], [ASIDE], {})
    server.away = False
    again = steps(tmp_path, server)
    assert again.batch == 3
    again.resume({})
    again.resume({})
    assert server.got == [SAID]
    assert quarantined(tmp_path) == [
        ("no JSON", 3),
        ("rule rule: /to/b was not taken: too long", 3),
    ]


def test_a_rule_that_refuses_each_message_fills_no_disk(server: Server, tmp_path: Path) -> None:
    """Neither do lines that cannot be used, or messages that the server refuses."""
    clock = [HOUR_S * 1_000.0]
    run = steps(tmp_path, server, lambda: clock[0])
    refused = {"stream": "messages", "src_kind": "journal"}
    one, other = (refused | {"reason": f"rule {name}: no number"} for name in ("one", "other"))
    for batch in range(45):
        run.finish(batch, [], [SAID] * 100, [*[one] * 100, *[ASIDE] * 100], {})
    run.finish(45, [], [], [other], {})
    counts = Counter(reason for reason, _ in quarantined(tmp_path))
    many = ("rule one: no number", "no JSON", "rule rule: /to/b was not taken: too long")
    left_out = "(row {} within the hour; most of them are not kept)"
    assert counts == {
        **dict.fromkeys(many, ROWS_MAX),
        **{f"{reason} {left_out.format(n)}": 1 for reason in many for n in ("2,000", "4,000")},
        "rule other: no number": 1,
    }
    clock[0] += HOUR_S
    run.finish(46, [], [], [one], {})
    assert ("rule one: no number", 46) in quarantined(tmp_path)


def test_a_batch_that_did_nothing_is_not_logged(server: Server, tmp_path: Path) -> None:
    run = steps(tmp_path, server)
    before = run.batch
    run.finish(3, [], [], [], {})
    assert run.batch == before
    assert not list((tmp_path / "steps").glob("step-*"))
