"""When and where a client connects: losing, moving, stopping, tokens."""

from typing import Any

import pytest

from mdserver.client.core.phases import Phase
from mdserver.client.core.schedule import ReconnectSettings

S = 1_000_000_000


def test_a_loss_is_told_and_mended(stage: Any) -> None:
    it = stage(["a:1", "b:1"])
    it.connect()
    first = it.server
    it.told()
    it.lose()
    assert it.told() == ["SERVER_DOWN"]
    assert 0 <= it.wait("attempt") <= 5
    assert it.server != first, "not where it was just lost"
    it.greet()
    assert it.told() == ["SERVER_UP"]


def test_failed_attempts_follow_the_schedule(stage: Any) -> None:
    it = stage(reconnect=ReconnectSettings(notify_after_failed_attempts=2))
    it.take(it.core.connect(it.now))
    bounds = [(0, 5), (5, 10), (10, 15), (20, 40), (40, 80)]
    told = []
    for low, high in bounds:
        it.lose(reason="refused")
        told.append(it.told())
        assert low <= it.wait("attempt") <= high
    assert told == [[], ["SERVER_DOWN"], [], [], []]


def test_a_server_that_does_not_answer_is_left(stage: Any) -> None:
    it = stage()
    it.take(it.core.connect(it.now))
    assert it.wait("opening") == 10
    assert it.closes[-1][1] == "the server did not answer in time"
    it.wait("attempt")
    it.take(it.core.opened(it.attempt, it.now))
    assert it.wait("opening") == 10
    assert it.core.phase is Phase.WAITING
    assert it.told() == ["SERVER_DOWN"]


def test_events_of_an_earlier_transport_are_ignored(stage: Any) -> None:
    it = stage()
    it.connect()
    old = it.attempt
    it.lose()
    it.wait("attempt")
    assert it.core.opened(old, it.now) == []
    assert it.core.received(old, b"[]", it.now) == []
    assert it.core.closed(old, 4101, "", it.now) == []
    assert it.core.phase is Phase.OPENING


def test_connect_does_not_wait_for_the_timer(stage: Any) -> None:
    it = stage()
    it.connect()
    it.lose()
    it.take(it.core.connect(it.now))
    assert it.core.phase is Phase.OPENING
    assert "attempt" not in it.timers


@pytest.mark.parametrize("code", [4000, 4002, 4003])
def test_an_orderly_end_moves_at_once_without_alarm(stage: Any, code: int) -> None:
    it = stage(["a:1", "b:1"])
    it.connect()
    first = it.server
    it.told()
    it.lose(code)
    assert 0 <= it.wait("attempt") <= 0.5
    assert it.server != first
    it.greet()
    assert it.told() == []


def test_servers_that_all_send_away_are_not_hammered(stage: Any) -> None:
    it = stage(["a:1", "b:1", "c:1"])
    it.connect()
    waited = []
    for _ in range(6):
        it.lose(4002)
        waited.append(it.wait("attempt"))
        it.greet()
    assert max(waited[:3]) <= 0.5, "each server may be tried at once"
    for retry, seconds in enumerate(waited[3:], start=1):
        assert 5 * (retry - 1) <= seconds <= 5 * retry


def test_a_server_that_always_says_move_is_not_hammered(stage: Any) -> None:
    it = stage(["a:1"])
    it.connect()
    it.told()
    move = {"op": "move", "delay_ms": 0, "reason": "rebalance"}
    it.hear(move)
    it.wait("move")
    it.greet()
    it.hear(move)
    it.wait("move")
    assert it.told() == ["SERVER_DOWN"]
    assert not it.open
    it.wait("attempt")
    it.greet()


def test_a_connection_that_lasts_ends_the_quick_phase(stage: Any) -> None:
    it = stage()
    it.connect()
    for retry in (1, 2, 3):
        it.lose()
        assert 5 * (retry - 1) <= it.wait("attempt") <= 5 * retry
        it.greet()
        it.now += 9 * S
    it.now += 1 * S
    it.lose()
    assert it.wait("attempt") <= 5


def test_a_slow_consumer_comes_back_to_the_same_server(stage: Any) -> None:
    it = stage(["a:1", "0 b:1"])
    it.connect()
    it.lose(4001)
    it.wait("attempt")
    assert it.server == "a:1"


@pytest.mark.parametrize("code", [4100, 4101, 4150])
def test_codes_that_forbid_to_come_back_unchanged(stage: Any, code: int) -> None:
    it = stage()
    it.connect()
    it.told()
    it.lose(code, "no")
    assert it.core.phase is Phase.STOPPED
    assert it.told() == ["SERVER_DOWN"]
    assert it.stopped.code == code
    assert it.stopped.reason == "no"
    assert it.timers == {}
    it.take(it.core.set_token("other", it.now))
    it.greet()
    assert it.spoken()[-1]["token"] == "other"
    assert it.told() == ["SERVER_UP"]


