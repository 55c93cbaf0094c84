"""MQTT 3.1.1 over WebSocket, with QoS 0 (OASIS standard, 2014).

Topics are subjects without the first slash.
"""

from mdserver.bench.adapters.adapter import CONNECTED, PONG, AdapterCodec
from mdserver.bench.adapters.delivered import delivered
from mdserver.core.events import Error, MessageEvent, WireEvent
from mdserver.errors import RemoteProtocolError

_CONNECT, _CONNACK, _PUBLISH, _SUBSCRIBE, _SUBACK = 0x10, 0x20, 0x30, 0x82, 0x90
_PINGREQ, _PINGRESP = b"\xc0\x00", 0xD0
_CLEAN_SESSION, _PASSWORD, _USER = 0x02, 0x40, 0x80
_SUBACK_FAILURE = 0x80
_LENGTH_BYTES_MAX = 4
_PACKET_ID = b"\x00\x01"


class Mqtt(AdapterCodec):
    """A client of an MQTT broker; WebSocket messages may cut packets anywhere (section 6.0)."""

    text = False
    greets = False  # packets may follow CONNECT at once (section 3.1.4)

    def connect(self, token: str | None) -> bytes:
        """Connect without a keep-alive; a token is the password of the user `token`."""
        flags = _CLEAN_SESSION | (0 if token is None else _USER | _PASSWORD)
        body = _string("MQTT") + bytes((4, flags, 0, 0)) + _string("")
        if token is not None:
            body += _string("token") + _string(token)
        return _packet(_CONNECT, body)

    def subscribe(self, subject: str) -> bytes:
        """Subscribe with QoS 0."""
        return _packet(_SUBSCRIBE, _PACKET_ID + _string(subject.strip("/")) + b"\x00")

    def publish(self, subject: str, content: str) -> bytes:
        """Publish with QoS 0."""
        return _packet(_PUBLISH, _string(subject.strip("/")) + content.encode())

    def ping(self) -> bytes:
        """Return a ping."""
        return _PINGREQ

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode all packets of one WebSocket message."""
        events: list[WireEvent | MessageEvent] = []
        data, self.rest = self.rest + data, b""
        at = 0
        while at < len(data):
            kind = data[at] & 0xF0
            size, start = _length(data, at + 1)
            if size is None or len(data) < start + size:
                self.rest = data[at:]
                break
            at = start + size
            body = data[start:at]
            if kind == _PUBLISH:
                end = 2 + int.from_bytes(body[:2], "big")
                events.append(
                    delivered(
                        body[2:end].decode(errors="replace"), body[end:].decode(errors="replace")
                    )
                )
            elif kind == _PINGRESP:
                events.append(PONG)
            elif kind == _CONNACK:
                refused = Error("MQTT", f"the connection was refused with {body[1]}")
                events.append(refused if body[1] else CONNECTED)
            elif kind == _SUBACK:
                if body[-1] == _SUBACK_FAILURE:
                    events.append(Error("MQTT", "the subscription was refused"))
            else:
                raise RemoteProtocolError(f"MQTT: a packet of type {kind:#04x} is not understood")
        return events


def _string(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _packet(kind: int, body: bytes) -> bytes:
    """Return a packet; its length has seven bits in each byte (section 2.2.3)."""
    head = [kind]
    size = len(body)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*head, size)) + body


def _length(data: bytes, at: int) -> tuple[int | None, int]:
    """Return the length of a packet, and where its body begins; None if it is not all there."""
    size = shift = 0
    for place in range(at, min(at + _LENGTH_BYTES_MAX, len(data))):
        size |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            return size, place + 1
    if len(data) >= at + _LENGTH_BYTES_MAX:
        raise RemoteProtocolError("MQTT: the length of a packet has no end")
    return None, at
