"""Socket.IO 4 over WebSocket, without its own long polling before.

See https://socket.io/docs/v4/socket-io-protocol/. Rooms are up to the application of a server, so
that one has to handle three events, of which the first and the last are acknowledged:

    subscribe SUBJECT             join the room
    publish SUBJECT CONTENT       emit "message" with CONTENT to the room
    fence                         nothing but the acknowledgement
"""

import msgspec

from mdserver.bench.adapters.adapter import CONNECTED, PONG, AdapterCodec
from mdserver.bench.adapters.delivered import delivered
from mdserver.core.events import Error, MessageEvent, WireEvent
from mdserver.errors import RemoteProtocolError

_FENCE_ID = "1"
_decode = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode


class SocketIo(AdapterCodec):
    """A client of Socket.IO; a packet is a WebSocket message."""

    def connect(self, token: str | None) -> bytes:
        """Join the namespace `/`."""
        return b"40" + (b"" if token is None else msgspec.json.encode({"token": token}))

    def subscribe(self, subject: str) -> bytes:
        """Emit `subscribe`."""
        return b"42" + msgspec.json.encode(["subscribe", subject])

    def publish(self, subject: str, content: str) -> bytes:
        """Emit `publish`."""
        return b"42" + msgspec.json.encode(["publish", subject, content])

    def ping(self) -> bytes:
        """Emit `fence`, to be acknowledged."""
        return f"42{_FENCE_ID}".encode() + b'["fence"]'

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode one packet of Engine.IO, and of Socket.IO in it."""
        match data[:2]:
            case b"42":
                name, *arguments = _decode(data[2:])
                if _text(name) != "message" or len(arguments) != 1:
                    raise RemoteProtocolError(f"Socket.IO: the event {data[:40]!r} is not expected")
                return [delivered("", _text(arguments[0]))]
            case b"43":
                return [PONG]
            case b"40":
                return [CONNECTED]
            case b"41" | b"44":
                return [
                    Error(
                        "Socket.IO", data[2:].decode(errors="replace") or "the namespace was closed"
                    )
                ]
            case b"2":
                self.answers.append(b"3")
                return []
        if data[:1] == b"0":  # Engine.IO is open
            return []
        raise RemoteProtocolError(f"Socket.IO: {data[:40]!r} is not understood")
