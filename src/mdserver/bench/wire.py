"""The client's side of a WebSocket, as little of it as a load generator needs (RFC 6455).

The load must cost less than what it measures, so there is no general parser here: a message from
the server is expected in one unmasked frame. Anything else is an error and never skipped.
"""

import base64
import hashlib
import os

from mdserver.errors import RemoteProtocolError
from mdserver.limits import HTTP_HEAD_BYTES_MAX

OPCODE_TEXT = 1
OPCODE_BINARY = 2
OPCODE_CLOSE = 8
OPCODE_PING = 9
OPCODE_PONG = 10

_FIN = 0x80
_MASKED = 0x80
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3


class Upgrade:
    """The opening handshakes of many connections, which may share a request (section 4.1)."""

    def __init__(self, host: str, subprotocol: str, path: str = "/ws") -> None:
        key = base64.b64encode(os.urandom(16))
        self._accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        self.request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n"
            + (f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else "")
            + "\r\n"
        ).encode()

    def rest(self, received: bytes) -> bytes | None:
        """Return what follows the server's answer, or None while the answer is not complete.

        Raises RemoteProtocolError for any answer but an upgrade to WebSocket.
        """
        head, end, rest = received.partition(b"\r\n\r\n")
        if not end:
            if len(received) > HTTP_HEAD_BYTES_MAX:
                raise RemoteProtocolError("the answer to the upgrade has no end")
            return None
        status, _, headers = head.partition(b"\r\n")
        if not status.startswith(b"HTTP/1.1 101"):
            raise RemoteProtocolError(f"no upgrade: {status.decode('latin-1')}")
        if self._accept not in headers:
            raise RemoteProtocolError("the upgrade does not accept our key")
        return rest


def masked(payload: bytes, opcode: int, key: bytes) -> bytes:
    """Return one client frame; `key` is 4 random bytes (section 5.3)."""
    length = len(payload)
    if length < 126:
        head = bytes((_FIN | opcode, _MASKED | length))
    elif length < 1 << 16:
        head = bytes((_FIN | opcode, _MASKED | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((_FIN | opcode, _MASKED | 127)) + length.to_bytes(8, "big")
    mask = (key * (length // 4 + 1))[:length]
    mixed = int.from_bytes(payload, "little") ^ int.from_bytes(mask, "little")
    return head + key + mixed.to_bytes(length, "little")


def server_frame(payload: bytes, opcode: int) -> bytes:
    """Return one frame as a server sends it."""
    length = len(payload)
    if length < 126:
        return bytes((_FIN | opcode, length)) + payload
    if length < 1 << 16:
        return bytes((_FIN | opcode, 126)) + length.to_bytes(2, "big") + payload
    return bytes((_FIN | opcode, 127)) + length.to_bytes(8, "big") + payload


def split(received: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return the complete frames at the start, as (opcode, payload), and the bytes after them.

    Raises RemoteProtocolError for a frame that is fragmented, masked or extended.
    """
    frames = []
    at = 0
    end = len(received)
    while end - at >= 2:
        first, length = received[at], received[at + 1]
        if not first & _FIN or first & 0x70 or length & _MASKED:
            raise RemoteProtocolError(f"a server frame starts with {first:#04x} {length:#04x}")
        start = at + 2
        if length >= 126:
            start += 2 if length == 126 else 8
            if start > end:
                break
            length = int.from_bytes(received[at + 2 : start], "big")
        if start + length > end:
            break
        frames.append((first & 0x0F, received[start : start + length]))
        at = start + length
    return frames, received[at:]
