"""A connection on which something came twice, or was known already, is found out."""

import pytest

from mdserver.codec.json_form import JsonClient, JsonCodec
from mdserver.core.commands import PositionAfter, Subscribe, Unsubscribe
from mdserver.core.events import Connected, Delivery, Reset, WireEvent
from mdserver.core.message import Entry, MessageType, Publication
from simulation.session_rules import SessionRules

UPDATE, RECOVERED, SNAPSHOT = MessageType.UPDATE, MessageType.RECOVERED, MessageType.SNAPSHOT
CONNECTED = Connected(
    session="s", member="m", version=1, history="h", groups=1, keepalive_ms=0, message_bytes_max=9
)


def message(seq: int, kind: MessageType = UPDATE, epoch: int = 1) -> Delivery:
    return Delivery(Entry(epoch, seq, Publication("/a", b"x")), kind)


def broken(*said: WireEvent | Delivery | Subscribe | Unsubscribe) -> list[str]:
    """Return which rules were broken, in a connection that subscribes to /a first."""
    found: list[str] = []
    rules = SessionRules(JsonClient(), lambda kind, what: found.append(f"{kind}: {what}"))
    codec = JsonCodec()
    for event in said:
        if isinstance(event, Subscribe | Unsubscribe):
            rules.command(event)
        elif isinstance(event, Delivery):
            rules.events(codec.delivery(event))
        else:
            rules.events(codec.event(event))
    return found


def test_messages_in_order_break_nothing_and_a_snapshot_may_repeat_one() -> None:
    asked = Subscribe(subjects=["/a"], positions={"/a": PositionAfter("h", 1, 4)})

    assert broken(CONNECTED, asked, message(5, RECOVERED), message(5, SNAPSHOT), message(6)) == []


@pytest.mark.parametrize("again", [5, 4])
def test_a_message_that_comes_twice_in_a_session_is_found(again: int) -> None:
    found = broken(CONNECTED, Subscribe(subjects=["/a"]), message(5), message(again))

    assert found == [f"repeated: UPDATE 1/{again} of /a after 1/5 in a session"]


def test_a_message_that_the_client_said_it_has_is_found() -> None:
    asked = Subscribe(subjects=["/a"], positions={"/a": PositionAfter("h", 1, 4)})

    assert broken(CONNECTED, asked, message(4, RECOVERED)) == [
        "repeated: RECOVERED 1/4 of /a, asked for what follows 1/4"
    ]


def test_positions_of_another_history_are_not_compared() -> None:
    asked = Subscribe(subjects=["/a"], positions={"/a": PositionAfter("old", 1, 4)})
    reset = Reset(history="new", subjects=["/a"])

    assert broken(CONNECTED, asked, message(3), reset, message(1, epoch=1)) == []


def test_a_subject_that_is_subscribed_again_is_left_alone() -> None:
    asked = Subscribe(subjects=["/a"])

    assert broken(CONNECTED, asked, message(5), asked, message(4), message(4)) == []
    assert broken(CONNECTED, asked, message(5), Unsubscribe(subjects=["/a"]), message(5)) == []
