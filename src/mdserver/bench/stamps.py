"""Messages that say when they were to be sent, and what measures their latency by that.

An open loop publishes at given times, whether or not the server keeps up. A message carries the
time at which it was to be sent. So a latency counts from that time even if the message was sent
late because the one before it was held up: otherwise the load would omit to measure just when the
server is slow (coordinated omission). All processes of a measurement run on one computer and read
the same monotonic clock.
"""

import time
from collections.abc import Callable

from mdserver.bench.verify import NUMBER_DIGITS, ReceivedStream, Verifier
from mdserver.core.events import MessageEvent
from mdserver.limits import NS_PER_S

_TIME_DIGITS = 20
_STAMP_CHARS = NUMBER_DIGITS + _TIME_DIGITS
CONTENT_BYTES_MIN = 32
_KEPT_MAX = 4096


def stamped(number: int, intended_ns: int, size: int) -> str:
    """Return the content of a message with its number and the time at which it is to be sent."""
    return f"{number:0{NUMBER_DIGITS}d}{intended_ns:0{_TIME_DIGITS}d}".ljust(size, "x")


def now_ns() -> int:
    """Return the time on the clock that all processes of this computer share (CLOCK_MONOTONIC)."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def until(moment_ns: int) -> None:
    """Sleep until this time on that clock."""
    time.sleep(max(0.0, (moment_ns - now_ns()) / NS_PER_S))


class Arrivals(Verifier):
    """Verifies stamped messages, and passes the intended times of those that arrived.

    `arrived` is called with the intended times of the messages by which a stream advanced.
    """

    def __init__(self, content_bytes: int, arrived: Callable[[tuple[int, ...]], None]) -> None:
        super().__init__(content_bytes)
        self._arrived = arrived
        self._intended: list[int] = []
        self._times: dict[tuple[int, int], tuple[bytes, int, tuple[int, ...]]] = {}

    def received(self, stream: ReceivedStream, chunk: bytes) -> int:
        """Take what one read brought; return by how many messages the subscriber advanced."""
        before = stream.position
        key = (before, len(chunk))
        known = self._times.get(key)
        if known is not None and known[0] == chunk and stream.epoch and not stream.rest:
            stream.position = known[1]
            self._arrived(known[2])
            return known[1] - before
        self._intended.clear()
        advanced = self._decoded(stream, chunk)
        times = tuple(self._intended)
        if times:
            self._arrived(times)
        seen = self._seen.get(key)
        if seen is not None and seen[0] is chunk:
            if len(self._times) >= _KEPT_MAX:
                self._times.clear()
            self._times[key] = (chunk, stream.position, times)
        return advanced

    def _intact(self, message: MessageEvent) -> bool:
        text = message.content or ""
        digits = text[:_STAMP_CHARS]
        if not (digits.isascii() and digits.isdigit() and len(digits) == _STAMP_CHARS):
            return False
        intended_ns = int(digits[NUMBER_DIGITS:])
        self._intended.append(intended_ns)
        return text == stamped(message.seq, intended_ns, self._content_bytes)
