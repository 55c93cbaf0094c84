"""The stream `log`: the lines of a seed's write-ahead log, and what a start finds of them.

A line is the base64 (RFC 4648, section 4) of a CRC-32 (4 bytes, big-endian), followed by the entry
in MessagePack, over which the checksum is made. After a power cut a file may have gaps before its
last line, because blocks reach the disk in any order. So what `read` returns ends before the first
line that is not whole, even if whole lines follow it. The entries themselves are described in
`mdserver.cluster.wal`.

Two things stand in the stream besides entries. Each segment begins with a `Chained`, which names
the segment before it, so a segment that is missing in between is noticed. And an entry that is too
large for one line is divided into `Portion`s: neither the writer nor the disk has to take it at
once, and other entries may stand between its portions. It counts where its first portion stands.
"""

import contextlib
import shutil
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
from attrs import frozen

from mdserver.cluster.wal import (
    AnyWalEntry,
    WalAppended,
    WalBegun,
    WalEnded,
    WalEntry,
    WalImage,
    WalLog,
    WalResumed,
)
from mdserver.core.images import SubjectImage
from mdserver.journal.segments import Segment, StreamWriter, paths
from mdserver.limits import JOURNAL_BEGUN_BYTES_MAX, JOURNAL_PORTION_BYTES

LOG = "log"
CHECKSUM_BYTES = 4


class Portion(WalEntry, frozen=True, tag=7):
    """A part of an entry that is too large for one line; `number` says of which entry.

    The entry shows the state at its `first` portion. Other entries may stand between that and its
    `last` portion. Without the last one the entry is incomplete, and is ignored.
    """

    number: int
    data: bytes
    first: bool
    last: bool


class Chained(WalEntry, frozen=True, tag=8):
    """The first line of a segment: the stream, and the segment `before` this one, 0 for none."""

    stream: str
    before: int


AnyLine = AnyWalEntry | Portion | Chained
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[AnyLine] = msgspec.msgpack.Decoder(AnyLine)


@frozen
class WalDamage:
    """The first line that is not whole: its segment, and the byte at which it begins.

    `missing`: the line is whole, but the segment before it is not there.
    """

    segment: Segment
    offset: int
    missing: bool = False

    def __str__(self) -> str:
        if self.missing:
            return f"a segment is missing before {self.segment.path}"
        return f"{self.segment.path} is damaged at byte {self.offset}"


@frozen
class WalFound:
    """The entries of a stream up to its first damage, and the bytes that they take."""

    entries: list[AnyWalEntry]
    damage: WalDamage | None
    size_bytes: int

    @property
    def begun(self) -> WalBegun | None:
        """The entry with which the last writer began, None if there is none."""
        return next((one for one in reversed(self.entries) if isinstance(one, WalBegun)), None)

    @property
    def ended(self) -> bool:
        """Whether the last writer ended in an orderly way, so that nothing is missing."""
        return bool(self.entries) and isinstance(self.entries[-1], WalEnded)

    @property
    def groups(self) -> int:
        """The number of groups that the entries hold."""
        return len({entry.group for entry in self.entries if isinstance(entry, WalLog)})


class Replacements:
    """Counts how often a group's log that held something was replaced under another history id.

    What such a log held may stand in older segments only, and no other member may have it. So the
    older segments are not to be deleted without notice.
    """

    def __init__(self, entries: Iterable[AnyWalEntry] = ()) -> None:
        self.count = 0
        self._histories: dict[int, str] = {}
        self._holding: dict[int, None] = {}
        for entry in entries:
            self.take(entry)

    def take(self, entry: AnyWalEntry | WalImage) -> None:
        """Take the next entry."""
        if isinstance(entry, WalAppended):
            self._holding[entry.group] = None
        elif isinstance(entry, WalLog | WalImage):
            group = entry.group
            if entry.start or entry.entries:
                self._holding[group] = None
            elif entry.state is None and self._histories.get(group) != entry.history:
                self.count += group in self._holding
                self._holding.pop(group, None)
            self._histories[group] = entry.history


