"""The columns of the journal's streams: a class for each stream, a JSON object for each line.

The classes are the documentation of record (docs/pipeline.md repeats them as a table). `v` is the
version of a stream's columns: a reader takes the versions that it knows and sets other lines aside.
A column may be added without a new version; none is renamed, removed or given another meaning.
After its columns each line has `line_crc`: the CRC-32, in hexadecimal digits, of everything before
it. All times are microseconds since the Unix epoch, UTC.
"""

from collections.abc import Mapping, Sequence
from zlib import crc32

import msgspec
from attrs import frozen

from mdserver import limits
from mdserver.core.message import Entry, checksum
from mdserver.journal.segments import Segment
from mdserver.limits import NS_PER_S

ROW_VERSION = 1
Place = tuple[str, int, int]
"""Subject, epoch, seq."""

NS_PER_US = 1_000
LINE_CRC = ',"line_crc":"'
LINE_CRC_BYTES = len(LINE_CRC) + 8 + 2
"""The length of a line's end: the key, 8 digits, a quotation mark and the object's brace."""


def checked(line: bytes) -> bytes:
    """Return a line, which is an object that is not empty, with its checksum as the last member."""
    before = line[:-1]
    return b'%b,"line_crc":"%08X"}' % (before, crc32(before))


class MessageRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A committed message. It has `content` if that is text, else `content_base64`."""

    v: int
    history: str
    subject: str
    epoch: int
    seq: int
    group: int
    ts_pub: int
    """The time at which the first member took the publication."""
    ts_server: int
    """The time at which the member that writes this journal learned of the commit."""
    node: str
    crc: int
    """`mdserver.core.message.checksum`."""
    content: str | None = None
    content_base64: bytes | None = None
    fields: dict[str, str] | None = None
    closure: str | None = None
    retained: bool = True
    qos: str = "GUARANTEED"
    compressed: bool = False
    reply_subject: str | None = None
    publisher: str = ""
    number: int = 0


class ReceiptRow(msgspec.Struct, frozen=True, kw_only=True):
    """A range of messages that a session received of a subject in one epoch, within a minute."""

    v: int
    session: str
    subscriber: str
    history: str
    subject: str
    epoch: int
    seq_lo: int
    seq_hi: int
    n: int
    """The messages of the range, each counted once. One that comes twice begins a new range."""
    crc_sum: int
    """Sum of `checksum` over those n."""
    crc_at: int
    """Sum of `checksum` times the distance from `seq_lo`."""
    dups: int
    reordered: int
    conflated: int
    via: str
    """The member that the session was connected to."""
    opened_ts: int
    closed_ts: int
    owner: str | None = None
    """The sender of the receipt as far as the server knows: a publisher identity, which a client
    keeps across connections, or else the session of the member."""
    verified: bool | None = None
    """Whether the member that took the receipt confirms it: the session was subscribed there, and
    messages with these checksums were in its cache. None, in lines of older versions: unknown."""
    left_out: int = 0
    """The number of receipts of the same session that were left out before this one as too many."""
    fields_sum: int | None = None
    """Sum of `fields_checksum` over those n. None, from clients of older versions: unknown."""
    fields_at: int | None = None
    """Sum of `fields_checksum` times the distance from `seq_lo`; None if `fields_sum` is."""


class StatRow(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one indicator at one moment, sampled once a second."""

    v: int
    ts: int
    node: str
    indicator: str
    value: float


@frozen
class Tail:
    """The group of an uncommitted entry, and the time of its publication (ns)."""

    group: int
    time: int


class RowPlace(msgspec.Struct, frozen=True):
    """The columns of a message that are its position, with its group."""

    subject: str
    epoch: int
    seq: int
    group: int = -1
    history: str = ""


@frozen
class CommittedEnd:
    """How far the log of a group is committed as a start found it, under which history id.

    `numbering` has the last committed number of each subject; the others are at or below `floor`.
    """

    history: str
    numbering: Mapping[str, int]
    floor: int

    def lacks(self, row: RowPlace) -> bool:
        """Return whether the row's message is none of the log's committed ones."""
        known = self.numbering.get(row.subject, self.floor)
        return row.history == self.history and row.seq > known


_place = msgspec.json.Decoder(RowPlace)


def written(
    segments: Sequence[Segment],
    places: Mapping[Place, Tail],
    ends: Mapping[int, CommittedEnd],
    reread_bytes_max: int = limits.JOURNAL_REREAD_BYTES_MAX,
) -> set[Place]:
    """Return which messages that the logs do not hold as committed have a row already.

    `places` are the uncommitted ends of all groups, `ends` what is committed of those that have a
    log, and `segments` are in the order of their numbers.

    A member of a cluster writes the row of a message as soon as it learns of the commit, and what
    is queued together goes to the log last. So a kill can leave rows of messages that are not in
    the log at all, and come again from other members. They are the last rows of the stream: it is
    read backwards while a segment has such rows, up to `reread_bytes_max`.

    A group's rows are in the order of its log. So in the segments before one that has a row of a
    committed message of the group there is none of its end, and these are not read. That holds
    whatever clocks said. Of groups of `places` for which no such row is found, segments are read on
    that were finished after the oldest publication; and others, in case a clock was set back, as
    long as all that was read is less than `reread_bytes_max`. Raises OSError.
    """
    found: set[Place] = set()
    unsettled = {tail.group for tail in places.values()}
    oldest = min((tail.time for tail in places.values()), default=0)
    oldest -= limits.JOURNAL_CLOCK_SLACK_S * NS_PER_S
    ahead = bool(ends)
    read_bytes = 0
    for segment in reversed(segments):
        recent = unsettled and segment.modified >= oldest
        may_be_there = (unsettled or ahead) and read_bytes < reread_bytes_max
        if not (recent or may_be_there):
            break
        read_bytes += segment.size_bytes
        ahead = False
        with segment.path.open("rb") as file:
            for line in file:
                row = _row_place(line)
                if row is None:
                    continue
                place = row.subject, row.epoch, row.seq
                end = ends.get(row.group)
                if place in places:
                    found.add(place)
                elif end is not None and end.lacks(row):
                    found.add(place)
                    ahead = True
                else:
                    unsettled.discard(row.group)
    return found


def _row_place(line: bytes) -> RowPlace | None:
    """Return the position of a line's message, None for a line that is damaged."""
    try:
        return _place.decode(line)
    except msgspec.MsgspecError:
        return None


def message_row(entry: Entry, group: int, history: str, node: str, now: int) -> MessageRow:
    """Return the row of a committed entry; `now` (ns) is when this member learned of it."""
    publication = entry.publication
    content = publication.content
    return MessageRow(
        v=ROW_VERSION,
        history=history,
        subject=publication.subject,
        epoch=entry.epoch,
        seq=entry.seq,
        group=group,
        ts_pub=publication.time // NS_PER_US,
        ts_server=now // NS_PER_US,
        node=node,
        crc=checksum(publication.subject, entry.epoch, entry.seq, content),
        content=content.decode() if publication.text else None,
        content_base64=None if publication.text else content,
        fields=publication.fields,
        closure=publication.closure,
        retained=publication.retained,
        qos=publication.qos.value,
        compressed=publication.compressed,
        reply_subject=publication.reply_subject,
        publisher=publication.publisher,
        number=publication.number,
    )
