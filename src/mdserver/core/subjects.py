"""Subjects (`/segment/segment/...`) and patterns over them.

`*` stands for one segment, `**` for one or more and only as the last one; both are special only
as whole segments. A wildcard as the first segment does not match `/__mdserver__/...`: these
subjects have to be requested by name. Only the server itself publishes there, except below
FOR_TOOLS.
"""

import zlib
from collections.abc import Sequence

from mdserver.core.text import safe_text
from mdserver.errors import InvalidSubjectError
from mdserver.limits import SUBJECT_BYTES_MAX, SUBJECT_SEGMENTS_MAX

ONE = "*"
REST = "**"
RESERVED = "__mdserver__"
STATISTICS = f"/{RESERVED}/statistics/"
"""The prefix of the subjects to which members publish their statistics, one for each member."""
EVENTS = f"/{RESERVED}/events/"
"""The prefix of the subjects to which members publish the events of the cluster."""
FOR_TOOLS = f"/{RESERVED}/pipeline/"
"""The prefix of the subjects for the product's own tools, which are clients, to report progress."""
_SHOWN_MAX = 80


class Pattern:
    """A subscription or a right to more than one subject."""

    __slots__ = ("rest", "segments", "specificity", "text")

    def __init__(self, text: str, segments: Sequence[str]) -> None:
        self.text = text
        self.rest = segments[-1] == REST
        self.segments = tuple(segments[:-1] if self.rest else segments)
        self.specificity = tuple(0 if s == REST else 1 if s == ONE else 2 for s in segments)
        """Compares patterns that match one subject: the greater one is the more specific."""

    def matches(self, segments: Sequence[str]) -> bool:
        """Return whether a subject of these segments is one of the pattern's."""
        own = self.segments
        if len(segments) <= len(own) if self.rest else len(segments) != len(own):
            return False
        for mine, theirs in zip(own, segments, strict=False):
            if mine not in (theirs, ONE):
                return False
        return segments[0] != RESERVED or (bool(own) and own[0] == RESERVED)

    def meets(self, other: "Pattern") -> bool:
        """Return whether there is a subject that both patterns match."""
        lengths = len(self.segments), len(other.segments)
        if self.rest and other.rest:
            same_length = True
        elif self.rest or other.rest:
            fixed, least = lengths if other.rest else lengths[::-1]
            same_length = fixed > least
        else:
            same_length = lengths[0] == lengths[1]
        if not same_length or self.is_reserved() != other.is_reserved():
            return False
        pairs = zip(self.segments, other.segments, strict=False)
        return all(mine == theirs or ONE in (mine, theirs) for mine, theirs in pairs)

    def is_reserved(self) -> bool:
        """Return whether the pattern is about the server's own subjects."""
        return bool(self.segments) and self.segments[0] == RESERVED

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def segments_of(subject: str) -> list[str]:
    """Return the segments of a valid subject or pattern."""
    return subject.split("/")[1:]


def is_pattern(text: str) -> bool:
    """Return whether a segment of a valid subject or pattern is a wildcard."""
    return "*" in text and any(s in (ONE, REST) for s in segments_of(text))


def validate_subject(
    subject: str,
    segments_min: int = 2,
    segments_max: int = SUBJECT_SEGMENTS_MAX,
    *,
    purpose: str = "publish to",
) -> None:
    """Raise InvalidSubjectError unless this is a single subject.

    `purpose` is what the caller wants to do with it, for the message about a pattern.
    """
    segments = _split(subject, segments_max)
    if "*" in subject and (ONE in segments or REST in segments):
        raise InvalidSubjectError(
            f"Subject {shown(subject)} has a wildcard segment ('*' or '**'): one can subscribe to "
            f"patterns, but {purpose} single subjects only."
        )
    if len(segments) < segments_min:
        raise InvalidSubjectError(
            f"Subject {shown(subject)} has one segment: at least two are needed, like '/a/b'."
        )


