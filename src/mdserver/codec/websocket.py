"""The server's side of WebSocket (RFC 6455), sans-IO, over wsproto.

Messages, fragments, pings and pongs with a valid header are read here directly, in a fifth of the
time that wsproto takes, so that a flood of tiny frames costs little more than its bytes. wsproto
judges everything else: close frames, and what breaks the rules. An idle connection keeps about 100
bytes. permessage-deflate is not negotiated, because wsproto inflates without a limit.

A connection is open until one of two things happens. `close` is called: from then on messages are
skipped without being kept, while control frames are read, because the other side's close frame is
still to come (RFC 6455, section 7.1.2). Or an `Ended` is given, for the other side's close frame or
its violation of a rule: nothing is read after that. A message begins with a frame of text or binary
and ends with a final one; control frames may come between its fragments (section 5.4).
"""

import base64
import binascii
import re
import struct
from codecs import IncrementalDecoder, getincrementaldecoder

import msgspec
from attrs import frozen
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection
from wsproto.utilities import generate_accept_token

from mdserver import limits
from mdserver.codec.http import Request, RequestRefusedError, tokens

NO_STATUS = 1005  # RFC 6455 section 7.4.1: a close frame without a code
PROTOCOL_ERROR = 1002
INVALID_TEXT = 1007