class WalLines:
    """Makes the lines of entries; those of a large entry one by one, so it is never held whole."""

    def __init__(self, bytes_max: int = JOURNAL_PORTION_BYTES) -> None:
        self._bytes_max = bytes_max
        self._number = 0

    def lines(self, entry: AnyWalEntry | WalImage) -> Iterator[bytes]:
        """Yield the lines of an entry, encoded as they are asked for."""
        if isinstance(entry, WalImage):
            yield from self._portions(pieces_of(entry))
        elif isinstance(entry, WalLog) and entry.state is not None:
            yield from self._portions([_encode(entry)])
        else:
            yield line_of(entry)

    def _portions(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        self._number += 1
        number, waiting, first = self._number, b"", True
        for data in portions(pieces, self._bytes_max):
            if waiting:
                yield line_of(Portion(number, waiting, first, False))
                first = False
            waiting = data
        # One portion behind, because only at the end is it known which one is the last. An entry of
        # a single portion needs no `Portion` around it.
        yield _line(waiting) if first else line_of(Portion(number, waiting, False, True))


def pieces_of(image: WalImage) -> Iterator[bytes]:
    """Yield the bytes of the `WalLog` that an image stands for, in small pieces.

    They decode as one entry. It is put together by hand because encoding it as a whole would take
    a large group's memory a second time.
    """
    before: list[Any] = [
        4,
        image.group,
        image.epoch,
        image.history,
        image.start,
        image.entries,
        image.runs,
        image.committed,
        image.normal,
    ]
    yield array_of(len(before) + 1)
    for value in before:
        yield _encode(value)
    cache = image.state.cache
    yield array_of(2) + bytes(image.state.tables)
    yield array_of(3) + _encode(cache.history) + array_of(len(cache.subjects))
    for subject in cache.subjects:
        yield from _pieces_of_subject(subject)
    yield _encode(cache.floor)


def _pieces_of_subject(image: SubjectImage) -> Iterator[bytes]:
    before = (image.subject, image.epoch, image.seq, image.floor)
    yield array_of(len(before) + 3) + b"".join(map(_encode, before)) + array_of(len(image.entries))
    yield from map(_encode, image.entries)
    yield _encode(image.snapshot)
    yield _encode(image.dropped)


def array_of(count: int) -> bytes:
    """Return the bytes with which MessagePack begins an array of `count` values (array 32)."""
    return b"\xdd" + count.to_bytes(4, "big")


def portions(pieces: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    """Yield the same bytes in portions of `bytes_max`; the last portion may be smaller."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= bytes_max:
            block = b"".join(waiting)
            for at in range(0, size - bytes_max + 1, bytes_max):
                yield block[at : at + bytes_max]
            waiting = [block[size - size % bytes_max :]]
            size %= bytes_max
    if size:
        yield b"".join(waiting)


class WalAssembly:
    """Puts entries together from lines, in the order in which they count.

    A large entry counts where its first portion stands, so its place in the list is reserved then,
    and filled when the last portion comes. A place that stays empty is left out.
    """

    def __init__(self) -> None:
        self._entries: list[AnyWalEntry | None] = []
        self._parts: dict[int, tuple[int, list[bytes]]] = {}
        self._incarnation = 0

    def take(self, entry: AnyWalEntry | Portion) -> None:
        """Take the entry of the next line. Raises ValueError if it cannot be decoded."""
        if not isinstance(entry, Portion):
            if isinstance(entry, WalBegun) and entry.incarnation != self._incarnation:
                self._incarnation = entry.incarnation
                self._parts.clear()  # Another process: it never ends what the one before began.
            if isinstance(entry, WalResumed):
                self._parts.clear()  # Lines were dropped here, perhaps portions among them.
            self._entries.append(entry)
            return
        if entry.first:
            self._parts[entry.number] = len(self._entries), []
            self._entries.append(None)
        if entry.number not in self._parts:
            return  # Its first portion was in a segment that is deleted, or its parts were cleared.
        at, parts = self._parts[entry.number]
        parts.append(entry.data)
        if entry.last:
            del self._parts[entry.number]
            self._entries[at] = _whole(parts)

    @property
    def entries(self) -> list[AnyWalEntry]:
        """The entries that are whole."""
        return [entry for entry in self._entries if entry is not None]


def _whole(parts: Sequence[bytes]) -> AnyWalEntry:
    try:
        entry = _decoder.decode(b"".join(parts))
    except msgspec.MsgspecError as error:
        raise ValueError(f"portions that are no entry: {error}") from None
    if isinstance(entry, Portion | Chained):
        raise ValueError("portions of a portion")
    return entry


def line_of(entry: AnyLine) -> bytes:
    """Return the line of an entry, without its line end."""
    return _line(_encode(entry))


def _line(content: bytes) -> bytes:
    checksum = crc32(content).to_bytes(CHECKSUM_BYTES, "big")
    return b2a_base64(checksum + content, newline=False)


def header(stream: str, before: int) -> bytes:
    """Return the first line of a segment, which names the segment before it."""
    return line_of(Chained(stream, before))


def entry_of(line: bytes) -> AnyLine:
    """Return the entry of a line. Raises ValueError if it is damaged."""
    try:
        content = a2b_base64(line, strict_mode=True)
    except Base64Error as error:
        raise ValueError(f"no base64: {error}") from None
    if crc32(content[CHECKSUM_BYTES:]) != int.from_bytes(content[:CHECKSUM_BYTES], "big"):
        raise ValueError("the checksum does not fit")
    try:
        return _decoder.decode(memoryview(content)[CHECKSUM_BYTES:])
    except msgspec.MsgspecError as error:
        raise ValueError(f"no entry: {error}") from None


def read(segments: Iterable[Segment]) -> WalFound:
    """Return what sealed segments hold, given oldest first. Raises OSError."""
    assembly = WalAssembly()
    size = 0
    last: Segment | None = None
    for segment in segments:
        with segment.path.open("rb") as file:
            offset = 0
            for line in file:
                try:
                    if not line.endswith(b"\n"):
                        raise ValueError("no line end")
                    entry = entry_of(line[:-1])
                    if not isinstance(entry, Chained):
                        assembly.take(entry)
                    # The oldest segment may name one before it that was deleted: that is no damage.
                    elif last is not None and entry.before != last.number:
                        return WalFound(assembly.entries, WalDamage(segment, 0, missing=True), size)
                except ValueError:
                    return WalFound(assembly.entries, WalDamage(segment, offset), size + offset)
                offset += len(line)
        size += offset
        last = segment
    return WalFound(assembly.entries, None, size)


def beginning(folder: Path) -> WalBegun | None:
    """Return the `WalBegun` at the beginning of a stream, None if it has none. Raises OSError.

    It is within the first two lines, since a `Chained` may come before it.
    """
    for path in paths(folder)[:1]:
        with path.open("rb") as file, contextlib.suppress(ValueError):
            for line in (file.readline(JOURNAL_BEGUN_BYTES_MAX) for _ in range(2)):
                entry = entry_of(line.removesuffix(b"\n"))
                if isinstance(entry, WalBegun):
                    return entry
    return None


def cut(stream: StreamWriter, damage: WalDamage) -> Path:
    """Remove a damaged line and everything after it, and return the folder where that is kept.

    Raises OSError.
    """
    at = [segment.number for segment in stream.sealed].index(damage.segment.number)
    if not damage.offset:
        return stream.set_aside(stream.sealed[at:])
    aside = stream.set_aside(stream.sealed[at + 1 :])
    # A copy of the whole segment before its end is cut off, so that nothing is lost.
    shutil.copyfile(damage.segment.path, aside / damage.segment.path.name)
    with damage.segment.path.open("r+b") as file:
        file.truncate(damage.offset)
    return aside
