"""Centrifugo and the library Centrifuge, JSON protocol: a line for each command and answer.

See https://centrifugal.dev/docs/transports/client_protocol. Channels are subjects with dots for
slashes. Anonymous clients must be allowed to connect, subscribe and publish, or a token given.
"""

import msgspec

from mdserver.bench.adapters.adapter import CONNECTED, PONG, AdapterCodec
from mdserver.bench.adapters.delivered import delivered
from mdserver.core.events import Error, MessageEvent, WireEvent
from mdserver.errors import RemoteProtocolError

_CONNECT_ID, _SUBSCRIBE_ID, _PUBLISH_ID, _FENCE_ID = 1, 2, 3, 4


class _Publication(msgspec.Struct):
    data: str


class _Push(msgspec.Struct):
    channel: str = ""
    pub: _Publication | None = None


class _Reason(msgspec.Struct):
    code: int
    message: str = ""


class _Reply(msgspec.Struct):
    id: int = 0
    error: _Reason | None = None
    push: _Push | None = None


_decode = msgspec.json.Decoder(_Reply).decode


class Centrifugo(AdapterCodec):
    """A client of Centrifugo."""

    def connect(self, token: str | None) -> bytes:
        """Connect, as nobody if there is no token."""
        return _command(_CONNECT_ID, connect={} if token is None else {"token": token})

    def subscribe(self, subject: str) -> bytes:
        """Subscribe without recovery."""
        return _command(_SUBSCRIBE_ID, subscribe={"channel": _dotted(subject)})

    def publish(self, subject: str, content: str) -> bytes:
        """Publish a string."""
        return _command(_PUBLISH_ID, publish={"channel": _dotted(subject), "data": content})

    def ping(self) -> bytes:
        """Call what does not exist: its error stands for the pong, since clients have no ping."""
        return _command(_FENCE_ID, rpc={"method": "fence"})

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode all answers of one WebSocket message; an empty one is the server's ping."""
        events: list[WireEvent | MessageEvent] = []
        for line in data.splitlines():
            try:
                reply = _decode(line)
            except msgspec.MsgspecError as error:
                raise RemoteProtocolError(f"Centrifugo: {line[:80]!r}: {error}") from None
            if reply.push is not None:
                if reply.push.pub is not None:
                    events.append(delivered(reply.push.channel, reply.push.pub.data))
            elif reply.id == _FENCE_ID:
                events.append(PONG)
            elif reply.error is not None:
                reason = reply.error
                events.append(Error("Centrifugo", f"error {reason.code}, {reason.message}"))
            elif reply.id == _CONNECT_ID:
                events.append(CONNECTED)
            elif not reply.id:
                self.answers.append(b"{}")
        return events


def _command(number: int, **what: dict[str, str]) -> bytes:
    return msgspec.json.encode({"id": number, **what}) + b"\n"


def _dotted(subject: str) -> str:
    return subject.strip("/").replace("/", ".")
