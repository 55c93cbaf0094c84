"""Server-sent events and HTTP streams as bytes."""

import base64

import msgspec
import pytest

from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.http import RequestRefusedError
from mdserver.codec.streaming import (
    END,
    FRAMES_TYPE,
    NDJSON_TYPE,
    EventStreamForm,
    SseForm,
    StreamForm,
    chunk,
    event_id,
    read_event_id,
)
from mdserver.core.commands import PositionAfter
from mdserver.core.events import Connected, Delivery, Mark, Pong, Reset, StreamClosed, WireEvent
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.core.subjects import group_of
from mdserver.errors import LocalProtocolError
from mdserver.limits import SSE_PLACES_MAX, SSE_POSITIONS_MAX

PONG = Pong(t=msgspec.Raw(b"null"))
CONNECTED = Connected(
    session="s", member="m", version=1, history="h1", groups=1, keepalive_ms=1, message_bytes_max=1
)


def update(
    subject: str,
    seq: int,
    content: str = "x",
    place: int = 0,
    kind: MessageType = MessageType.UPDATE,
) -> Delivery:
    entry = Entry(1 if seq else 0, seq, Publication(subject, content.encode()), place)
    return Delivery(entry, kind)


def unchunked(wire: bytes) -> bytes:
    """The content of chunks, the last one included."""
    content = b""
    while wire:
        size, _, wire = wire.partition(b"\r\n")
        length = int(size, 16)
        content += wire[:length]
        assert wire[length : length + 2] == b"\r\n"
        wire = wire[length + 2 :]
    return content


def fields(event: bytes) -> dict[str, str]:
    """An event of the HTML standard, section 9.2.6."""
    assert event.endswith(b"\n\n")
    return dict(line.split(": ", 1) for line in event[:-2].decode().split("\n"))


def test_a_stream_of_json_has_one_event_a_line() -> None:
    form = StreamForm(NDJSON_TYPE, "/stream/secret")
    frames = [form.event(CONNECTED), form.delivery(update("/a/b", 1, "two\nlines"))]
    lines = unchunked(form.wire(frames)).split(b"\n")
    assert lines.pop() == b""
    connected, message = (msgspec.json.decode(line) for line in lines)
    assert connected["path"] == "/stream/secret"
    assert message["content"] == "two\nlines"
    assert unchunked(form.alive()) == b"\n"


def test_a_stream_of_frames_is_read_by_a_client() -> None:
    form = StreamForm(FRAMES_TYPE, "/stream/secret")
    delivery = update("/a/b", 1)
    message = form.delivery(delivery)
    wire = form.wire([form.event(CONNECTED), form.alias_frame(delivery.alias), message])
    connected, event = BinaryClient().stream(unchunked(wire) + unchunked(form.alive()))
    assert isinstance(connected, Connected)
    assert connected.path == "/stream/secret"
    assert event.subject == "/a/b"  # type: ignore[union-attr]


def test_a_stream_may_be_server_sent_events() -> None:
    form = EventStreamForm(NDJSON_TYPE, "/stream/secret")
    frames = [form.event(CONNECTED), form.delivery(update("/a/b", 1, "two\nlines"))]
    connected, message, rest = unchunked(form.wire(frames)).split(b"\n\n")
    assert rest == b""
    assert msgspec.json.decode(fields(connected + b"\n\n")["data"])["path"] == "/stream/secret"
    assert msgspec.json.decode(fields(message + b"\n\n")["data"])["content"] == "two\nlines"
    assert unchunked(form.alive()).startswith(b":")


def test_frames_in_server_sent_events_are_base64() -> None:
    form = EventStreamForm(FRAMES_TYPE, "/stream/secret")
    delivery = update("/a/b", 1)
    message = form.delivery(delivery)
    wire = form.wire([form.event(CONNECTED), form.alias_frame(delivery.alias), message])
    data = base64.b64decode(fields(unchunked(wire))["data"])
    connected, event = BinaryClient().stream(data)
    assert isinstance(connected, Connected)
    assert event.subject == "/a/b"  # type: ignore[union-attr]


