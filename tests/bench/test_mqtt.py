"""MQTT: packets in a stream of bytes, for which WebSocket messages are only envelopes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.bench import wire
from mdserver.bench.adapters.mqtt import Mqtt
from mdserver.bench.verify import ReceivedStream, Verifier, content
from mdserver.core.events import MessageEvent
from mdserver.errors import RemoteProtocolError


@given(size=st.sampled_from([12, 100, 127, 128, 200, 16_000, 17_000]))
def test_a_packet_of_any_length_is_read_as_it_was_written(size: int) -> None:
    packet = Mqtt().publish("/a", content(3, size))
    (message,) = Mqtt().events(packet)
    assert isinstance(message, MessageEvent)
    assert (message.subject, message.seq, message.content) == ("a", 3, content(3, size))


@given(cut=st.integers(0, 310))
def test_a_packet_may_be_cut_anywhere(cut: int) -> None:
    """The bytes of the second subscriber must not be taken for those of a whole message."""
    whole = b"".join(Mqtt().publish("/bench/a", content(number, 140)) for number in (1, 2))
    verifier = Verifier(140)
    for number in (1, 2):
        stream = ReceivedStream(number, Mqtt(), lambda _: None)
        for part in (whole[:cut], whole[cut:]):
            verifier.received(stream, wire.server_frame(part, wire.OPCODE_BINARY))
        assert stream.position == 2
    assert (verifier.lost, verifier.repeated, verifier.altered) == (0, 0, 0)


def test_a_length_without_an_end_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError, match="has no end"):
        Mqtt().events(b"\x30\xff\xff\xff\xff\x01")
