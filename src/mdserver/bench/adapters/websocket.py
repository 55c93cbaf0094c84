"""Plain WebSocket: a server that sends each text message to all its clients, or all others.

There are no subjects, so that only a fan-out makes sense.
"""

from collections.abc import Sequence

from mdserver.bench import wire
from mdserver.bench.adapters.adapter import MASK, AdapterCodec
from mdserver.bench.adapters.delivered import delivered
from mdserver.core.commands import Connect, Ping, Subscribe, WireCommand
from mdserver.core.events import MessageEvent, WireEvent


class PlainWebSocket(AdapterCodec):
    """A client without a protocol of its own above WebSocket."""

    greets = False

    def connect(self, token: str | None) -> bytes:  # noqa: ARG002 - the others have a use for it
        """Return nothing: who is connected may publish."""
        return b""

    def subscribe(self, subject: str) -> bytes:  # noqa: ARG002 - the others have a use for it
        """Return nothing: who is connected receives everything."""
        return b""

    def publish(self, subject: str, content: str) -> bytes:  # noqa: ARG002 - there are none here
        """Send the content."""
        return content.encode()

    def ping(self) -> bytes:
        """Return the payload of a ping, whose frame is a control frame."""
        return b""

    def wire(self, commands: Sequence[WireCommand]) -> bytes:
        """Return commands on the wire; a ping is one of WebSocket itself (RFC 6455, 5.5.2)."""
        frames = []
        for each in commands:
            if isinstance(each, Ping):
                frames.append(wire.masked(b"", wire.OPCODE_PING, MASK))
            elif not isinstance(each, Connect | Subscribe):
                frames.append(self.masked(self.command(each)))
        return b"".join(frames)

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Return the message."""
        return [delivered("", data.decode(errors="replace"))]
