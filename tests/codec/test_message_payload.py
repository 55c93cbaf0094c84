"""The payload of a MESSAGE frame: everything comes back; what is none is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.codec.aliases import Lookup
from mdserver.codec.message_payload import message_payload, read_message_payload
from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType, Position, Publication, Qos
from mdserver.errors import RemoteProtocolError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
POSITIONS = st.builds(Position, st.integers(1, 2**40), st.integers(1, 2**40))


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    qos = draw(st.sampled_from(Qos))
    text = draw(st.booleans())
    publication = Publication(
        "/" + draw(TEXT),
        draw(TEXT).encode() if text else draw(st.binary(max_size=20)),
        text,
        draw(st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=4)),
        draw(st.none() | TEXT),
        draw(st.booleans()),
        qos,
        draw(st.booleans()),
        draw(st.none() | TEXT),
    )
    at = Position(0, 0) if qos is Qos.STANDARD else draw(POSITIONS)
    entry = Entry(at.epoch, at.seq, publication)
    match, prev = draw(st.none() | TEXT), draw(st.none() | POSITIONS)
    return Delivery(entry, draw(st.sampled_from(MessageType)), match, prev)


def unknown(number: int) -> object:
    raise RemoteProtocolError(f"no alias {number}")


LOOKUP: Lookup = unknown  # type: ignore[assignment]


@given(deliveries())
def test_every_property_comes_back(delivery: Delivery) -> None:
    event = read_message_payload(message_payload(delivery, None), LOOKUP)
    entry, publication = delivery.entry, delivery.entry.publication
    content = event.content.encode() if event.content is not None else event.content_base64
    assert (event.subject, event.type, event.epoch, event.seq, content) == (
        publication.subject,
        delivery.type,
        entry.epoch,
        entry.seq,
        publication.content,
    )
    assert (event.content is not None) is publication.text
    assert (event.fields, event.qos, event.retained, event.closure) == (
        publication.fields,
        publication.qos,
        publication.retained,
        publication.closure,
    )
    assert (event.reply_subject, event.compressed, event.match, event.prev) == (
        publication.reply_subject,
        publication.compressed,
        delivery.match,
        delivery.prev,
    )


@given(deliveries(), st.data())
def test_a_payload_that_is_cut_off_or_spoilt_is_refused_or_read_but_never_an_error(
    delivery: Delivery, data: st.DataObject
) -> None:
    payload = bytearray(message_payload(delivery, None))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    for spoilt in (bytes(payload), bytes(payload[:at])):
        with suppress(RemoteProtocolError):
            event = read_message_payload(spoilt, LOOKUP)
            assert isinstance(event.subject, str)


@pytest.mark.parametrize("flags", [b"\x80\x20", b"\xff\x7f"])
def test_a_flag_of_a_later_version_is_refused_by_its_name(flags: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="version 1 has none of these"):
        read_message_payload(flags + b"\x00" * 20, LOOKUP)
