import pytest
import wsproto.frame_protocol as rfc6455
from hypothesis import given
from hypothesis import strategies as st

from mdserver.bench import wire
from mdserver.errors import RemoteProtocolError


def answer(upgrade: wire.Upgrade, status: bytes = b"101 Switching Protocols") -> bytes:
    accept = upgrade._accept
    return b"HTTP/1.1 " + status + b"\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"


def test_the_rest_after_an_upgrade_is_given_back_once_the_head_is_complete() -> None:
    upgrade = wire.Upgrade("127.0.0.1:1", "mdserver.v1")
    whole = answer(upgrade)
    assert upgrade.rest(whole[:-1]) is None
    assert upgrade.rest(whole) == b""
    assert upgrade.rest(whole + b"more") == b"more"


@pytest.mark.parametrize("status", [b"503 Service Unavailable", b"200 OK"])
def test_another_answer_than_an_upgrade_is_an_error(status: bytes) -> None:
    upgrade = wire.Upgrade("127.0.0.1:1", "mdserver.v1")
    with pytest.raises(RemoteProtocolError, match=status.decode()):
        upgrade.rest(answer(upgrade, status))


def test_an_upgrade_for_another_key_is_an_error() -> None:
    ours, other = (wire.Upgrade("127.0.0.1:1", "mdserver.v1") for _ in range(2))
    with pytest.raises(RemoteProtocolError, match="key"):
        ours.rest(answer(other))


@given(st.binary(max_size=70_000), st.binary(min_size=4, max_size=4))
def test_wsproto_reads_a_masked_frame(payload: bytes, key: bytes) -> None:
    protocol = rfc6455.FrameProtocol(client=False, extensions=[])
    protocol.receive_bytes(wire.masked(payload, wire.OPCODE_BINARY, key))
    (frame,) = protocol.received_frames()
    assert frame.opcode == wire.OPCODE_BINARY
    assert bytes(frame.payload) == payload


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(min_value=0))
def test_server_frames_split_the_same_wherever_a_read_ends(payloads: list[bytes], cut: int) -> None:
    whole = b"".join([wire.server_frame(payload, wire.OPCODE_TEXT) for payload in payloads])
    cut %= len(whole) + 1
    first, rest = wire.split(whole[:cut])
    second, rest = wire.split(rest + whole[cut:])
    assert [payload for _, payload in first + second] == payloads
    assert rest == b""


@pytest.mark.parametrize("length", [125, 126, 65_535, 65_536])
def test_every_form_of_a_length(length: int) -> None:
    payload = bytes(length)
    assert wire.split(wire.server_frame(payload, wire.OPCODE_BINARY)) == (
        [(wire.OPCODE_BINARY, payload)],
        b"",
    )


@pytest.mark.parametrize("frame", [b"\x01\x00", b"\xc1\x00", b"\x81\x80"])
def test_fragments_reserved_bits_and_masks_of_a_server_are_errors(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.split(frame)
