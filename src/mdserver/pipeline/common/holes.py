"""Segments that were deleted before they were shipped, as a line of the topic of their stream.

An archive of journals sees by their numbers that segments are missing. In a topic there are no
segments, so `mdserver ship` writes a line in their place: an object with the one member `hole`.
"""

from collections.abc import Iterable

import msgspec

from mdserver.journal.rows import checked


class JournalHole(msgspec.Struct, frozen=True):
    """The segments from `first` to `last` of a journal's stream, which are missing.

    `journal` is the identifier of the stream, `node` its member, "" if that is not known, and
    `noticed` when `ship` saw that they are missing (us).
    """

    journal: str
    first: int
    last: int
    node: str
    noticed: int


class _Holed(msgspec.Struct):
    hole: JournalHole


class _Named(msgspec.Struct):
    node: str = ""
    via: str = ""


_named = msgspec.json.Decoder(_Named)


def line_of(hole: JournalHole) -> bytes:
    """Return the line for a hole."""
    return checked(msgspec.json.encode(_Holed(hole)))


def member_of(lines: Iterable[bytes]) -> str:
    """Return the member that wrote lines of a journal, "" if none of them says so."""
    for line in lines:
        try:
            found = _named.decode(line)
        except (msgspec.MsgspecError, ValueError):
            continue
        if found.node or found.via:
            return found.node or found.via
    return ""
