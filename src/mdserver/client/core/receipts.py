"""What this client received, as receipts (docs/protocol.md, "Receipts").

A range of a subject grows while its messages follow each other. It ends, and another begins, where
the numbering breaks, where a message comes twice or late, when a connection is lost, and once a
minute: so what is missing lies between two ranges, and what is wrong is at the beginning of one.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from attrs import define, field, frozen

from mdserver import limits
from mdserver.core.commands import Receipt
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType, checksum
from mdserver.limits import NS_PER_MS

_CRC_AT_HIGH = 2**62  # a range this heavy ends: receipts carry numbers of 63 bits
_RECEIPT_BYTES = 400  # about what a receipt takes in JSON besides its subject


@frozen
class Session:
    """One subscription, as receipts name it."""

    name: str
    conflated: bool


@define(eq=False)
class Range:
    """Messages of a subject that follow each other. Times in ns of the client's clock."""

    session: str
    history: str
    via: str
    subject: str
    epoch: int
    seq_lo: int
    seq_hi: int
    opened: int
    closed: int
    n: int = 0
    crc_sum: int = 0
    crc_at: int = 0
    dups: int = 0
    reordered: int = 0
    conflated: int = 0

    def receipt(self, now: int) -> Receipt:
        """How the server is told of it at this time."""
        return Receipt(
            session=self.session,
            history=self.history,
            subject=self.subject,
            epoch=self.epoch,
            seq_lo=self.seq_lo,
            seq_hi=self.seq_hi,
            n=self.n,
            crc_sum=self.crc_sum,
            crc_at=self.crc_at,
            via=self.via,
            opened_ms=(now - self.opened) // NS_PER_MS,
            closed_ms=(now - self.closed) // NS_PER_MS,
            dups=self.dups,
            reordered=self.reordered,
            conflated=self.conflated,
        )


@define(eq=False)
class Track:
    """A subject within an epoch: its open range, and the ends of those before it."""

    open: Range | None = None
    earlier: deque[tuple[int, int]] = field(
        factory=lambda: deque(maxlen=limits.RECEIPT_RANGES_KEPT)
    )

    def has(self, seq: int) -> bool:
        """Whether this number was received already, as far as it is known still."""
        return any(low <= seq <= high for low, high in self.earlier)


class ReceiptBook:
    """The receipts of one client, until the server has them.

    What a server does not take for long is dropped, the oldest first; `dropped` counts it.
    """

    def __init__(self, client: str) -> None:
        self.dropped = 0
        self._client = client
        self._sessions: dict[str, Session] = {}
        self._count = 0
        self._tracks: dict[tuple[str, str, str, int], Track] = {}
        self._waiting: deque[Range] = deque()
        self._first = 0  # ranges are counted from the first one on; this is the number of the next
        self._sent = 0  # so many were sent on this connection, or before the server had them
        self._marks: dict[int, int] = {}
        self._mark = 0
        self._via = ""

    def __len__(self) -> int:
        return len(self._waiting)

    def subscribed(self, subjects: Iterable[str], *, conflated: bool) -> None:
        """Subjects and patterns are subscribed: what comes through them has a session of its own,
        since nothing was promised before."""
        self._count += 1
        session = Session(f"{self._client}.{self._count}", conflated)
        self._sessions |= dict.fromkeys(subjects, session)

    def connected(self, via: str) -> None:
        """Another connection, to this member: what was not confirmed is to be sent again."""
        for track in self._tracks.values():
            if track.open is not None:
                self._close(track, track.open.closed)
        self._via = via
        self._sent = self._first
        self._marks = {}

    def delivered(self, event: MessageEvent, key: str, history: str, now: int) -> None:
        """The application gets a message, through the subscription of this subject or pattern."""
        session = self._sessions.get(key)
        if session is None or not event.seq or event.type is MessageType.SNAPSHOT:
            return
        place = session.name, history, event.subject, event.epoch
        track = self._tracks.get(place)
        if track is None:
            track = self._tracks[place] = Track()
        content = event.content_base64
        if event.content is not None:
            content = event.content.encode()
        crc = checksum(event.subject, event.epoch, event.seq, content or b"")
        at = self._range(track, event, session, history, now)
        at.seq_hi = event.seq
        at.closed = now
        at.n += 1
        at.crc_sum += crc
        at.crc_at += crc * (event.seq - at.seq_lo)

    def cut(self, now: int) -> None:
        """End all ranges: what was promised up to now has been delivered."""
        tracks, self._tracks = self._tracks, {}
        for place, track in tracks.items():
            if track.open is not None:
                self._close(track, now)
                self._tracks[place] = track

    def unsubscribed(self, subjects: Iterable[str], now: int) -> None:
        """These subscriptions end, and their ranges."""
        gone = {
            self._sessions.pop(subject).name for subject in subjects if subject in self._sessions
        }
        for place in [place for place in self._tracks if place[0] in gone]:
            track = self._tracks.pop(place)
            if track.open is not None:
                self._close(track, now)

    def unsent(self, now: int) -> tuple[list[list[Receipt]], int]:
        """What is to be sent now, in lists for a command each, and the mark to send with it."""
        new = list(self._waiting)[max(0, self._sent - self._first) :]
        self._mark += 1
        self._sent = self._first + len(self._waiting)
        self._marks[self._mark] = self._sent
        return list(_portions(each.receipt(now) for each in new)), self._mark

    def confirmed(self, mark: int) -> None:
        """The server has what was sent with this mark."""
        end = self._marks.pop(mark, 0)
        while self._first < end:
            self._waiting.popleft()
            self._first += 1

    def _range(
        self, track: Track, event: MessageEvent, session: Session, history: str, now: int
    ) -> Range:
        """The range that the message belongs to; a new one where it does not follow the last."""
        seq, at = event.seq, track.open
        last = at.seq_hi if at is not None else track.earlier[-1][1] if track.earlier else None
        follows = last is None or seq == last + 1 or (event.prev and event.prev.seq == last)
        skipped = seq - last - 1 if session.conflated and last is not None and seq > last else 0
        if at is not None and (follows or skipped) and at.crc_at < _CRC_AT_HIGH:
            at.conflated += skipped
            return at
        if at is not None:
            self._close(track, now)
        twice = track.has(seq)
        at = track.open = Range(
            session.name,
            history,
            self._via,
            event.subject,
            event.epoch,
            seq,
            seq,
            now,
            now,
            dups=int(twice),
            reordered=int(last is not None and seq < last and not twice),
            conflated=skipped,
        )
        return at

    def _close(self, track: Track, now: int) -> None:
        assert track.open is not None
        track.open.closed = now
        track.earlier.append((track.open.seq_lo, track.open.seq_hi))
        self._waiting.append(track.open)
        track.open = None
        if len(self._waiting) > limits.RECEIPTS_KEPT_MAX:
            self._waiting.popleft()
            self._first += 1
            self.dropped += 1


def _portions(receipts: Iterable[Receipt]) -> Iterator[list[Receipt]]:
    portion: list[Receipt] = []
    size = 0
    for receipt in receipts:
        takes = _RECEIPT_BYTES + 2 * len(receipt.subject)
        if portion and size + takes > limits.CLIENT_COMMAND_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append(receipt)
        size += takes
    if portion:
        yield portion