def test_a_denied_connection_tells_the_reason(stage: Any) -> None:
    it = stage()
    it.take(it.core.connect(it.now))
    it.take(it.core.opened(it.attempt, it.now))
    it.hear({"op": "status", "status": "CONNECT_DENY", "reason": "expired"})
    assert it.notices[-1].info == "expired"
    it.lose(4101, "expired")
    assert it.told() == ["CONNECT_DENY", "SERVER_DOWN"]


def test_an_expired_token_waits_for_a_new_one(stage: Any) -> None:
    it = stage(token="old")
    it.connect()
    it.hear({"op": "status", "status": "TOKEN_EXPIRED"})
    it.lose(4005)
    assert it.core.phase is Phase.NEEDS_TOKEN
    assert it.timers == {}
    it.spoken()
    it.take(it.core.set_token("new", it.now))
    it.greet()
    assert it.spoken()[0]["token"] == "new"
    assert it.told() == ["SERVER_UP", "TOKEN_EXPIRED", "SERVER_DOWN", "SERVER_UP"]


def test_a_token_is_renewed_in_band(stage: Any) -> None:
    it = stage(token="old")
    it.connect()
    it.spoken()
    it.take(it.core.set_token("new", it.now))
    assert it.spoken() == [{"op": "token", "token": "new"}]
    it.hear({"op": "status", "status": "TOKEN_UPDATED"})
    it.lose()
    it.wait("attempt")
    it.greet()
    assert it.spoken()[0]["token"] == "new"


def test_move_goes_where_the_server_says_after_its_delay(stage: Any) -> None:
    it = stage(["a:1"])
    it.connect()
    it.told()
    it.hear({"op": "move", "delay_ms": 3000, "reason": "drain", "servers": ["c:3"]})
    assert 3 <= it.wait("move") <= 3.5
    assert it.server == "c:3"
    it.greet()
    assert it.told() == []


@pytest.mark.parametrize("closes", [True, False])
def test_a_server_may_send_a_client_elsewhere_before_it_greets(stage: Any, closes: bool) -> None:
    it = stage(["a:1", "b:1"])
    it.take(it.core.connect(it.now))
    first = it.server
    it.take(it.core.opened(it.attempt, it.now))
    it.hear({"op": "move", "delay_ms": 500, "reason": "no-quorum"})
    if closes:
        it.lose(4002)
    assert it.wait("attempt" if closes else "move") <= 1.0
    assert it.server != first
    it.greet()
    assert it.stopped is None
    assert it.told() == ["SERVER_UP"]


def test_servers_that_all_send_a_client_elsewhere_are_not_hammered(stage: Any) -> None:
    it = stage(["a:1", "b:1"])
    it.connect()
    it.now += 3600 * S
    it.lose(4002)
    waits = []
    for _ in range(5):
        waits.append(it.wait("attempt"))
        it.take(it.core.opened(it.attempt, it.now))
        it.hear({"op": "move", "delay_ms": 0, "reason": "no-quorum"})
        it.lose(4002)
    assert max(waits[:2]) <= 0.5
    assert sum(waits[2:]) > 3


def test_a_close_while_moving_does_not_wait_for_the_rest(stage: Any) -> None:
    it = stage(["a:1", "b:1"])
    it.connect()
    first = it.server
    it.hear({"op": "move", "delay_ms": 30000, "reason": "drain"})
    it.lose(1006)
    assert it.wait("attempt") <= 0.5
    assert it.server != first
    assert "move" not in it.timers


def test_a_named_server_that_fails_gives_way_to_the_own_ones(stage: Any) -> None:
    it = stage(["a:1"])
    it.connect()
    it.hear({"op": "move", "delay_ms": 0, "reason": "drain", "servers": ["c:3"]})
    it.wait("move")
    it.lose()
    it.wait("attempt")
    assert it.server == "a:1"


def test_flapping_is_told(stage: Any) -> None:
    servers = ["a:1", "b:1", "c:1", "d:1"]
    it = stage(servers, reconnect=ReconnectSettings(notify_rate_threshold=3))
    it.connect()
    told = []
    for _ in range(4):
        it.told()
        it.lose(4000)
        it.wait("attempt")
        told.append(it.told())
        it.greet()
    assert told == [[], [], [], ["RECONNECT_RATE_EXCEEDED"]]
