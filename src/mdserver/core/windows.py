"""Indicators over the last minutes, hours, days and months, in bounded memory.

An indicator is a value that is sampled about once a second: how many sessions there are, or how
many messages a second came since the sample before. A window is the last 1, 5 or 15 units of time.
Each unit is divided into 60 buckets, and a ring of 15 * 60 buckets holds the longest window of that
unit; a sample goes into the newest bucket of each of the four rings, so its cost does not depend on
the windows. A window ends with the newest bucket, which is still being filled: the
last 5 hours are between 4 hours 59 minutes and 5 hours. The last minute has buckets of one second.

Time is that of the samples, and never goes back here. When the given clock does (it was set, or a
process began with another one), time goes on from where it was, so no second is counted twice. When
the clock jumps forward, there are no samples in between, and averages are those of the time that
was sampled. Samples are weighted by the time that they stand for, so one that comes late counts for
more. A month has 30 days, so no calendar is needed.
"""

import math
import sys
from array import array
from collections.abc import Mapping, Sequence

import msgspec
from attrs import frozen

from mdserver.limits import NS_PER_S

BUCKETS_PER_UNIT = 60
LONGEST = 15
RING = BUCKETS_PER_UNIT * LONGEST
IMAGE_VERSION = 1

_DAY_S = 86_400
UNITS_S: tuple[int, ...] = (60, 3600, _DAY_S, 30 * _DAY_S)
"""A minute, an hour, a day and a month, in seconds."""

WINDOWS: dict[str, tuple[int, int]] = {
    "1min": (0, 1),
    "5min": (0, 5),
    "15min": (0, 15),
    "1h": (1, 1),
    "5h": (1, 5),
    "15h": (1, 15),
    "1d": (2, 1),
    "5d": (2, 5),
    "15d": (2, 15),
    "1month": (3, 1),
    "5months": (3, 5),
    "15months": (3, 15),
}
"""The names of all windows -> which of UNITS_S, and how many of them."""


@frozen
class WindowSummary:
    """An indicator over one window; nothing was sampled if `seconds` is 0.

    `seconds` is how much time the samples stand for; `deviation` is the standard deviation of the
    whole window, each sample weighted by its time.
    """

    seconds: float
    maximum: float
    average: float
    deviation: float


class WindowsImage(msgspec.Struct, frozen=True):
    """All rings, as they are written to disk. `last` is the time of the newest sample (ns)."""

    version: int
    byte_order: str
    indicators: tuple[str, ...]
    last: int
    rings: list["RingImage"]


class RingImage(msgspec.Struct, frozen=True, array_like=True):
    """One ring: the number of its newest bucket, and each column as the bytes of doubles."""

    newest: int
    weights: bytes
    columns: list[tuple[bytes, bytes, bytes]]


class ImageError(ValueError):
    """An image that cannot be restored; the message says why."""


class Column:
    """One indicator in the buckets of one ring: mean, sum of squared differences from it, maximum.

    These can be joined without loss of precision, as sums of squares cannot (Chan, Golub and
    LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances").
    """

    __slots__ = ("maxima", "means", "squares")

    def __init__(self) -> None:
        self.means = array("d", bytes(8 * RING))
        self.squares = array("d", bytes(8 * RING))
        self.maxima = array("d", bytes(8 * RING))

    def empty(self, slot: int) -> None:
        """Empty a bucket, so that it can be filled again."""
        self.means[slot] = self.squares[slot] = 0.0
        self.maxima[slot] = -math.inf

    def add(self, slot: int, value: float, weight: float, total: float) -> None:
        """Add a sample to a bucket whose samples weigh `total` with it."""
        distance = value - self.means[slot]
        self.means[slot] += distance * weight / total
        self.squares[slot] += weight * distance * (value - self.means[slot])
        self.maxima[slot] = max(self.maxima[slot], value)


