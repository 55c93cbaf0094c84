"""Aliases: numbers in place of subjects, in the server's table and in ALIAS frames.

An alias stands for a subject, the pattern it came through (if any), an epoch and a base. A compact
message has the alias and the distance of its seq from the base. The table belongs to the server,
not to a connection, so a message has the same bytes for every client.

When the epoch changes or the seq is too far beyond the base, the alias is agreed anew. It keeps its
number on the wire, so that neither side collects dead ones, but gets a new key. The key is how the
server notices that a message which was encoded before must not be sent any more, and that a client
has not been told of the alias as it is now.
"""

from collections.abc import Callable

from attrs import define, frozen

from mdserver import limits
from mdserver.codec.frames import read_varint, varint
from mdserver.errors import RemoteProtocolError

ALIASES_MAX = 2**21  # three bytes of a varint
AHEAD_MAX = 2**21  # likewise: type 1, length 3, alias 3, seq 3 bytes are a message's ten

_Subject = str | tuple[str, str]


@frozen
class Alias:
    """The meaning of an alias. `match` is the pattern, None for an exact subscription."""

    subject: str
    match: str | None
    epoch: int
    base: int


@define
class _Agreed:
    """An alias in the table: `key` is never used again, `number` is its number on the wire."""

    key: int
    number: int
    wire: bytes
    epoch: int
    base: int


class AliasTable:
    """The aliases of one server, at most `aliases_max`; when it is full, the oldest is dropped."""

    def __init__(self, aliases_max: int = limits.SUBJECTS_MAX) -> None:
        self._aliases_max = min(aliases_max, ALIASES_MAX)
        self._keys = 0
        self._agreed: dict[_Subject, _Agreed] = {}
        self._subjects: dict[int, _Subject] = {}

    def holds(self, key: int) -> bool:
        """Return whether a message that was encoded with this key may still be sent as it is."""
        return key in self._subjects

    def find(self, subject: str, match: str | None) -> _Agreed | None:
        """Return the alias of a subject, None if it has none."""
        return self._agreed.get(subject if match is None else (subject, match))

    def agree(self, subject: str, match: str | None, epoch: int, seq: int) -> _Agreed:
        """Return the alias for a message at this position, agreed anew if it does not fit.

        The seq of an older message may be below the base: the caller has to spell that out.
        """
        named = subject if match is None else (subject, match)
        agreed = self._agreed.get(named)
        if agreed is None:
            number = self._free_number()
        elif agreed.epoch == epoch and seq - agreed.base < AHEAD_MAX:
            return agreed
        else:
            del self._subjects[agreed.key]
            number = agreed.number
        self._keys += 1
        agreed = self._agreed[named] = _Agreed(self._keys, number, varint(number), epoch, seq)
        self._subjects[self._keys] = named
        return agreed

    def _free_number(self) -> int:
        if len(self._agreed) < self._aliases_max:
            return len(self._agreed)
        oldest = self._agreed.pop(next(iter(self._agreed)))
        del self._subjects[oldest.key]
        return oldest.number

    def payload(self, key: int) -> bytes:
        """Return the payload of the ALIAS frame for a key that `holds`."""
        named = self._subjects[key]
        agreed = self._agreed[named]
        subject, match = (named, "") if isinstance(named, str) else named
        spelled = subject.encode()
        return b"".join(
            (
                agreed.wire,
                varint(agreed.epoch),
                varint(agreed.base),
                varint(len(spelled)),
                spelled,
                match.encode(),
            )
        )


def read_alias(payload: bytes) -> tuple[int, Alias]:
    """Return the number on the wire and its alias, from the payload of an ALIAS frame.

    Raises RemoteProtocolError.
    """
    number, at = read_varint(payload, 0)
    epoch, at = read_varint(payload, at)
    base, at = read_varint(payload, at)
    length, at = read_varint(payload, at)
    if number >= ALIASES_MAX:
        raise RemoteProtocolError(f"Alias {number} is beyond {ALIASES_MAX - 1}.")
    if length > len(payload) - at:
        raise RemoteProtocolError(f"The subject of alias {number} is cut off.")
    try:
        subject = payload[at : at + length].decode()
        match = payload[at + length :].decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError(f"The subject of alias {number} is not valid UTF-8.") from None
    return number, Alias(subject, match or None, epoch, base)


Lookup = Callable[[int], Alias]