def parse_interest(
    text: str, segments_min: int = 2, segments_max: int = SUBJECT_SEGMENTS_MAX
) -> Pattern | None:
    """Return the pattern that `text` is, or None if it is a single subject.

    Raises InvalidSubjectError if it is neither.
    """
    if "*" not in text:
        validate_subject(text, segments_min, segments_max)
        return None
    segments = _split(text, segments_max)
    if REST in segments[:-1]:
        raise InvalidSubjectError(
            f"Pattern {shown(text)} has '**' before its end: it may only be the last segment."
        )
    if ONE in segments or segments[-1] == REST:
        return Pattern(text, segments)
    validate_subject(text, segments_min, segments_max)
    return None


def parse_grant(text: str) -> Pattern:
    """Return the pattern of a right: as in a subscription, but a final `*` covers the subtree.

    Raises InvalidSubjectError.
    """
    segments = _split(text)
    if REST in segments[:-1]:
        raise InvalidSubjectError(
            f"Pattern {shown(text)} has '**' before its end: it may only be the last segment."
        )
    if segments[-1] == ONE:
        segments[-1] = REST
    return Pattern(text, segments)


def is_servers_own(subject: str) -> bool:
    """Return whether only the server itself may publish to a valid subject."""
    return segments_of(subject)[0] == RESERVED and not subject.startswith(FOR_TOOLS)


def member_segment(member: str) -> str:
    """Return the name of a member as one segment of a subject: escaped, and not a wildcard."""
    return member.replace("%", "%25").replace("/", "%2F").replace("*", "%2A") or "%"


def shown(subject: str) -> str:
    """Return the subject in quotes, shortened so that a message with it stays readable."""
    return f"'{safe_text(subject, _SHOWN_MAX)}'"


def _split(text: str, segments_max: int = SUBJECT_SEGMENTS_MAX) -> list[str]:
    """Return the segments of a subject or pattern. Raises InvalidSubjectError if it is malformed.

    A `*` or `**` counts as a segment like any other here.
    """
    if not text.startswith("/"):
        what = f"Subject {shown(text)} does not start" if text else "A subject may not be empty"
        raise InvalidSubjectError(
            f"{what} with '/': subjects look like '/a/b'."
            if text
            else f"{what}: subjects look like '/a/b'."
        )
    if text == "/":
        raise InvalidSubjectError(
            "Subject '/' has a single segment, which is empty: subjects look like '/a/b'."
        )
    segments = text.split("/")[1:]
    if not all(segments):
        raise InvalidSubjectError(_empty_segment(text, segments))
    if len(segments) > segments_max:
        raise InvalidSubjectError(
            f"Subject {shown(text)} has {len(segments)} segments: "
            f"at most {segments_max} are allowed."
        )
    if len(text) * 4 > SUBJECT_BYTES_MAX or not text.isascii():
        _check_bytes(text)
    return segments


def _empty_segment(text: str, segments: list[str]) -> str:
    if "" not in segments[:-1]:
        return (
            f"Subject {shown(text)} ends with '/', so its last segment is empty: leave the '/' out."
        )
    number = segments.index("") + 1
    return f"Subject {shown(text)} has an empty segment (number {number}): segments are not empty."


def _check_bytes(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidSubjectError(
            f"Subject {shown(text)} is not valid Unicode: it has half of a surrogate pair."
        ) from None
    if size > SUBJECT_BYTES_MAX:
        raise InvalidSubjectError(
            f"Subject {shown(text)} has {size} bytes: at most {SUBJECT_BYTES_MAX} are allowed."
        )


def group_of(subject: str, groups: int) -> int:
    """Return the group, below `groups`, that a subject belongs to.

    Members and clients compute it independently, so it is part of the protocol: CRC-32 of the
    subject's UTF-8 bytes, modulo the number of groups (docs/cluster.md).
    """
    return zlib.crc32(subject.encode()) % groups
