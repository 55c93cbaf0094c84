"""A server that hangs is noticed, and one that answers is not blamed."""

import itertools
from typing import Any

import pytest

from mdserver.client.core.phases import Phase

S = 1_000_000_000


@pytest.mark.parametrize(("keepalive_ms", "longest"), [(25_000, 5), (4_000, 4)])
def test_a_silent_server_is_pinged_then_left(stage: Any, keepalive_ms: int, longest: float) -> None:
    it = stage()
    it.connect(keepalive_ms=keepalive_ms)
    it.now += 3 * S
    it.hear({"op": "pong", "t": None})
    heard = it.now
    it.wait("liveness")
    assert it.sent[-1]["op"] == "connect", "it heard something"
    it.wait("liveness")
    assert it.sent[-1]["op"] == "ping"
    assert 0.75 * longest <= (it.now - heard) / S <= longest
    assert 0.75 * longest <= it.wait("liveness") <= longest
    assert it.closes == [(4004, "nothing was heard of the server for too long")]
    assert it.core.phase is Phase.WAITING


def test_a_pong_keeps_the_connection(stage: Any) -> None:
    it = stage()
    it.connect(keepalive_ms=25_000)
    asked = []
    for _ in range(12):
        it.wait("liveness")
        if it.sent and it.sent[-1]["op"] == "ping":
            asked.append(it.now)
            it.sent.clear()
            it.now += S // 10
            it.hear({"op": "pong", "t": None})
    assert it.core.phase is Phase.UP
    waits = [second - first for first, second in itertools.pairwise(asked)]
    assert max(waits) <= 5.1 * S
    assert len(set(waits)) > 1, "clients do not ask at the same time"


def test_a_client_that_stood_still_asks_again(stage: Any) -> None:
    it = stage()
    it.connect(keepalive_ms=25_000)
    it.wait("liveness")
    it.timers["liveness"] += 60 * S  # a suspended machine, or an application that computes
    it.wait("liveness")
    assert [command["op"] for command in it.sent[-2:]] == ["ping", "ping"]
    assert it.core.phase is Phase.UP
    it.wait("liveness")
    assert it.closes[0][0] == 4004
