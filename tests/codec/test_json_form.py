"""The JSON form: every command and event both ways, and one clear answer to what is none."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.codec import reading
from mdserver.codec.json_form import JSON, JsonClient
from mdserver.core.commands import (
    Command,
    Connect,
    Malformed,
    Ping,
    PositionAfter,
    Publish,
    RenewToken,
    Subscribe,
    Unsubscribe,
)
from mdserver.core.events import (
    Connected,
    Delivery,
    Error,
    Event,
    MessageEvent,
    MissingRange,
    Move,
    Pong,
    Reset,
    Status,
    StatusName,
    StreamClosed,
    WirePosition,
)
from mdserver.core.message import Entry, MessageType, Position, Publication, Qos
from mdserver.errors import RemoteProtocolError

COMMANDS: list[Command] = [
    Connect(token="t", client="c/1", publisher="p", keepalive_ms=1000, id=1),
    Connect(),
    Subscribe(subjects=["/a/b", "/a/**"], history=3, conflation_ms=500, id="s"),
    Subscribe(subjects=["/a/b"], positions={"/a/b": PositionAfter("h", 1, 2**40)}),
    Unsubscribe(subjects=["/a/b"]),
    Publish(subject="/a/b", content="é\u2028\U0001f600"),
    Publish(subject="/a/b", content_base64=b"\x00\xff", qos=Qos.STANDARD, retained=False),
    Publish(
        subject="/a/b",
        content="",
        fields={"bid": "1"},
        closure="c",
        compressed=True,
        reply_subject="/r/1",
        number=7,
    ),
    RenewToken(token="t", id=2**63 - 1),
]

EVENTS: list[Event] = [
    Connected(
        session="s",
        member="m",
        version=1,
        history="h",
        groups=128,
        keepalive_ms=25000,
        message_bytes_max=65536,
    ),
    Status(status=StatusName.PUBLISH_OK, closure="c", epoch=0, seq=0),
    Status(
        status=StatusName.DATA_RESYNC,
        subject="/a/b",
        missing=MissingRange(WirePosition("h", 1, 2), WirePosition("h", 1, 9)),
    ),
    Status(status=StatusName.PUBLISH_FAILED, certain=False, reason="Nobody knows.", id=3),
    Reset(history="h2", subjects=["/a/b"]),
    Move(delay_ms=250, reason="drain", servers=["10.0.0.1:8800"]),
    Error(code="unknown-op", reason="There is no such command.", id="x"),
    StreamClosed(code=4000, reason="This member is drained."),
]


def delivery(**given: Any) -> Delivery:
    """A delivery of /a/b at (1, 2)."""
    publication = Publication(**{"subject": "/a/b", "content": b"x", **given})
    return Delivery(Entry(1, 2, publication), MessageType.UPDATE)


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_a_command_comes_out_as_it_went_in(command: Command) -> None:
    client = JsonClient()
    assert JSON.commands(client.command(command)) == [command]  # type: ignore[arg-type]


def test_a_batch_keeps_its_order() -> None:
    client = JsonClient()
    frames = [client.command(command) for command in COMMANDS]  # type: ignore[arg-type]
    assert JSON.commands(client.join(frames)) == COMMANDS
    assert JSON.commands(b"[]") == []


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_an_event_comes_out_as_it_went_in(event: Event) -> None:
    frame = JSON.event(event)  # type: ignore[arg-type]
    assert JsonClient().events(frame) == [event]
    assert JsonClient().events(JSON.join([frame, frame])) == [event, event]


def test_the_keys_of_a_missing_range_are_from_and_to() -> None:
    text = json.loads(JSON.event(EVENTS[2]))  # type: ignore[arg-type]
    assert text["missing"] == {
        "from": {"history": "h", "epoch": 1, "seq": 2},
        "to": {"history": "h", "epoch": 1, "seq": 9},
    }


def test_a_plain_message_has_the_keys_that_differ_from_the_default() -> None:
    assert json.loads(JSON.delivery(delivery())) == {
        "op": "message",
        "subject": "/a/b",
        "type": "UPDATE",
        "epoch": 1,
        "seq": 2,
        "content": "x",
    }


def test_a_full_message_has_all_keys() -> None:
    message = delivery(
        content=b"\x00\xff",
        text=False,
        fields={"bid": "1"},
        closure="c",
        retained=False,
        qos=Qos.STANDARD,
        compressed=True,
        reply_subject="/r/1",
    )
    full = Delivery(message.entry, MessageType.RECOVERED, "/a/*", Position(1, 1))
    assert json.loads(JSON.delivery(full)) == {
        "op": "message",
        "subject": "/a/b",
        "type": "RECOVERED",
        "epoch": 1,
        "seq": 2,
        "content_base64": "AP8=",
        "fields": {"bid": "1"},
        "closure": "c",
        "retained": False,
        "qos": "STANDARD",
        "compressed": True,
        "reply_subject": "/r/1",
        "match": "/a/*",
        "prev": [1, 1],
    }


def test_a_delivery_is_encoded_once() -> None:
    message = delivery()
    assert JSON.delivery(message) is JSON.delivery(message)


def test_a_ping_goes_back_as_it_came() -> None:
    (ping,) = JSON.commands(b'{"op":"ping","t":{"a":[1, 2.50]}}')
    assert isinstance(ping, Ping)
    assert JSON.event(Pong(t=ping.t)) == b'{"op":"pong","t":{"a":[1, 2.50]}}'
    (bare,) = JSON.commands(JsonClient().command(Ping()))
    assert isinstance(bare, Ping)
    assert JSON.event(Pong(t=bare.t)) == b'{"op":"pong","t":null}'


MALFORMED = [
    ('{"op":"publishes","id":4}', "unknown-op", "publish", 4),
    ('{"op":"explode"}', "unknown-op", '"subscribe"', None),
    ('{"id":"x"}', "missing-key", "`op`", "x"),
    ("[7]", "wrong-type", "object", None),
    ('{"op":7,"id":"x"}', "wrong-type", "`op`", "x"),
    ('{"op":null,"id":null}', "wrong-type", "`op`", None),
    ('{"op":"ping","id":[]}', "wrong-type", "`id`", None),
    ('{"op":"ping","id":99999999999999999999}', "invalid-value", "`id`", None),
    ('{"op":"subscribe","id":1}', "missing-key", "`subjects`", 1),
    ('{"op":"subscribe","subjects":"/a/b"}', "wrong-type", "list", None),
    ('{"op":"subscribe","subjects":["/a/b",7]}', "wrong-type", "list", None),
    ('{"op":"subscribe","subjects":[],"history":-1}', "invalid-value", "0 or more", None),
    (
        '{"op":"subscribe","subjects":[],"positions":{"/a":{"epoch":1}}}',
        "invalid-value",
        "history",
        None,
    ),
    ('{"op":"publish","content":"x","id":1}', "missing-key", "`subject`", 1),
    ('{"op":"publish","subject":"/a/b","id":1}', "missing-key", "`content`", 1),
    (
        '{"op":"publish","subject":"/a/b","content":"x","content_base64":"eA=="}',
        "invalid-value",
        "not both",
        None,
    ),
    ('{"op":"publish","subject":"/a/b","content_base64":"?"}', "invalid-value", "base64", None),
    (
        '{"op":"publish","subject":"/a/b","content":"x","qos":"BEST"}',
        "invalid-value",
        "STANDARD",
        None,
    ),
    ('{"op":"publish","subject":"/a/b","content":"x","retained":1}', "wrong-type", "true", None),
    ('{"op":"publish","subject":"/a/b","content":"x","number":0}', "invalid-value", "1 or", None),
    ('{"op":"token"}', "missing-key", "`token`", None),
]


@pytest.mark.parametrize(("text", "code", "part", "id_"), MALFORMED)
def test_a_bad_command_is_answered_alone(text: str, code: str, part: str, id_: object) -> None:
    bad = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
    batch = f'[{{"op":"ping"}}, {bad}, {{"op":"unsubscribe","subjects":[]}}]'.encode()
    first, malformed, last = JSON.commands(batch)
    assert isinstance(first, Ping)
    assert isinstance(last, Unsubscribe)
    assert isinstance(malformed, Malformed)
    assert (malformed.code, malformed.id) == (code, id_)
    assert part in malformed.reason
    assert malformed.reason.endswith(".")
    assert JSON.commands(text.encode()) == [malformed]


@pytest.mark.parametrize(
    ("message", "part"),
    [
        (b"", "well-formed"),
        (b"{", "well-formed"),
        (b"[1,", "well-formed"),
        (b'{"op":"ping"} x', "well-formed"),
        (b'{"op":"ping"} x'[:-1] + b"{}", "well-formed"),
        (b"3", "an object or an array"),
        (b' "ping"', "an object or an array"),
        (b"null", "an object or an array"),
        (b"[" * 100_000, "nested"),
        (b'[{"op":"x"},' + b"[" * 100_000, "nested"),
        (b'{"op":"ping","t":' + b"[" * 100_000, "nested"),
        (b'{"op":"ping","t":"\xff"}', "UTF-8"),
        (b'[{"op":"no"},{"op":"ping","t":"\xff"}]', "UTF-8"),
        (b'{"op":"token","token":"\xff"}', "UTF-8"),
        (b'{"op":"token","token":"\\ud800"}', "well-formed"),
        (b'{"op":"token","token":"\\ud800 and more text"}', "well-formed"),
        (b"\xef\xbb\xbf{}", "well-formed"),
    ],
)
def test_what_is_not_json_ends_the_session(message: bytes, part: str) -> None:
    with pytest.raises(RemoteProtocolError, match=part) as caught:
        JSON.commands(message)
    assert caught.value.code == 4100


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_understood_or_a_protocol_error(message: bytes) -> None:
    for understand in (JSON.commands, JsonClient().events):
        with suppress(RemoteProtocolError):
            assert isinstance(understand(message), list)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
KEYS = st.sampled_from(
    [name for command in COMMANDS for name in command.__struct_fields__] + ["op", "t"]
)
OPS = st.sampled_from(["connect", "subscribe", "unsubscribe", "publish", "token", "ping"])


@given(OPS, st.dictionaries(KEYS, ANYTHING))
def test_any_object_is_a_command_or_malformed(op: str, keys: dict[str, Any]) -> None:
    (value,) = JSON.commands(json.dumps({"op": op} | keys).encode())
    if isinstance(value, Malformed):
        assert value.code in ("unknown-op", "missing-key", "wrong-type", "invalid-value")
        assert value.reason.endswith(".")
    else:
        assert value.__struct_config__.tag == op


@given(
    st.text(),
    st.text(min_size=1),
    st.dictionaries(st.text(), st.text(), min_size=1),
    st.sampled_from(MessageType),
    st.booleans(),
)
def test_messages_round_trip(
    content: str, closure: str, fields: dict[str, str], kind: MessageType, text: bool
) -> None:
    publication = Publication("/a/b", content.encode(), text=text, fields=fields, closure=closure)
    (event,) = JsonClient().events(JSON.delivery(Delivery(Entry(3, 4, publication), kind)))
    assert isinstance(event, MessageEvent)
    assert (event.fields, event.closure, event.type) == (fields, closure, kind)
    assert (event.content, event.content_base64) == (
        (content, None) if text else (None, content.encode())
    )


def test_a_client_leaves_out_events_that_it_does_not_know() -> None:
    assert JsonClient().events(b'[{"op":"weather","t":1},{"op":"pong","t":null}]') != []
    assert JsonClient().events(b'{"op":"weather"}') == []


@pytest.mark.parametrize(
    "message",
    [
        b"7",
        b"{",
        b'{"op":"error"}',
        b'[{"op":"reset","history":3}]',
        b"[[]]",
        b'{"op":"message","subject":"/a/b","type":"UPDATE","epoch":1,"seq":1}',
    ],
)
def test_a_client_takes_no_malformed_event(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        JsonClient().events(message)


def test_values_of_other_types_are_not_coerced() -> None:
    (value,) = JSON.commands(msgspec.json.encode({"op": "token", "token": 5}))
    assert isinstance(value, Malformed)


def test_only_so_many_mistakes_of_a_message_are_explained() -> None:
    assert len(JSON.commands(b"[" + b",".join([b"7"] * 100) + b"]")) == 100
    with pytest.raises(RemoteProtocolError, match="More than 100 commands"):
        JSON.commands(b"[" + b",".join([b"7"] * 101) + b"]")


def test_one_command_or_batch_a_line() -> None:
    body = b'{"op":"ping"}\n\n [{"op":"ping"},{"op":"x"}]\r\n7'
    with pytest.raises(RemoteProtocolError, match="an object or an array"):
        JSON.lines(body)
    assert [type(one) for one in JSON.lines(body[:-1])] == [Ping, Ping, Malformed]
    assert len(JSON.lines(b"{}\n" * 100)) == 100
    with pytest.raises(RemoteProtocolError, match="More than 100 commands"):
        JSON.lines(b"{}\n" * 101)


def test_every_key_of_every_command_says_what_it_must_be() -> None:
    keys = {name for kind in reading.OPS.values() for name in kind.__struct_fields__}
    assert keys | {"op"} == reading.EXPECTED.keys()
    for kind in reading.OPS.values():
        for key in set(kind.__struct_fields__) - {"t"}:
            wrong = json.dumps({"op": kind.__struct_config__.tag, key: [[{}]]})
            (malformed,) = JSON.commands(wrong.encode())
            assert isinstance(malformed, Malformed)
