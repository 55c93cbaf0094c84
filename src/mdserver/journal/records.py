"""The stream `log`: what a seed writes down of its logs, and what is found of it at a start.

A line is the base64 (RFC 4648, section 4) of a CRC-32 (4 bytes, big-endian) and of the record in
MessagePack, which the checksum is of. After a power cut a file may have gaps before its last
line: what is found ends before the first line that is not whole.
"""

import contextlib
import shutil
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import msgspec
from attrs import frozen

from mdserver.cluster.records import AnyRecord, Begun, Ended, Held
from mdserver.journal.segments import Segment, StreamWriter, paths
from mdserver.limits import JOURNAL_BEGUN_BYTES_MAX

LOG = "log"
CHECKSUM_BYTES = 4

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


@frozen
class Damage:
    """Where the first line stands that is not whole: its segment, and the byte it begins at."""

    segment: Segment
    offset: int


@frozen
class Found:
    """The records of a stream up to its first damage, if there is any."""

    records: list[AnyRecord]
    damage: Damage | None
    size_bytes: int

    @property
    def begun(self) -> Begun | None:
        """How the last writer began."""
        return next((one for one in reversed(self.records) if isinstance(one, Begun)), None)

    @property
    def ended(self) -> bool:
        """Whether the last writer ended as it should."""
        return bool(self.records) and isinstance(self.records[-1], Ended)

    @property
    def groups(self) -> int:
        """How many groups are held."""
        return len({record.group for record in self.records if isinstance(record, Held)})


def line_of(record: AnyRecord) -> bytes:
    """A record as a line, without its line end."""
    content = _encode(record)
    checksum = crc32(content).to_bytes(CHECKSUM_BYTES, "big")
    return b2a_base64(checksum + content, newline=False)


def record_of(line: bytes) -> AnyRecord:
    """The record of a line; ValueError where it is damaged."""
    try:
        content = a2b_base64(line, strict_mode=True)
    except Base64Error as error:
        raise ValueError(f"no base64: {error}") from None
    if crc32(content[CHECKSUM_BYTES:]) != int.from_bytes(content[:CHECKSUM_BYTES], "big"):
        raise ValueError("the checksum does not fit")
    try:
        return _decoder.decode(memoryview(content)[CHECKSUM_BYTES:])
    except msgspec.MsgspecError as error:
        raise ValueError(f"no record: {error}") from None


def read(segments: Iterable[Segment]) -> Found:
    """What sealed segments hold. Raises OSError."""
    records: list[AnyRecord] = []
    size = 0
    for segment in segments:
        with segment.path.open("rb") as file:
            offset = 0
            for line in file:
                try:
                    if not line.endswith(b"\n"):
                        raise ValueError("no line end")
                    records.append(record_of(line[:-1]))
                except ValueError:
                    return Found(records, Damage(segment, offset), size + offset)
                offset += len(line)
        size += offset
    return Found(records, None, size)


def beginning(folder: Path) -> Begun | None:
    """How the oldest segment of a stream begins; None if it does not say. Raises OSError."""
    for path in paths(folder)[:1]:
        with path.open("rb") as file:
            line = file.readline(JOURNAL_BEGUN_BYTES_MAX)
        with contextlib.suppress(ValueError):
            record = record_of(line.removesuffix(b"\n"))
            return record if isinstance(record, Begun) else None
    return None


def cut(stream: StreamWriter, damage: Damage) -> Path:
    """Take a damaged line off a stream, and all that follows it; returns where that is kept.

    Raises OSError.
    """
    at = [segment.number for segment in stream.sealed].index(damage.segment.number)
    aside = stream.set_aside(stream.sealed[at + 1 :])
    shutil.copyfile(damage.segment.path, aside / damage.segment.path.name)
    with damage.segment.path.open("r+b") as file:
        file.truncate(damage.offset)
    return aside
