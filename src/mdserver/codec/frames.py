"""Self-delimiting frames: a type byte, the payload's length, the payload.

Both clients and members speak in frames; what a type means is defined elsewhere. The length is a
varint (little-endian groups of seven bits, as in Protocol Buffers) of at most four bytes. Bit 7 of
the type says that a receiver that does not know the type may skip the frame, so later versions can
add types.
"""

from collections.abc import Iterator

from mdserver import limits
from mdserver.errors import RemoteProtocolError

SKIPPABLE = 0x80
VARINT_BYTES_MAX = 10  # 64 bits
LENGTH_BYTES_MAX = 4
PAYLOAD_BYTES_MAX = 2 ** (7 * LENGTH_BYTES_MAX) - 1
FRAME_BYTES_MAX = 4 * limits.MESSAGE_BYTES_MAX + limits.WEBSOCKET_SLACK_BYTES

Frame = tuple[int, bytes]

_SHORT = [bytes([value]) for value in range(0x80)]


def varint(value: int) -> bytes:
    """Return a number from 0 to 2**64 - 1 as a varint."""
    if value < 0x80:
        return _SHORT[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, and where it ends.

    Raises RemoteProtocolError if the bytes end within it or it has more than 64 bits.
    """
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for index, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 64:
                break
            return value, at + index + 1
    if len(data) - at < VARINT_BYTES_MAX:
        raise RemoteProtocolError(f"A number at byte {at} of a frame's payload is cut off.")
    raise RemoteProtocolError(f"A number at byte {at} of a frame's payload is beyond 64 bits.")


def frame(kind: int, payload: bytes) -> bytes:
    """Return a frame. `payload` has at most PAYLOAD_BYTES_MAX bytes."""
    length = len(payload)
    if length < 0x80:
        return bytes((kind, length)) + payload
    assert length <= PAYLOAD_BYTES_MAX
    return bytes((kind,)) + varint(length) + payload


class FrameReader:
    """Divides a stream of bytes, which comes in any pieces, into frames.

    `known` are the types to return; others are skipped if they allow it. No frame may have a
    payload of more than `payload_bytes_max`, which is checked before the payload has come.
    """

    __slots__ = ("_buffer", "_known", "_payload_bytes_max")

    def __init__(self, known: frozenset[int], payload_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._known = known
        self._payload_bytes_max = payload_bytes_max

    def feed(self, received: bytes) -> list[Frame]:
        """Return the frames that are complete with these bytes; the rest waits for more.

        Raises RemoteProtocolError for an unknown type and for a length beyond the limit, after
        which the reader must not be used any more.
        """
        data = received
        if self._buffer:
            self._buffer += received
            data = bytes(self._buffer) if self._complete() else b""
            if not data:
                return []
        frames: list[Frame] = []
        end = 0
        for kind, start, stop in _scan(data, self._payload_bytes_max):
            end = stop
            if kind in self._known:
                frames.append((kind, data[start:stop]))
            else:
                _skip(kind)
        if self._buffer or end < len(data):  # nearly always whole frames come, and nothing is left
            self._buffer = bytearray(data[end:])
        return frames

    def _complete(self) -> bool:
        """Return whether the first frame is complete.

        Asked before the buffer is copied, so that a large frame in small pieces is copied once.
        """
        head = bytes(self._buffer[: 1 + LENGTH_BYTES_MAX])
        size = _length(head, 0, self._payload_bytes_max)
        return size is not None and len(self._buffer) >= size[1] + size[0]

    @property
    def pending(self) -> int:
        """The number of bytes of an incomplete frame; 0 if the stream may end here."""
        return len(self._buffer)


def read_frames(data: bytes, known: frozenset[int]) -> list[Frame]:
    """Return the frames of a message, which consists of whole frames.

    Raises RemoteProtocolError for an unknown type, and if the last frame is cut off.
    """
    frames: list[Frame] = []
    at = 0
    total = len(data)
    while at < total:
        start = at + 2
        # Nearly all lengths have one or two bytes, which are read here without a call.
        if start <= total and data[at + 1] < 0x80:
            stop = start + data[at + 1]
        elif start < total and data[start] < 0x80:
            stop = start + 1 + (data[at + 1] & 0x7F | data[start] << 7)
            start += 1
        else:
            size = _length(data, at, PAYLOAD_BYTES_MAX)
            start = at if size is None else size[1]
            stop = total + 1 if size is None else size[0] + start
        if stop > total:
            raise RemoteProtocolError(f"The frame at byte {at} of the message is cut off.")
        kind = data[at]
        if kind in known:
            frames.append((kind, data[start:stop]))
        else:
            _skip(kind)
        at = stop
    return frames


def _scan(data: bytes, payload_bytes_max: int) -> Iterator[tuple[int, int, int]]:
    """Yield the type of each whole frame, and the start and the end of its payload."""
    at = 0
    total = len(data)
    while at < total:
        size = _length(data, at, payload_bytes_max)
        if size is None:
            return
        length, start = size
        stop = start + length
        if stop > total:
            return
        yield data[at], start, stop
        at = stop


def _length(data: bytes, at: int, payload_bytes_max: int) -> tuple[int, int] | None:
    """Return the length and the start of the payload of the frame at `at`, None if not known yet.

    Raises RemoteProtocolError for a length beyond the limit, or of too many bytes.
    """
    length = 0
    for index, byte in enumerate(data[at + 1 : at + 1 + LENGTH_BYTES_MAX]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if length > payload_bytes_max:
                break
            return length, at + 2 + index
        if index == LENGTH_BYTES_MAX - 1:
            raise RemoteProtocolError(
                f"The length of a frame of type {data[at]} has more than {LENGTH_BYTES_MAX} bytes."
            )
    else:
        return None
    raise RemoteProtocolError(
        f"A frame of type {data[at]} says it has {length} bytes; at most {payload_bytes_max} are "
        "allowed.",
        limits.CLOSE_TOO_BIG,
    )


def _skip(kind: int) -> None:
    if not kind & SKIPPABLE:
        raise RemoteProtocolError(f"There is no frame of type {kind} here.")