class Ring:
    """The buckets of one unit of time. `newest` is the number of the one that is being filled.

    The number of a bucket is the time at which it begins, divided by the width of a bucket. A
    bucket without samples has the weight 0; its other values are left from before and mean nothing.
    """

    __slots__ = ("_full", "_joined", "_width", "columns", "newest", "weights")

    def __init__(self, unit_s: int, indicators: Sequence[str]) -> None:
        self._width = unit_s * NS_PER_S // BUCKETS_PER_UNIT
        self.newest = 0
        self.weights = array("d", bytes(8 * RING))
        self.columns = {name: Column() for name in indicators}
        # The buckets before the newest one change only when another one becomes the newest, which
        # for the longer units takes a minute to half a day. What was found of them is kept so long.
        self._full: dict[int, list[int]] = {}
        """Units -> the buckets of that window with samples, without the newest one."""
        self._joined: dict[tuple[str, int], WindowSummary] = {}
        """Indicator and units -> the summary of these buckets."""

    def advance(self, time: int) -> int:
        """Make the bucket of a time the newest one, and return its place in the ring."""
        number = time // self._width
        for passed in range(max(self.newest + 1, number - RING + 1), number + 1):
            self.weights[passed % RING] = 0.0
        if number != self.newest:
            self._forget()
        self.newest = number
        return number % RING

    def add(self, slot: int, values: Mapping[str, float], weight: float) -> None:
        """Add a sample of each indicator to the newest bucket."""
        weights = self.weights
        if not weights[slot]:
            for column in self.columns.values():
                column.empty(slot)
        weights[slot] += weight
        for name, column in self.columns.items():
            column.add(slot, values[name], weight, weights[slot])

    def summary(self, indicator: str, units: int) -> WindowSummary:
        """Join the buckets of a window that ends with the newest one."""
        before = self._joined.get((indicator, units))
        if before is None:
            before = self._join(indicator, self._full_slots(units))
            self._joined[indicator, units] = before
        newest = self.newest % RING
        if not self.weights[newest]:
            return before
        last = self._join(indicator, [newest])
        return last if not before.seconds else both(before, last)

    def _full_slots(self, units: int) -> list[int]:
        """Return the buckets of a window with samples, without the newest one."""
        slots = self._full.get(units)
        if slots is None:
            numbers = range(self.newest - units * BUCKETS_PER_UNIT + 1, self.newest)
            slots = [slot for slot in (n % RING for n in numbers) if self.weights[slot]]
            self._full[units] = slots
        return slots

    def _join(self, indicator: str, slots: list[int]) -> WindowSummary:
        """Return the summary of some buckets, each of which has samples."""
        if not slots:
            return WindowSummary(0.0, 0.0, 0.0, 0.0)
        weights, column = self.weights, self.columns[indicator]
        means = column.means
        total = math.fsum(weights[slot] for slot in slots)
        average = math.fsum(weights[slot] * means[slot] for slot in slots) / total
        squares = math.fsum(
            column.squares[slot] + weights[slot] * (means[slot] - average) ** 2 for slot in slots
        )
        return WindowSummary(
            total,
            max(column.maxima[slot] for slot in slots),
            average,
            math.sqrt(max(squares, 0.0) / total),
        )

    def _forget(self) -> None:
        self._full.clear()
        self._joined.clear()

    def points(self, indicator: str, units: int) -> list[tuple[float, float] | None]:
        """Return the average and the maximum of each bucket of a window, the oldest first."""
        weights, column = self.weights, self.columns[indicator]
        first = self.newest - units * BUCKETS_PER_UNIT + 1
        return [
            (column.means[slot], column.maxima[slot]) if weights[slot] else None
            for slot in (n % RING for n in range(first, self.newest + 1))
        ]

    def image(self) -> RingImage:
        """Return a copy of everything."""
        return RingImage(
            self.newest,
            self.weights.tobytes(),
            [
                (one.means.tobytes(), one.squares.tobytes(), one.maxima.tobytes())
                for one in self.columns.values()
            ],
        )

    def restore(self, image: RingImage) -> None:
        """Take over what an image holds. Raises ImageError."""
        if len(image.columns) != len(self.columns):
            raise ImageError("It has another number of indicators.")
        self._forget()
        self.newest = image.newest
        self.weights = _doubles(image.weights)
        for column, parts in zip(self.columns.values(), image.columns, strict=True):
            column.means, column.squares, column.maxima = map(_doubles, parts)


class Windows:
    """Indicators over all of WINDOWS. The memory is the same from the start on: 350 KB for four."""

    def __init__(self, indicators: Sequence[str]) -> None:
        self.indicators = tuple(indicators)
        self._rings = [Ring(unit_s, self.indicators) for unit_s in UNITS_S]
        self._last = 0
        self._ahead = 0
        """The time by which this clock is ahead of the given one (ns)."""

    def add(self, values: Mapping[str, float], elapsed: int, now: int) -> None:
        """Add one sample of each indicator, which stands for the last `elapsed` ns."""
        time = self._time(now)
        if elapsed <= 0:
            return
        weight = elapsed / NS_PER_S
        for ring in self._rings:
            ring.add(ring.advance(time), values, weight)

    def summaries(self, indicator: str, now: int) -> dict[str, WindowSummary]:
        """Return the summary of an indicator over each window that ends now."""
        time = self._time(now)
        for ring in self._rings:
            ring.advance(time)
        return {
            name: self._rings[unit].summary(indicator, count)
            for name, (unit, count) in WINDOWS.items()
        }

    def points(self, indicator: str, window: str, now: int) -> list[tuple[float, float] | None]:
        """Return average and maximum of each bucket of a window, None if nothing was sampled."""
        unit, count = WINDOWS[window]
        self._rings[unit].advance(self._time(now))
        return self._rings[unit].points(indicator, count)

    def image(self) -> WindowsImage:
        """Return a copy of everything, for `restore`."""
        rings = [ring.image() for ring in self._rings]
        return WindowsImage(IMAGE_VERSION, sys.byteorder, self.indicators, self._last, rings)

    def restore(self, image: WindowsImage) -> None:
        """Go on from an image; time goes on from its last sample. Raises ImageError."""
        if (image.version, image.byte_order) != (IMAGE_VERSION, sys.byteorder):
            raise ImageError("It was written by another version, or on another kind of machine.")
        if image.indicators != self.indicators or len(image.rings) != len(self._rings):
            raise ImageError(f"It has other indicators: {', '.join(image.indicators)}.")
        for ring, one in zip(self._rings, image.rings, strict=True):
            ring.restore(one)
        self._last = image.last
        self._ahead = 0

    def _time(self, now: int) -> int:
        """Return the time here, which does not go back when the clock does."""
        time = now + self._ahead
        if time < self._last:
            self._ahead += self._last - time
            time = self._last
        self._last = time
        return time


def both(one: WindowSummary, other: WindowSummary) -> WindowSummary:
    """Return the summary of two parts of a window, each of which has samples."""
    total = one.seconds + other.seconds
    distance = other.average - one.average
    variance = (
        one.seconds * one.deviation**2
        + other.seconds * other.deviation**2
        + distance**2 * one.seconds * other.seconds / total
    ) / total
    return WindowSummary(
        total,
        max(one.maximum, other.maximum),
        one.average + distance * other.seconds / total,
        math.sqrt(variance),
    )


def _doubles(content: bytes) -> "array[float]":
    """Return bytes of an image as a column. Raises ImageError."""
    if len(content) != 8 * RING:
        raise ImageError("A column of it has another length.")
    return array("d", content)
