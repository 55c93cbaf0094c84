"""Verification: did every subscriber get every message once, in order, with its content?

A message says twice which one it is: by its position, which the server gave it, and by the number
at the start of its content, which the publisher wrote there. Messages are counted from 1 on a
subject that nothing else is published to, so both numbers must rise by one and be equal.

Decoding costs more than receiving, and the subscribers of one subject receive the same bytes. So
bytes that were found to carry a subscriber from one position to another are remembered. When a
subscriber at that position receives these very bytes, they need not be decoded again.
"""

from collections.abc import Callable

from attrs import frozen

from mdserver.bench import wire
from mdserver.bench.adapters.adapter import PONG, AdapterCodec
from mdserver.bench.results import Row
from mdserver.codec.encoding import ClientCodec
from mdserver.core.events import Connected, MessageEvent, WireEvent
from mdserver.errors import RemoteProtocolError

NUMBER_DIGITS = 12
FAULTS_KEPT = 20
_REMEMBERED_MAX = 4096
_PONG_KEY = b"pong"


def content(number: int, size: int) -> str:
    """Return the content of the message with this number, in `size` bytes."""
    return f"{number:0{NUMBER_DIGITS}d}".ljust(size, "x")


@frozen
class Fault:
    """A fault at one subscriber; `kind` is "lost", "repeated" or "altered"."""

    kind: str
    subscriber: int
    expected: int
    got: int

    def __str__(self) -> str:
        return (
            f"{self.kind}: subscriber {self.subscriber} expected message {self.expected}, "
            f"got {self.got}"
        )


class ReceivedStream:
    """What one subscriber has received; `position` is the number of its newest message.

    `epoch` is that of the newest message that was decoded on this connection, 0 before the first.
    `others` holds the events besides messages until they are taken, `rest` the start of a frame
    that is not complete; `answer` sends bytes back, for pings. `connected` is the server's first
    event.
    """

    __slots__ = (
        "answer",
        "codec",
        "connected",
        "epoch",
        "others",
        "position",
        "rest",
        "subscriber",
    )

    def __init__(
        self, subscriber: int, codec: ClientCodec, answer: Callable[[bytes], object]
    ) -> None:
        self.subscriber = subscriber
        self.codec = codec
        self.answer = answer
        self.position = 0
        self.epoch = 0
        self.connected: Connected | None = None
        self.others: list[WireEvent] = []
        self.rest = b""


class Verifier:
    """Checks the streams of all subscribers of one subject; counts what is wrong.

    `lost` counts messages, `repeated` those that came again or late (after a newer one), and
    `altered` those whose content is not what was published. `faults` describes the first ones.
    """

    def __init__(self, content_bytes: int) -> None:
        self.lost = 0
        self.repeated = 0
        self.altered = 0
        self.faults: list[Fault] = []
        self._content_bytes = content_bytes
        self._seen: dict[tuple[int, int], tuple[bytes, int]] = {}

    def received(self, stream: ReceivedStream, chunk: bytes) -> int:
        """Take what one read brought; return by how many messages the subscriber advanced.

        Raises RemoteProtocolError if the bytes break the protocol, or the server closes.
        """
        position = stream.position
        if not stream.rest:
            # The first message of a connection and of an epoch is always decoded: the codec learns
            # the subject's number with it.
            known = self._seen.get((position, len(chunk)))
            if known is not None and known[0] == chunk and stream.epoch:
                stream.position = known[1]
                return known[1] - position
        return self._decoded(stream, chunk)

    def fill(self, row: Row) -> None:
        """Write what was found so far into a row."""
        row.lost, row.repeated, row.altered = self.lost, self.repeated, self.altered

    def missing(self, streams: list[ReceivedStream], published: int) -> int:
        """Count as lost what the streams should have had by now; return how many that is."""
        before = self.lost
        for stream in streams:
            if stream.position < published:
                self._fault("lost", stream, published, stream.position)
                self.lost += published - stream.position
        return self.lost - before

    def _decoded(self, stream: ReceivedStream, chunk: bytes) -> int:
        before = stream.position
        whole = not stream.rest
        frames, stream.rest = wire.split(stream.rest + chunk)
        clean = whole and not stream.rest
        for opcode, payload in frames:
            if opcode == wire.OPCODE_CLOSE:
                code = int.from_bytes(payload[:2], "big")
                raise RemoteProtocolError(f"closed with {code}: {payload[2:].decode()}")
            if opcode == wire.OPCODE_PING:
                stream.answer(wire.masked(payload, wire.OPCODE_PONG, _PONG_KEY))
                clean = False
                continue
            if opcode == wire.OPCODE_PONG:  # only adapters send such pings
                stream.others.append(PONG)
                clean = False
                continue
            for event in stream.codec.events(payload):
                if isinstance(event, MessageEvent):
                    clean &= self._message(stream, event)
                else:
                    stream.others.append(event)
                    clean = False
        if isinstance(stream.codec, AdapterCodec):
            clean &= _answered(stream, stream.codec)
        if clean and frames:
            if len(self._seen) >= _REMEMBERED_MAX:
                self._seen.clear()
            self._seen[before, len(chunk)] = (chunk, stream.position)
        return stream.position - before

    def _message(self, stream: ReceivedStream, message: MessageEvent) -> bool:
        """Return whether the message is the next one, unaltered."""
        expected = stream.position + 1
        intact = self._intact(message)
        if not intact:
            self.altered += 1
            self._fault("altered", stream, expected, message.seq)
        same_epoch, stream.epoch = message.epoch == stream.epoch, message.epoch
        if message.seq == expected:
            stream.position = expected
            return intact and same_epoch
        if message.seq > expected:
            self.lost += message.seq - expected
            self._fault("lost", stream, expected, message.seq)
            stream.position = message.seq
        else:
            self.repeated += 1
            self._fault("repeated", stream, expected, message.seq)
        return False

    def _intact(self, message: MessageEvent) -> bool:
        """Return whether the content is what was published with this number."""
        return message.content == content(message.seq, self._content_bytes)

    def _fault(self, kind: str, stream: ReceivedStream, expected: int, got: int) -> None:
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(Fault(kind, stream.subscriber, expected, got))


def _answered(stream: ReceivedStream, codec: AdapterCodec) -> bool:
    """Send what another server wants to hear; return whether the next read begins something new."""
    answers = codec.taken_answers()
    for answer in answers:
        stream.answer(answer)
    if codec.rest:
        stream.epoch = 0  # so that the next read is decoded, and not remembered
    return not answers and not codec.rest
