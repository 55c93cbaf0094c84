"""The receipts of a client: its reports of what it received (docs/protocol.md, "Receipts").

A receipt describes a range: messages of one subject that follow each other. A range ends, and the
next one begins, when the numbering has a hole, when a message comes twice or late, when a
connection is lost, and once a minute. So a message that is missing lies between two ranges, and a
message that came twice or late is the first of its range.

Ranges that ended wait until the server confirms them. After a lost connection everything that is
not confirmed is sent again. Ranges are counted from the first one on: `_first` is the number of the
oldest waiting range, `_sent` that of the first one not yet sent on this connection.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from attrs import define, field, frozen

from mdserver import limits
from mdserver.core.commands import Receipt
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType, checksum, fields_checksum
from mdserver.limits import NS_PER_MS

_CRC_AT_HIGH = 2**62  # a range whose sum is this high ends: receipts carry numbers of 63 bits
_RECEIPT_BYTES = 450  # roughly what a receipt takes in JSON besides its subject


@frozen
class ReceiptSession:
    """One subscription, as receipts name it.

    A new subscription has a new name, because it claims nothing about the time before it.
    """

    name: str
    conflated: bool


@define(eq=False)
class Range:
    """Messages of a subject that follow each other; times in ns of the client's clock.

    `crc_sum`, `crc_at`, `fields_sum` and `fields_at` are as in docs/protocol.md; `n`, `dups`,
    `reordered` and `conflated` count messages.
    """

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
    fields_sum: int = 0
    fields_at: int = 0
    dups: int = 0
    reordered: int = 0
    conflated: int = 0
    fields_told: bool = True
    """Whether each message came with its own fields: a conflated one has those of several."""

    def receipt(self, now: int) -> Receipt:
        """Return the receipt of this range, with its times as ages at `now`."""
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
            fields_sum=self.fields_sum if self.fields_told else None,
            fields_at=self.fields_at if self.fields_told else None,
        )


@define(eq=False)
class Track:
    """A subject within an epoch: its open range, and the ends of the ranges before it.

    Only the last `RECEIPT_RANGES_KEPT` earlier ranges are known.
    """

    open: Range | None = None
    earlier: deque[tuple[int, int]] = field(
        factory=lambda: deque(maxlen=limits.RECEIPT_RANGES_KEPT)
    )

    def has(self, seq: int) -> bool:
        """Return whether this number was received in an earlier range that is still known."""
        return any(low <= seq <= high for low, high in self.earlier)


class ReceiptBook:
    """The receipts of one client, until the server has confirmed them.

    At most `RECEIPTS_KEPT_MAX` wait. Beyond that the oldest are dropped, and `dropped` counts them.
    """

    def __init__(self, client: str) -> None:
        self.dropped = 0
        self._client = client
        self._sessions: dict[str, ReceiptSession] = {}
        self._count = 0
        self._tracks: dict[tuple[str, str, str, int], Track] = {}
        self._waiting: deque[Range] = deque()
        self._first = 0  # the number of the oldest waiting range
        self._sent = 0  # the number of the first range not yet sent on this connection
        self._marks: dict[int, int] = {}
        self._mark = 0
        self._via = ""

    def __len__(self) -> int:
        return len(self._waiting)

    def subscribed(self, subjects: Iterable[str], *, conflated: bool) -> None:
        """Begin a session for these subjects and patterns, which were just subscribed.

        Messages that come through them belong to this session, which promises nothing about the
        time before.
        """
        self._count += 1
        session = ReceiptSession(f"{self._client}.{self._count}", conflated)
        self._sessions |= dict.fromkeys(subjects, session)

    def connected(self, via: str) -> None:
        """Note a new connection, to the member `via`; what is not confirmed is to be sent again."""
        for track in self._tracks.values():
            if track.open is not None:
                self._close(track, track.open.closed)
        self._via = via
        self._sent = self._first
        self._marks = {}

    def delivered(self, event: MessageEvent, key: str, history: str, now: int) -> None:
        """Note a message that the application gets through the subscription `key`.

        Snapshots and STANDARD messages are in no receipt. `now` is in ns.
        """
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
        if event.fields:
            digest = fields_checksum(event.subject, event.epoch, event.seq, event.fields)
            at.fields_sum += digest
            at.fields_at += digest * (event.seq - at.seq_lo)

    def cut(self, now: int) -> None:
        """End all open ranges, so that their receipts can be sent; forget idle subjects."""
        tracks, self._tracks = self._tracks, {}
        for place, track in tracks.items():
            if track.open is not None:
                self._close(track, now)
                self._tracks[place] = track

    def unsubscribed(self, subjects: Iterable[str], now: int) -> None:
        """End the sessions of these subscriptions, and their ranges."""
        gone = {
            self._sessions.pop(subject).name for subject in subjects if subject in self._sessions
        }
        for place in [place for place in self._tracks if place[0] in gone]:
            track = self._tracks.pop(place)
            if track.open is not None:
                self._close(track, now)

    def unsent(self, now: int) -> tuple[list[list[Receipt]], int]:
        """Return the receipts to send now, and the mark to send with them.

        There is one list of receipts for each command.
        """
        new = list(self._waiting)[max(0, self._sent - self._first) :]
        self._mark += 1
        self._sent = self._first + len(self._waiting)
        self._marks[self._mark] = self._sent
        return list(_portions(each.receipt(now) for each in new)), self._mark

    def confirmed(self, mark: int) -> None:
        """Remove what was sent up to this mark: the server has it."""
        end = self._marks.pop(mark, 0)
        while self._first < end:
            self._waiting.popleft()
            self._first += 1

    def _range(
        self, track: Track, event: MessageEvent, session: ReceiptSession, history: str, now: int
    ) -> Range:
        """Return the range that the message extends; a new one if it does not follow the last."""
        seq, at = event.seq, track.open
        last = at.seq_hi if at is not None else track.earlier[-1][1] if track.earlier else None
        gap = 0 if last is None else seq - last - 1
        # A subject that was forgotten begins above a floor, and names seq 0 there: nothing is left
        # out.
        if gap > 0 and event.prev is not None and event.prev.seq == 0:
            gap = 0
        follows = gap == 0 or (event.prev and event.prev.seq == last)
        skipped = gap if session.conflated and gap > 0 else 0
        if at is not None and (follows or skipped) and max(at.crc_at, at.fields_at) < _CRC_AT_HIGH:
            at.conflated += skipped
            return at
        if at is not None:
            self._close(track, now)
        twice = track.has(seq)
        # The server conflates for a client that reads too slowly as well, if that is its policy.
        hole = gap > 0 and not follows
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
            fields_told=not (session.conflated or hole),
        )
        return at

    def _close(self, track: Track, now: int) -> None:
        """End the open range of a subject, so that it waits to be confirmed."""
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
    """Yield the receipts in lists that each fit into one command."""
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
