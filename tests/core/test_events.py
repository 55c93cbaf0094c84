"""Events are told apart on the wire, say no more than they know, and stay as they were made."""

import json
from typing import Any, get_args

import msgspec
import pytest

from mdserver.codec.json_form import JsonCodec
from mdserver.core.events import (
    Connected,
    Delivery,
    MissingRange,
    Move,
    Status,
    StatusName,
    WireEvent,
    WirePosition,
)
from mdserver.core.message import Entry, MessageType, Publication

KINDS = get_args(WireEvent)


def test_each_event_has_a_name_of_its_own_on_the_wire() -> None:
    names = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(names)) == len(names)
    assert {kind.__struct_config__.tag_field for kind in KINDS} == {"op"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_does_not_change(kind: type) -> None:
    event = kind(**dict.fromkeys(kind.__struct_fields__))  # type: ignore[attr-defined]
    for name in kind.__struct_fields__:  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            setattr(event, name, 1)


def test_what_is_not_known_is_not_said() -> None:
    said = json.loads(msgspec.json.encode(Status(status=StatusName.PUBLISH_OK, id=3)))
    assert said == {"op": "status", "status": "PUBLISH_OK", "id": 3}
    assert json.loads(msgspec.json.encode(Move(delay_ms=5, reason="drain"))) == {
        "op": "move",
        "delay_ms": 5,
        "reason": "drain",
    }


def test_a_range_that_is_missing_has_both_ends() -> None:
    ends = [WirePosition("h1", 1, seq) for seq in (3, 7)]
    said = msgspec.to_builtins(MissingRange(*ends))
    assert [said[name]["seq"] for name in ("from", "to")] == [3, 7]


def test_statuses_are_those_of_the_page_by_value() -> None:
    for name in StatusName:
        assert name.value == name.name


def test_a_delivery_is_encoded_once_for_all_sessions() -> None:
    """The frame is kept in the delivery; whoever encodes it again gets the same object."""
    delivery = Delivery(Entry(1, 2, Publication("/a/b", b"x")), MessageType.UPDATE)
    assert (delivery.json, delivery.binary, delivery.alias) == (None, None, 0)
    codec = JsonCodec()
    frame = codec.delivery(delivery)
    assert codec.delivery(delivery) is frame
    assert JsonCodec().delivery(delivery) is frame
    said: dict[str, Any] = json.loads(frame)
    assert (said["op"], said["subject"], said["epoch"], said["seq"]) == ("message", "/a/b", 1, 2)


def test_what_a_session_is_told_first_has_no_more_than_clients_need() -> None:
    required = {field.name for field in msgspec.structs.fields(Connected) if field.required}
    assert required == {
        "session",
        "member",
        "version",
        "history",
        "groups",
        "keepalive_ms",
        "message_bytes_max",
    }
