"""NATS: lines and payloads in a stream of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from mdserver.bench import wire
from mdserver.bench.adapters.nats import Nats
from mdserver.bench.verify import ReceivedStream, Verifier, content
from mdserver.core.events import Pong

MESSAGES = b"".join(f"MSG bench.a 1 20\r\n{content(number, 20)}\r\n".encode() for number in (1, 2))


@given(cut=st.integers(0, len(MESSAGES)))
def test_a_message_may_be_cut_anywhere(cut: int) -> None:
    """The bytes of the second subscriber must not be taken for those of a whole message."""
    verifier = Verifier(20)
    for number in (1, 2):
        stream = ReceivedStream(number, Nats(), lambda _: None)
        for part in (MESSAGES[:cut], MESSAGES[cut:]):
            verifier.received(stream, wire.server_frame(part, wire.OPCODE_BINARY))
        assert stream.position == 2
    assert (verifier.lost, verifier.repeated, verifier.altered) == (0, 0, 0)


def test_what_follows_a_message_is_read_as_well() -> None:
    events = Nats().events(MESSAGES + b"+OK\r\nPONG\r\n")
    assert len(events) == 3
    assert isinstance(events[2], Pong)
