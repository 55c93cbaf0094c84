"""What a client says at its start and end, and how it takes a server that breaks the rules."""

from typing import Any

import pytest

from mdserver.client.core.phases import Phase

S = 1_000_000_000


def test_a_connection_says_who_it_is(stage: Any) -> None:
    it = stage(token="t", publisher="p", client="me/1", keepalive_ms=5000)
    it.connect()
    assert it.spoken() == [
        {
            "op": "connect",
            "token": "t",
            "client": "me/1",
            "publisher": "p",
            "keepalive_ms": 5000,
        },
    ]
    assert it.core.phase is Phase.UP
    assert it.told() == ["SERVER_UP"]
    assert it.timers == {}


def test_connecting_twice_changes_nothing(stage: Any) -> None:
    it = stage()
    it.connect()
    it.take(it.core.connect(it.now))
    assert it.core.phase is Phase.UP


@pytest.mark.parametrize(
    "first",
    [
        {"op": "pong", "t": None},
        {"op": "message", "subject": "/a/b", "type": "UPDATE", "epoch": 1, "seq": 1},
        {"op": "status"},
        {
            "op": "connected",
            "session": "1",
            "member": "m",
            "version": 2,
            "history": "h",
            "groups": 1,
            "keepalive_ms": 0,
            "message_bytes_max": 1,
        },
    ],
)
def test_a_server_that_breaks_the_protocol_is_left_for_good(
    stage: Any, first: dict[str, Any]
) -> None:
    it = stage()
    it.take(it.core.connect(it.now))
    it.take(it.core.opened(it.attempt, it.now))
    it.hear(first)
    assert it.core.phase is Phase.STOPPED
    assert it.closes[0][0] == 4100
    assert it.stopped.reason.startswith("the server broke the protocol")


def test_connected_comes_once(stage: Any) -> None:
    it = stage()
    it.connect()
    it.greet()
    it.hear(
        {
            "op": "connected",
            "session": "1",
            "member": "m",
            "version": 1,
            "history": "h",
            "groups": 1,
            "keepalive_ms": 0,
            "message_bytes_max": 1,
        }
    )
    assert it.core.phase is Phase.STOPPED


def test_a_stream_closes_by_its_last_event(stage: Any) -> None:
    it = stage()
    it.connect()
    it.hear({"op": "closed", "code": 4003, "reason": "shutting down"})
    assert it.core.phase is Phase.WAITING
    assert not it.open


def test_disconnect_ends_everything_in_any_phase(stage: Any) -> None:
    it = stage()
    it.take(it.core.disconnect())
    for lost in (False, True):
        it.connect()
        if lost:
            it.lose()
        it.take(it.core.disconnect())
        assert it.core.phase is Phase.IDLE
        assert it.timers == {}
        assert not it.open
    it.take(it.core.connect(it.now))
    it.take(it.core.disconnect())
    assert it.closes[-1] == (1000, "")


def test_other_servers_are_used_from_the_next_connection_on(stage: Any) -> None:
    it = stage(["a:1"])
    it.connect()
    it.core.set_servers(["d:4"])
    it.lose()
    it.wait("attempt")
    assert it.server == "d:4"
    with pytest.raises(ValueError, match="at least one"):
        it.core.set_servers([])


def test_errors_without_an_addressee_are_told(stage: Any) -> None:
    it = stage()
    it.connect()
    it.told()
    it.hear({"op": "error", "code": "unknown-op", "reason": "there is no such command"})
    assert it.notices[-1].info == "unknown-op: there is no such command"
    assert it.told() == ["ERROR"]
