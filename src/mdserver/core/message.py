"""Messages: what is published, and what it becomes once it has a place in the log.

The garbage collector does not track these values (`gc=False`): none of them can be part of a cycle,
and a cache holds very many of them for a long time.
"""

import enum
from collections.abc import Mapping
from zlib import crc32

import msgspec


class Qos(enum.Enum):
    """GUARANTEED messages have a position and are cached; STANDARD ones are sent at most once."""

    GUARANTEED = "GUARANTEED"
    STANDARD = "STANDARD"


class MessageType(enum.Enum):
    """The reason for which a message is delivered."""

    SNAPSHOT = "SNAPSHOT"
    UPDATE = "UPDATE"
    RECOVERED = "RECOVERED"
    HISTORICAL = "HISTORICAL"


class Position(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A position in a subject's numbering.

    Positions are ordered by epoch, then seq. Those of different history ids are never compared.
    """

    epoch: int
    seq: int


class GroupFloor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The floor of a subject group: subjects that are not known there begin above `seq`.

    It is 0 until the group forgets subjects. No number of a forgotten subject is greater, and none
    of their messages stands behind `place` in the group's log. `epoch` is that of the entry which
    raised the floor last.
    """

    epoch: int = 0
    seq: int = 0
    place: int = 0

    @property
    def position(self) -> Position:
        """The position up to which a subject that is not known may have had messages."""
        return Position(self.epoch, self.seq)


NO_FLOOR = GroupFloor()


class Publication(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message as its publisher gave it.

    `content` is UTF-8 if `text` is true, and any bytes otherwise. `fields` is never empty: None
    stands for no fields. `publisher` is empty and `number` 0 for a publication without a number.
    `time` is when the first member took it, in ns since the Unix epoch.
    """

    subject: str
    content: bytes
    text: bool = True
    fields: dict[str, str] | None = None
    closure: str | None = None
    retained: bool = True
    qos: Qos = Qos.GUARANTEED
    compressed: bool = False
    reply_subject: str | None = None
    publisher: str = ""
    number: int = 0
    time: int = 0


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A publication with its place: `seq` counts within the subject and rises by exactly one.

    `place` counts within the subject group: it is how many entries the group's log has up to and
    with this one. It is 0 in an entry that a member of an earlier version made, until the log
    corrects that. STANDARD publications become entries with epoch, seq and place 0, which are never
    in a log.
    """

    epoch: int
    seq: int
    publication: Publication
    place: int = 0


def checksum(subject: str, epoch: int, seq: int, content: bytes) -> int:
    """Return the CRC-32 of subject, epoch, seq and content, which subscriber and archive compare.

    It is part of the protocol, because clients send sums of it in receipts.
    """
    head = f"{subject}|{epoch}|{seq}|".encode()
    return crc32(content, crc32(head))


def fields_checksum(subject: str, epoch: int, seq: int, fields: Mapping[str, str] | None) -> int:
    """Return the CRC-32 of subject, epoch, seq and fields, 0 for a message without fields.

    It is part of the protocol as `checksum` is. Names are in the order of their code points. Each
    name and value stands behind its length in characters, so that no two sets of fields give the
    same text.
    """
    if not fields:
        return 0
    told = "".join(
        f"{len(name)}:{name}{len(value)}:{value}" for name, value in sorted(fields.items())
    )
    return crc32(f"{subject}|{epoch}|{seq}|{told}".encode())
