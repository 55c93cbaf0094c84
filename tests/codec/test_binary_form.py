"""The binary form: the same values as in JSON, messages that cost ten bytes, no way to crash."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.codec.binary_form import (
    ALIAS,
    BINARY,
    COMMAND,
    EVENT,
    MESSAGE,
    UPDATE_BYTES,
    UPDATE_TEXT,
    BinaryClient,
    BinaryCodec,
)
from mdserver.codec.encoding import message_event
from mdserver.codec.frames import SKIPPABLE, frame, varint
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

pack = msgspec.msgpack.encode

COMMANDS: list[Command] = [
    Connect(token="t", client="c/1", publisher="p", keepalive_ms=1000, id=1),
    Subscribe(subjects=["/a/b"], positions={"/a/b": PositionAfter("h", 1, 2**63 - 1)}, id="s"),
    Unsubscribe(subjects=["/a/b"]),
    Publish(subject="/a/b", content="é\U0001f600", fields={"bid": "1"}, number=7),
    Publish(subject="/a/b", content_base64=b"\x00\xff", qos=Qos.STANDARD, retained=False),
    RenewToken(token="t"),
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
    Status(
        status=StatusName.DATA_RESYNC,
        subject="/a/b",
        missing=MissingRange(WirePosition("h", 1, 2), WirePosition("h", 1, 9)),
    ),
    Reset(history="h2", subjects=["/a/b"]),
    Move(delay_ms=250, reason="drain"),
    Error(code="unknown-op", reason="There is no such command.", id="x"),
    StreamClosed(code=4000, reason="This member is drained."),
]


def delivery(
    seq: int = 2,
    epoch: int = 1,
    kind: MessageType = MessageType.UPDATE,
    match: str | None = None,
    prev: Position | None = None,
    **given: Any,
) -> Delivery:
    publication = Publication(**{"subject": "/a/b", "content": b"x", **given})
    return Delivery(Entry(epoch, seq, publication), kind, match, prev)


class Wire:
    """A server and one client; each sees of the other only bytes."""

    def __init__(self, aliases_max: int = 100) -> None:
        self.codec = BinaryCodec(aliases_max)
        self.known: set[int] = set()
        self.client = BinaryClient()

    def bytes_of(self, message: Delivery) -> list[bytes]:
        encoded = self.codec.delivery(message)
        if message.alias == 0 or message.alias in self.known:
            return [encoded]
        self.known.add(message.alias)
        return [self.codec.alias_frame(message.alias), encoded]

    def send(self, *messages: Delivery) -> list[Any]:
        frames = [piece for message in messages for piece in self.bytes_of(message)]
        return self.client.events(self.codec.join(frames))


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_a_command_comes_out_as_it_went_in(command: Command) -> None:
    assert BINARY.commands(BinaryClient().command(command)) == [command]  # type: ignore[arg-type]


def test_a_batch_keeps_its_order() -> None:
    client = BinaryClient()
    frames = [client.command(command) for command in COMMANDS]  # type: ignore[arg-type]
    assert BINARY.commands(client.join(frames)) == COMMANDS
    assert BINARY.commands(b"") == []


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_an_event_comes_out_as_it_went_in(event: Event) -> None:
    encoded = BINARY.event(event)  # type: ignore[arg-type]
    assert BinaryClient().events(encoded + encoded) == [event, event]


def test_a_ping_goes_back_as_it_came() -> None:
    t = pack({"at": [1, 2.5, b"\xff"]})
    (ping,) = BINARY.commands(BinaryClient().command(Ping(t=msgspec.Raw(t))))
    assert isinstance(ping, Ping)
    (pong,) = BinaryClient().events(BINARY.event(Pong(t=ping.t)))
    assert isinstance(pong, Pong)
    assert bytes(pong.t) == t


def test_a_ping_without_t_gets_nil() -> None:
    (ping,) = BINARY.commands(BinaryClient().command(Ping(id=1)))
    assert isinstance(ping, Ping)
    assert (bytes(ping.t), ping.id) == (pack(None), 1)


MESSAGES = [
    delivery(),
    delivery(content="é".encode()),
    delivery(content=b"\x00\xff", text=False),
    delivery(match="/a/*"),
    delivery(match="/a/*", fields={"bid": "1"}),
    delivery(fields={"bid": "1", "": ""}),
    delivery(closure="c"),
    delivery(retained=False, reply_subject="/r/1", compressed=True),
    delivery(epoch=0, seq=0, qos=Qos.STANDARD),
    delivery(kind=MessageType.SNAPSHOT),
    delivery(kind=MessageType.RECOVERED, match="/a/**", seq=2**40, epoch=2**33),
    delivery(kind=MessageType.HISTORICAL, content=b"", text=False),
    delivery(prev=Position(1, 1)),
    delivery(seq=2**40),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message_event(message)))
def test_a_message_comes_out_as_it_went_in(message: Delivery) -> None:
    fresh = Delivery(message.entry, message.type, message.match, message.prev)
    assert Wire().send(fresh) == [message_event(message)]


def test_all_messages_in_a_row() -> None:
    wire = Wire()
    for _ in range(2):
        fresh = [Delivery(one.entry, one.type, one.match, one.prev) for one in MESSAGES]
        assert wire.send(*fresh) == [message_event(one) for one in MESSAGES]


def test_a_message_is_encoded_once_for_all() -> None:
    codec = BinaryCodec()
    message = delivery()
    assert codec.delivery(message) is codec.delivery(message)


@pytest.mark.parametrize("aliases", [0, 127, 20_000, 999_990])
def test_a_plain_message_adds_at_most_ten_bytes(aliases: int) -> None:
    codec = BinaryCodec()
    codec._aliases._agreed = dict.fromkeys(map(str, range(aliases)))  # type: ignore[arg-type]
    for size in (0, 100, 128, 16_000, 65_536):
        content = b"x" * size
        for text in (True, False):
            for seq in (1, 2, 2**21, 2**21 + 1, 2**40):
                named = f"/{size}/{text}"
                message = delivery(subject=named, content=content, seq=seq, text=text)
                assert len(codec.delivery(message)) - size <= 10


def test_the_frame_of_a_message_is_what_the_document_says() -> None:
    wire = Wire()
    first, second = wire.bytes_of(delivery(seq=5)), wire.bytes_of(delivery(seq=6))
    assert first == [
        frame(ALIAS, b"\x00\x01\x05\x04/a/b"),
        frame(UPDATE_TEXT, b"\x00\x00x"),
    ]
    assert second == [b"\x04\x03\x00\x01x"]
    assert wire.bytes_of(delivery(seq=7, content=b"\xff", text=False)) == [
        bytes((UPDATE_BYTES, 3, 0, 2, 255))
    ]


def test_an_older_message_is_spelled_out() -> None:
    wire = Wire()
    wire.send(delivery(seq=5))
    assert wire.send(delivery(seq=4)) == [message_event(delivery(seq=4))]


def test_a_kept_frame_never_speaks_of_another_alias() -> None:
    """A message encoded before its alias was agreed anew is encoded anew when sent later."""
    wire = Wire(aliases_max=1)
    late = delivery(seq=5, epoch=1)
    assert wire.send(late, delivery(seq=6, epoch=2)) == [
        message_event(late),
        message_event(delivery(seq=6, epoch=2)),
    ]
    assert wire.send(late) == [message_event(late)]
    other = delivery(subject="/other/one")
    assert wire.send(other, late, other) == [message_event(one) for one in (other, late, other)]


@given(
    st.lists(
        st.builds(
            delivery,
            seq=st.integers(1, 2**23),
            epoch=st.integers(1, 3),
            kind=st.sampled_from(MessageType),
            match=st.sampled_from([None, "/**"]),
            prev=st.none() | st.builds(Position, st.integers(0, 5), st.integers(0, 2**40)),
            subject=st.sampled_from(["/a/a", "/b/b", "/c/c"]),
            content=st.text().map(str.encode),
            text=st.booleans(),
            fields=st.none() | st.dictionaries(st.text(), st.text(), min_size=1),
            closure=st.none() | st.text(),
            retained=st.booleans(),
            compressed=st.booleans(),
            reply_subject=st.none() | st.text(),
        )
    ),
    st.lists(st.integers(0, 50)),
)
def test_what_a_client_reads_is_what_was_delivered(
    messages: list[Delivery], again: list[int]
) -> None:
    wire = Wire(aliases_max=3)
    order = messages + [messages[index] for index in again if index < len(messages)]
    assert wire.send(*order) == [message_event(message) for message in order]


def test_a_stream_in_any_pieces() -> None:
    wire = Wire()
    stream = b"".join(piece for one in MESSAGES for piece in wire.bytes_of(one))
    stream += b"".join(BINARY.event(event) for event in EVENTS)  # type: ignore[arg-type]
    expected = BinaryClient().events(stream)
    assert len(expected) == len(MESSAGES) + len(EVENTS)
    for at in range(len(stream)):
        client = BinaryClient()
        assert client.stream(stream[:at]) + client.stream(stream[at:]) == expected
    for end in range(1, len(stream)):
        with suppress(RemoteProtocolError):
            assert len(BinaryClient().events(stream[:end])) < len(expected)


@pytest.mark.parametrize(
    ("keys", "code", "part", "id_"),
    [
        ({"op": "explode", "id": 4}, "unknown-op", "explode", 4),
        ({"id": "x"}, "missing-key", "`op`", "x"),
        ({"op": "publish", "subject": b"/a/b", "content": "x"}, "wrong-type", "`subject`", None),
        (
            {"op": "publish", "subject": "/a/b", "content_base64": "eA=="},
            "wrong-type",
            "bytes",
            None,
        ),
        ({"op": "publish", "subject": "/a/b"}, "missing-key", "`content`", None),
        ({"op": "subscribe", "subjects": ["/a/b"], "history": -1}, "invalid-value", "0", None),
        ({1: 2}, "wrong-type", "string keys", None),
        ([], "wrong-type", "object", None),
        (7, "wrong-type", "object", None),
    ],
)
def test_a_bad_command_is_answered_alone(keys: object, code: str, part: str, id_: object) -> None:
    good = BinaryClient().command(Unsubscribe(subjects=["/a/b"]))
    first, malformed, last = BINARY.commands(good + frame(COMMAND, pack(keys)) + good)
    assert first == last == Unsubscribe(subjects=["/a/b"])
    assert isinstance(malformed, Malformed)
    assert (malformed.code, malformed.id) == (code, id_)
    assert part in malformed.reason


PING = pack({"op": "ping"})


@pytest.mark.parametrize(
    ("message", "part"),
    [
        (b"\x01", "cut off"),
        (frame(COMMAND, PING)[:-1], "cut off"),
        (frame(COMMAND, b""), "well-formed MessagePack"),
        (frame(COMMAND, b"\xc1"), "well-formed MessagePack"),
        (frame(COMMAND, PING + b"\xc0"), "well-formed MessagePack"),
        (frame(COMMAND, b"\x81\xa2op\xa4\xff\xff\xff\xff"), "UTF-8"),
        (frame(COMMAND, b"\x82\xa2op\xa4ping\xa1t" + b"\x91" * 100_000), "nested"),
        (frame(COMMAND, b"\xdf\xff\xff\xff\xff"), "well-formed"),
        (frame(COMMAND, b"\xdd\xff\xff\xff\xff"), "object"),
        (frame(COMMAND, b"\x82\xa2op\xa9subscribe\xa8subjects\xdd\xff\xff\xff\xff"), "well-formed"),
        (frame(COMMAND, b"\x82\xa2op\xa4ping\xa1t\xc6\xff\xff\xff\xff"), "well-formed"),
        (frame(EVENT, PING), "no frame of type 2 here"),
        (b"\x01\xff\xff\xff\xff\x01", "more than 4 bytes"),
    ],
)
def test_what_is_no_frame_of_messagepack_ends_the_session(message: bytes, part: str) -> None:
    try:
        (value,) = BINARY.commands(message)
    except RemoteProtocolError as error:
        reason = error.reason
    else:
        assert isinstance(value, Malformed)
        reason = value.reason
    assert part in reason


def test_frames_of_later_versions_are_skipped() -> None:
    later = frame(0x20 | SKIPPABLE, b"?")
    assert BINARY.commands(later + frame(COMMAND, PING)) != []
    assert BINARY.commands(later) == []
    assert BinaryClient().events(later) == []
    assert BinaryClient().events(frame(EVENT, pack({"op": "weather"}))) == []


@pytest.mark.parametrize(
    "message",
    [
        frame(EVENT, pack({"op": "error"})),
        frame(EVENT, pack(7)),
        frame(EVENT, b"\xc1"),
        frame(COMMAND, PING),
        frame(UPDATE_TEXT, b""),
        frame(UPDATE_TEXT, b"\x00\x00x"),
        frame(ALIAS, b"\x00\x01\x05\x04/a/b") + frame(UPDATE_TEXT, b"\x00\x00\xff"),
        frame(MESSAGE, b""),
        frame(MESSAGE, varint(1 << 12)),
        frame(MESSAGE, varint(4) + b"\x05/a/b"),
        frame(MESSAGE, varint(4) + b"\x04/a/\xff\x01\x01"),
        frame(MESSAGE, varint(4 | 1 << 8) + b"\x04/a/b\x01\x01" + varint(2**32)),
        frame(MESSAGE, varint(4 | 1 << 8) + b"\x04/a/b\x01\x01\x05\x01a"),
        frame(MESSAGE, varint(4 | 1 << 6) + b"\x00\x01\x01x"),
    ],
    ids=bytes.hex,
)
def test_a_client_takes_no_malformed_event(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        BinaryClient().events(message)


PIECES = st.lists(
    st.binary(max_size=20)
    | st.builds(frame, st.integers(0, 8), st.binary(max_size=40))
    | st.sampled_from([PING, frame(COMMAND, PING), frame(ALIAS, b"\x00\x01\x05\x04/a/b")]),
    max_size=4,
).map(b"".join)


@given(PIECES)
def test_any_bytes_are_understood_or_a_protocol_error(message: bytes) -> None:
    for understand in (BINARY.commands, BinaryClient().events, BinaryClient().stream):
        with suppress(RemoteProtocolError):
            assert isinstance(understand(message), list)


@given(
    st.dictionaries(
        st.sampled_from(["op", "id", "subject", "subjects", "content", "fields", "positions", "t"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**64 - 1)
            | st.floats()
            | st.text()
            | st.binary()
            | st.sampled_from(["publish", "subscribe", "ping"]),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=6,
        ),
    )
)
def test_any_map_is_a_command_or_malformed(keys: dict[str, Any]) -> None:
    (value,) = BINARY.commands(frame(COMMAND, pack(keys)))
    assert isinstance(value, Malformed) or value.__struct_config__.tag == keys["op"]


def test_a_cut_off_frame_is_a_protocol_error_and_not_a_large_one() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        BINARY.commands(b"\x01\x05")
    assert caught.value.code == 4100


def test_a_client_reads_messages_beyond_the_default_limit() -> None:
    large = delivery(content=b"x" * 1_000_000)
    assert Wire().send(large) == [message_event(large)]


def test_only_so_many_mistakes_of_a_message_are_explained() -> None:
    bad = frame(COMMAND, pack({"op": "explode"}))
    assert len(BINARY.commands(bad * 100)) == 100
    with pytest.raises(RemoteProtocolError, match="More than 100 commands"):
        BINARY.commands(bad * 101)