_TEXT, _BINARY = 0x81, 0x82  # whole messages, in one frame
_CLOSE, _PING, _PONG = 0x88, 0x89, 0x8A
_WHOLE = (_TEXT, _BINARY)
_CONTROL = 0x08  # the bit of the opcodes of control frames
_EMPTY_CONTROLS = re.compile(rb"(?:[\x89\x8a]\x80.{4})+", re.DOTALL)
_DIRECT = frozenset((0x00, 0x01, 0x02, 0x80, 0x81, 0x82, _PING, _PONG))
_medium, _long = struct.Struct("!BBH").pack, struct.Struct("!BBQ").pack
_REPEATED = tuple(((1 << 32 * words) - 1) // 0xFFFFFFFF for words in range(128))
"""By length in words: the number with which a key is multiplied to repeat it so often."""
_NOT_UTF_8 = "A text message is not valid UTF-8."
_VERSION = "13"


class WebSocketMessage(msgspec.Struct, frozen=True, gc=False):
    """A whole message; `payload` is valid UTF-8 if it is `text`.

    A msgspec struct, because every command of a client comes in one.
    """

    payload: bytes
    text: bool


@frozen
class Pinged:
    """A ping, with the pong frame to send."""

    answer: bytes


@frozen
class Ponged:
    """A pong, whether a ping asked for it or not."""

    payload: bytes


@frozen
class Ended:
    """The other side closed, or broke a rule: send `answer`, then close the connection.

    `violation`: the code is this side's judgement, not what the other side sent.
    """

    code: int
    reason: str
    answer: bytes
    violation: bool = False


WebSocketEvent = WebSocketMessage | Pinged | Ponged | Ended


@frozen
class Accepted:
    """An upgrade: the bytes to send, and the subprotocol (None if none was asked for)."""

    answer: bytes
    subprotocol: str | None


def accept_upgrade(request: Request) -> Accepted:
    """Check the client's handshake (RFC 6455 section 4.2) and answer it.

    Origins are those of `codec/cors.py`. Raises RequestRefusedError: 400 malformed, 426 version.
    """
    if request.method != "GET" or not request.http_1_1 or request.body:
        raise RequestRefusedError(400, "A WebSocket begins with GET and HTTP/1.1, without a body.")
    if "upgrade" not in tokens(request.header(b"connection")) or not request.wants_websocket:
        raise RequestRefusedError(
            400, "A WebSocket begins with the headers Connection: Upgrade and Upgrade: websocket."
        )
    if request.header(b"sec-websocket-version") != _VERSION:
        raise RequestRefusedError(
            426,
            "This server speaks WebSocket version 13.",
            [(b"sec-websocket-version", _VERSION.encode()), (b"upgrade", b"websocket")],
        )
    key = _checked_key(request.header(b"sec-websocket-key"))
    subprotocol = _choose_subprotocol(request.header(b"sec-websocket-protocol"))
    lines = [
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + generate_accept_token(key),
    ]
    if subprotocol is not None:
        lines.append(b"Sec-WebSocket-Protocol: " + subprotocol.encode())
    return Accepted(b"\r\n".join(lines) + b"\r\n\r\n", subprotocol)


def frame_header(length: int, text: bool) -> bytes:
    """Return the header of an unmasked, unfragmented message of `length` bytes."""
    return _header(_TEXT if text else _BINARY, length)


def ping_frame(payload: bytes = b"") -> bytes:
    """Return a ping frame; its payload has at most 125 bytes (section 5.5)."""
    return _header(_PING, len(payload)) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a close frame; a long reason is cut at the end of a character (123 bytes)."""
    if code == NO_STATUS:
        return _header(_CLOSE, 0)
    text = reason.encode(errors="backslashreplace")
    if len(text) > 123:
        text = text[:123].decode(errors="ignore").encode()
    return _header(_CLOSE, 2 + len(text)) + struct.pack("!H", code) + text


class WebSocket:
    """One connection after its upgrade: bytes in, events out.

    `message_bytes_max` bounds a message, all its fragments together; beyond it the connection ends
    with 1009. Until `admit` is called the bound is `first_bytes_max`, if that is given. `more` says
    that bytes wait which may be whole frames: call `feed` with no bytes to read them.
    """

    __slots__ = (
        "_buffer",
        "_bytes_max",
        "_closing",
        "_decoder",
        "_ended",
        "_fragments",
        "_message_bytes_max",
        "_needed",
        "_skipping",
        "more",
    )

    def __init__(self, message_bytes_max: int, first_bytes_max: int | None = None) -> None:
        self._message_bytes_max = message_bytes_max
        self._bytes_max = min(message_bytes_max, first_bytes_max or message_bytes_max)
        self._buffer: bytes | bytearray = b""
        self._needed = 0  # below this length of the buffer, its first frame is not complete
        self._fragments: bytearray | None = None
        self._decoder: IncrementalDecoder | None = None  # checks the fragments of a text
        self._closing = False
        self._skipping = 0  # how many bytes are still to come of a frame that is left out
        self._ended = False
        self.more = False

    @property
    def unfinished_bytes(self) -> int:
        """The number of bytes kept of a message that is not complete."""
        return len(self._buffer) + len(self._fragments or b"")

    @property
    def ended(self) -> bool:
        """Whether an `Ended` was given."""
        return self._ended

    def close(self, code: int, reason: str) -> bytes:
        """Return the close frame to send; messages that are still coming are left out from now on.

        Bytes of an unfinished message are dropped at once.
        """
        self._closing = True
        # A client may be closed for the memory that it takes, and may take its time to go.
        self._fragments = self._decoder = None
        if self._needed > len(self._buffer) > 0 and not self._buffer[0] & _CONTROL:
            self._skipping = self._needed - len(self._buffer)
            self._buffer, self._needed = b"", 0
        return close_frame(code, reason)

    def feed(self, received: bytes) -> list[WebSocketEvent]:
        """Return what these bytes complete, in order, and at most FRAMES_AT_ONCE frames at a time.

        If more frames may be complete, `more` is set.
        """
        self.more = False
        if self._skipping:
            skipped = min(self._skipping, len(received))
            self._skipping -= skipped
            received = received[skipped:]
        if self._buffer:
            if received and isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer)
            if received:
                self._buffer += received
            if len(self._buffer) < self._needed:
                return []
            received = bytes(self._buffer)  # No copy if the buffer is `bytes`, as after `more`.
        events: list[WebSocketEvent] = []
        at = 0
        size = len(received)
        left = limits.FRAMES_AT_ONCE
        while at < size and not self._ended:
            if left <= 0:
                self.more = True
                self._needed = 0
                break
            end = at
            if received[at] in _WHOLE:
                before = len(events)
                end = self._usual(received, at, events, left)
                left -= len(events) - before
            if end == at:
                end = self._step(received, at, events)
                left -= 1
                if end == at:
                    break
            at = end
        self._buffer = b"" if self._ended else received[at:]
        return events

    def _usual(self, data: bytes, at: int, events: list[WebSocketEvent], most: int) -> int:
        """Read whole messages in one short frame each; return where something else begins.

        Nearly everything that clients send is of this kind. `_step` could read it too, with five
        calls for each message; anything that does not fit is left to it.
        """
        if self._fragments is not None or self._closing:
            return at
        size, bytes_max = len(data), self._bytes_max
        for _ in range(most):
            start = at + 6
            if start > size or (first := data[at]) not in _WHOLE:
                break
            length = data[at + 1] - 0x80  # below 0: no mask
            if length == 126:
                length = data[at + 2] << 8 | data[at + 3]
                start = at + 8
                if length < 126:  # Not the minimal form, which is `_step`'s to refuse.
                    break
            elif not 0 <= length < 126:
                break
            end = start + length
            if end > size or length > bytes_max:
                break
            payload = _unmasked(data[start:end], data[start - 4 : start])
            if first == _TEXT and not payload.isascii() and not _is_utf_8(payload):
                break
            events.append(WebSocketMessage(payload, first == _TEXT))
            at = end
        return at

    def _step(self, data: bytes, at: int, events: list[WebSocketEvent]) -> int:
        """Read one frame; return where the next begins, or `at` if more bytes are needed."""
        size = _payload_start(data, at)
        if size is None:
            self._needed = 0
            return at
        start, length = size
        first = data[at]
        total = length + len(self._fragments or b"")
        # The header is enough: the payload of a frame that is too large is not waited for.
        if first & 0x0F < 8 and total > self._bytes_max:
            self._refuse_size(total, events)
            return at
        # The length has to be written in as few bytes as possible (section 5.2); a masked header
        # then has 6, 8 or 14 bytes.
        minimal = start - at == (6 if length < 126 else 8 if length < 0x10000 else 14)
        if (
            not minimal
            or data[at + 1] < 0x80
            or first not in _DIRECT
            or (first > 0x88 and length > 125)
        ):
            return self._judged(data, at, start, length, events)
        end = start + length
        if end > len(data):
            return self._incomplete(data, at, end)
        if not length and first > _CLOSE:
            return _skip_empty_controls(data, at, events)
        payload = _unmasked(data[start:end], data[start - 4 : start])
        if first in _WHOLE and self._fragments is None:
            self._take_message(payload, first == _TEXT, events)
        elif first == _PING:
            events.append(Pinged(_header(_PONG, length) + payload))
        elif first == _PONG:
            events.append(Ponged(payload))
        else:
            self._take_fragment(first, payload, events)
        return end

    def _incomplete(self, data: bytes, at: int, end: int) -> int:
        """Wait for the rest of a frame, or skip it if messages are left out by now."""
        if self._closing and not data[at] & _CONTROL:
            self._skipping = end - len(data)
            return len(data)
        self._needed = end - at
        return at

    def _refuse_size(self, size: int, events: list[WebSocketEvent]) -> None:
        if events and size <= self._message_bytes_max:
            # Events before this frame may have the client admitted, which raises the bound: the
            # frame is looked at again after they were handled.
            self._needed = 0
            self.more = True
            return
        self._fail(limits.CLOSE_TOO_BIG, f"A message may have {self._bytes_max} bytes.", events)

    def admit(self) -> None:
        """Accept messages up to `message_bytes_max` from now on."""
        self._bytes_max = self._message_bytes_max

    def _take_message(self, payload: bytes, text: bool, events: list[WebSocketEvent]) -> None:
        if text and not payload.isascii() and not _is_utf_8(payload):
            self._fail(INVALID_TEXT, _NOT_UTF_8, events)
        elif not self._closing:
            events.append(WebSocketMessage(payload, text))

    def _take_fragment(self, first: int, payload: bytes, events: list[WebSocketEvent]) -> None:
        """Take a frame that is not a whole message: the beginning, the middle or the end of one."""
        if self._closing:
            return
        opcode, final = first & 0x0F, first >= 0x80
        if (opcode == 0) is (self._fragments is None):
            reason = (
                "A message begins inside another." if opcode else "There is nothing to continue."
            )
            self._fail(PROTOCOL_ERROR, reason, events)
            return
        if self._fragments is None:
            self._fragments = bytearray()
            self._decoder = getincrementaldecoder("utf-8")() if opcode == 1 else None
        self._fragments += payload
        text = self._decoder is not None
        if self._decoder is not None:
            # Each fragment is checked when it comes, so that invalid text fails as early as it can
            # (section 8.1); a character may be divided between two fragments.
            try:
                self._decoder.decode(payload, final)
            except UnicodeDecodeError:
                self._fail(INVALID_TEXT, _NOT_UTF_8, events)
                return
        if final:
            message, self._fragments, self._decoder = bytes(self._fragments), None, None
            events.append(WebSocketMessage(message, text))

    def _judged(
        self, data: bytes, at: int, start: int, length: int, events: list[WebSocketEvent]
    ) -> int:
        """Have wsproto judge a close frame, or a header that breaks a rule.

        Of a broken frame only the header is needed, so its payload is not waited for.
        """
        end = start
        if data[at] == _CLOSE and length <= 125:
            end += length
        if end > len(data):
            self._needed = end - at
            return at
        proto = Connection(ConnectionType.SERVER)
        proto.receive_data(data[at:end])
        (event,) = proto.events()
        assert isinstance(event, CloseConnection)
        code, reason = int(event.code), event.reason or ""
        if proto.state is ConnectionState.OPEN:  # wsproto's judgement: no close frame was read.
            self._fail(code, f"Not WebSocket: {reason}.", events)
        else:
            self._ended = True
            events.append(Ended(code, reason, b"" if self._closing else close_frame(code)))
        return end

    def _fail(self, code: int, reason: str, events: list[WebSocketEvent]) -> None:
        self._ended = True
        self._fragments = self._decoder = None
        answer = b"" if self._closing else close_frame(code, reason)
        events.append(Ended(code, reason, answer, violation=True))


def _skip_empty_controls(data: bytes, at: int, events: list[WebSocketEvent]) -> int:
    """Read a run of empty pings and pongs at once: the last ping is answered (section 5.5.3).

    They are the cheapest flood for a client, and this way the cheapest for the server.
    """
    run = _EMPTY_CONTROLS.match(data, at)
    assert run is not None
    frames = data[at : run.end()]
    if _PING in frames[::6]:
        events.append(Pinged(_header(_PONG, 0)))
    if _PONG in frames[::6]:
        events.append(Ponged(b""))
    return run.end()


def _payload_start(data: bytes, at: int) -> tuple[int, int] | None:
    """Return where the payload of the frame at `at` starts, and its length; None while unknown."""
    have = len(data) - at
    if have < 2:
        return None
    length = data[at + 1] & 0x7F
    size = 2 + (4 if data[at + 1] & 0x80 else 0)
    if length == 126:
        size += 2
        if have < size:
            return None
        length = int.from_bytes(data[at + 2 : at + 4], "big")
    elif length == 127:
        size += 8
        if have < size:
            return None
        length = int.from_bytes(data[at + 2 : at + 10], "big")
    elif have < size:
        return None
    return at + size, length


def _unmasked(payload: bytes, key: bytes) -> bytes:
    """Return the payload without its mask (section 5.3).

    As one operation on large integers, which is fast without native code. The mask is the key times
    a number that repeats it.
    """
    length = len(payload)
    words = (length + 3) // 4
    if words < len(_REPEATED):
        mask = int.from_bytes(key, "little") * _REPEATED[words]
    else:
        mask = int.from_bytes(key * words, "little")
    unmasked = int.from_bytes(payload, "little") ^ mask
    return unmasked.to_bytes(4 * words, "little")[:length]


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _header(first: int, length: int) -> bytes:
    if length < 126:
        return bytes((first, length))
    return _medium(first, 126, length) if length < 0x10000 else _long(first, 127, length)


def _checked_key(key: str | None) -> bytes:
    if key is None:
        raise RequestRefusedError(400, "A WebSocket needs the header Sec-WebSocket-Key.")
    try:
        nonce = base64.b64decode(key.encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        nonce = b""
    if len(nonce) != 16:
        raise RequestRefusedError(400, "Sec-WebSocket-Key has to be 16 bytes in base64.")
    return key.encode()


def _choose_subprotocol(offered: str | None) -> str | None:
    if offered is None:
        return None
    for name in offered.split(","):
        if name.strip() in (limits.SUBPROTOCOL_JSON, limits.SUBPROTOCOL_BINARY):
            return name.strip()
    raise RequestRefusedError(
        400,
        f"This server speaks the subprotocols {limits.SUBPROTOCOL_BINARY} and "
        f"{limits.SUBPROTOCOL_JSON}.",
    )