@pytest.mark.parametrize("media_type", [NDJSON_TYPE, FRAMES_TYPE])
def test_a_stream_ends_with_closed_and_the_last_chunk(media_type: str) -> None:
    form = StreamForm(media_type, "/p")
    goodbye = form.goodbye(4003, "The server shuts down.")
    assert goodbye.endswith(END)
    content = unchunked(goodbye)
    expected = StreamClosed(code=4003, reason="The server shuts down.")
    if media_type == NDJSON_TYPE:
        assert msgspec.json.decode(content, type=StreamClosed) == expected
    else:
        assert BinaryClient().stream(content) == [expected]


def sent(form: SseForm, event: Delivery | WireEvent) -> dict[str, str]:
    frame = form.delivery(event) if isinstance(event, Delivery) else form.event(event)
    return fields(unchunked(form.wire([frame])))


def sent_mark(form: SseForm, places: list[int] | None, *, ordered: bool) -> dict[str, str]:
    return fields(unchunked(form.wire([form.mark(Mark(places, ordered))])))


def known(event: dict[str, str]) -> dict[str, PositionAfter]:
    return read_event_id(event["id"]).after()


def test_an_sse_id_holds_the_positions_of_all_subjects() -> None:
    form = SseForm()
    assert sent(form, CONNECTED)["event"] == "connected"
    sent(form, update("/a/b", 1))
    sent(form, update("/a/c", 5))
    event = sent(form, update("/a/b", 2))
    assert event["event"] == "message"
    assert msgspec.json.decode(event["data"])["seq"] == 2
    assert known(event) == {
        "/a/c": PositionAfter("h1", 1, 5),
        "/a/b": PositionAfter("h1", 1, 2),
    }


def test_a_message_without_a_place_leaves_the_id() -> None:
    form = SseForm()
    assert "id" not in sent(form, update("/a/b", 0))


def test_an_id_says_nothing_of_what_still_waits() -> None:
    form = SseForm()
    sent(form, CONNECTED)
    first, second = form.delivery(update("/a/b", 1)), form.delivery(update("/a/b", 2))
    reset = form.event(Reset(history="h2", subjects=["/a/b"]))
    assert known(fields(unchunked(form.wire([first])))) == {"/a/b": PositionAfter("h1", 1, 1)}
    *_, last = unchunked(form.wire([second, reset, first])).split(b"\n\n")[:-1]
    assert known(fields(last + b"\n\n")) == {"/a/b": PositionAfter("h2", 1, 1)}


def test_the_id_is_bounded_and_keeps_the_newest_and_what_was_named() -> None:
    form = SseForm(["/named/one", "/a/*"])
    sent(form, CONNECTED)
    assert known(sent(form, PONG)) == {"/named/one": PositionAfter("h1", 0, 0)}
    sent(form, update("/named/one", 1))
    for number in range(SSE_POSITIONS_MAX + 3):
        event = sent(form, update(f"/a/{number}", 1))
    names = known(event)
    assert len(names) == SSE_POSITIONS_MAX + 1
    assert "/named/one" in names
    assert "/a/2" not in names
    assert "/a/3" in names
    for number in range(SSE_POSITIONS_MAX):
        event = sent(form, update(f"/a/{number}/" + "x" * 900, 1))
    assert "/named/one" in known(event)
    assert f"/a/{number}/" + "x" * 900 in known(event)
    assert len(event["id"]) < 8_000


def test_an_ordered_mark_has_ids_name_places() -> None:
    form = SseForm(["/named/one", "/a/*"])
    sent(form, CONNECTED)
    sent(form, update("/a/b", 1))
    started = read_event_id(sent_mark(form, [7, 9], ordered=True)["id"])
    assert (started.positions, started.places) == ({}, [7, 9])
    group = group_of("/a/c", 2)
    live = read_event_id(sent(form, update("/a/c", 4, place=30))["id"])
    assert live.positions == {}
    assert (live.places or [])[group] == 30
    assert (live.places or [])[1 - group] == [7, 9][1 - group]
    assert known(sent(form, update("/named/one", 3, place=31))) == {
        "/named/one": PositionAfter("h1", 1, 3)
    }


