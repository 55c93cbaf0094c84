"""Socket.IO: a packet in each WebSocket message."""

import pytest

from mdserver.bench.adapters.socketio import SocketIo
from mdserver.core.events import Error
from mdserver.errors import RemoteProtocolError


def test_what_opens_the_transport_says_nothing() -> None:
    assert SocketIo().events(b'0{"sid":"s","pingInterval":25000}') == []


def test_the_end_of_the_namespace_is_an_error() -> None:
    (event,) = SocketIo().events(b"41")
    assert event == Error("Socket.IO", "the namespace was closed")


@pytest.mark.parametrize("packet", [b'42["other","x"]', b'42["message","x","y"]'])
def test_another_event_than_a_message_is_not_expected(packet: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="is not expected"):
        SocketIo().events(packet)
