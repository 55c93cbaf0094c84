"""NATS over WebSocket: lines of text, a length before each payload.

Its client protocol: https://docs.nats.io/reference/reference-protocols/nats-protocol. Subjects have
dots for slashes.
"""

import msgspec

from mdserver.bench.adapters.adapter import CONNECTED, PONG, AdapterCodec
from mdserver.bench.adapters.delivered import delivered
from mdserver.core.events import Error, MessageEvent, WireEvent
from mdserver.errors import RemoteProtocolError

_SUBSCRIPTION = 1
_END = b"\r\n"


class Nats(AdapterCodec):
    """A client of NATS."""

    text = False
    greets = False  # its server speaks first, and says nothing to CONNECT

    def connect(self, token: str | None) -> bytes:
        """Ask for no acknowledgement of each message, and none of its own back."""
        options: dict[str, object] = {
            "verbose": False,
            "pedantic": False,
            "echo": False,
            "protocol": 1,
        }
        if token is not None:
            options["auth_token"] = token
        return b"CONNECT " + msgspec.json.encode(options) + _END

    def subscribe(self, subject: str) -> bytes:
        """Subscribe, always under the same number: a client has one subscription."""
        return f"SUB {_dotted(subject)} {_SUBSCRIPTION}\r\n".encode()

    def publish(self, subject: str, content: str) -> bytes:
        """Publish without an acknowledgement."""
        payload = content.encode()
        return f"PUB {_dotted(subject)} {len(payload)}\r\n".encode() + payload + _END

    def ping(self) -> bytes:
        """Return a ping."""
        return b"PING\r\n"

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode all protocol messages of one WebSocket message."""
        events: list[WireEvent | MessageEvent] = []
        data, self.rest = self.rest + data, b""
        at = 0
        while at < len(data):
            begin, end = at, data.find(_END, at)
            if end < 0:
                self.rest = data[begin:]
                break
            name, _, rest = data[at:end].partition(b" ")
            at = end + 2
            match name.upper():
                case b"MSG":
                    size = int(rest.rpartition(b" ")[2])
                    if len(data) < at + size + 2:
                        self.rest = data[begin:]
                        break
                    subject = rest.partition(b" ")[0].decode(errors="replace")
                    events.append(delivered(subject, data[at : at + size].decode(errors="replace")))
                    at += size + 2
                case b"PING":
                    self.answers.append(b"PONG\r\n")
                case b"PONG":
                    events.append(PONG)
                case b"INFO":
                    events.append(CONNECTED)
                case b"-ERR":
                    events.append(Error("NATS", rest.decode(errors="replace")))
                case b"+OK":
                    pass
                case _:
                    raise RemoteProtocolError(f"NATS: {data[begin:end][:40]!r} is not understood")
        return events


def _dotted(subject: str) -> str:
    return subject.strip("/").replace("/", ".")