@pytest.mark.parametrize("how", ["told", "conflated", "recovered"])
def test_out_of_order_an_id_names_the_last_mark_and_positions(how: str) -> None:
    form = SseForm(["/a/*"])
    sent(form, CONNECTED)
    sent_mark(form, [7], ordered=True)
    sent(form, update("/a/b", 1, place=8))
    kind = MessageType.RECOVERED if how == "recovered" else MessageType.UPDATE
    if how == "told":
        told = read_event_id(sent_mark(form, None, ordered=False)["id"])
        assert (told.positions, told.places) == ({}, [8])
    elif how == "conflated":
        form.conflated()
    event = read_event_id(sent(form, update("/a/c", 1, place=12, kind=kind))["id"])
    assert (event.positions, event.places) == ({"/a/c": (1, 1)}, [8])
    event = read_event_id(sent_mark(form, [12], ordered=False)["id"])
    assert (event.positions, event.places) == ({}, [12])
    event = read_event_id(sent(form, update("/a/c", 2, place=13))["id"])
    assert (event.positions, event.places) == ({"/a/c": (1, 2)}, [12])


def test_places_of_too_many_groups_are_not_named() -> None:
    form = SseForm(["/a/*"])
    sent(form, CONNECTED)
    sent_mark(form, [1] * (SSE_PLACES_MAX + 1), ordered=True)
    event = read_event_id(sent(form, update("/a/c", 1, place=12))["id"])
    assert (event.positions, event.places) == ({"/a/c": (1, 1)}, None)


def test_a_session_that_goes_on_keeps_what_it_came_with() -> None:
    before = SseForm(["/a/b", "/c/*"])
    for event in (CONNECTED, PONG, update("/a/b", 3)):
        sent(before, event)
    sent_mark(before, [5], ordered=True)
    last = sent(before, update("/c/d", 4, place=6))
    for history in ("h1", "h2"):
        form = SseForm(["/a/b", "/c/*"], read_event_id(last["id"]))
        sent(form, msgspec.structs.replace(CONNECTED, history=history))
        event = sent(form, update("/c/e", 1, place=9))
        assert known(event)["/a/b"].seq == (3 if history == "h1" else 0)
        assert known(event)["/c/e"] == PositionAfter(history, 1, 1)
        assert read_event_id(event["id"]).places == ([6] if history == "h1" else None)


def test_an_id_of_an_earlier_version_is_read() -> None:
    old = msgspec.msgpack.encode(["h1", {"/a/b": (1, 2), "/a/*": (0, 0)}])
    told = read_event_id(base64.urlsafe_b64encode(old).decode())
    assert (told.positions, told.places) == ({"/a/b": (1, 2), "/a/*": (0, 0)}, None)


def test_a_reset_forgets_the_positions() -> None:
    form = SseForm()
    sent(form, CONNECTED)
    sent(form, update("/a/b", 9))
    sent(form, Reset(history="h2", subjects=["/a/b"]))
    assert known(sent(form, update("/a/c", 1))) == {"/a/c": PositionAfter("h2", 1, 1)}


def test_the_end_of_server_sent_events() -> None:
    form = SseForm()
    assert fields(unchunked(form.goodbye(4001, "slow")))["event"] == "closed"
    assert unchunked(form.alive()) == b":\n\n"
    events = [form.event(CONNECTED), form.event(CONNECTED)]
    assert unchunked(form.wire(events)) == b"".join(event + b"\n" for event in events)
    with pytest.raises(LocalProtocolError):
        form.alias_frame(1)


@pytest.mark.parametrize("wrong", ["", "x", "====", "ü", event_id("h", {}).decode()[:-4] + "AAAA"])
def test_an_id_of_nobody_is_refused(wrong: str) -> None:
    with pytest.raises(RequestRefusedError, match="Last-Event-ID"):
        read_event_id(wrong)


def test_chunks_say_their_length() -> None:
    assert chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
