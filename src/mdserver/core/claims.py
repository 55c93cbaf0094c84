"""Receipts: which claims of clients are recorded, and which of them this member confirms.

A receipt is a claim of a client that it received a range of messages. It is recorded if its numbers
can be those of a range, and the session may read the subject, or was subscribed to it by name. It
is confirmed if, besides, the session is or was subscribed to the subject at this member, all
messages of the range are in the cache, and their checksums are those that the client computed.

What is recorded takes space in the journal, and confirming takes time. So the receipts of a
session, and those of all sessions of one address, are limited in number, and the work of confirming
is limited for each session and each command.
"""

from collections.abc import Sequence

from mdserver.core.audit import ACCESS, receipt_log, session_log
from mdserver.core.cache import Cache
from mdserver.core.commands import Receipt, Receipts
from mdserver.core.entitlement import permits
from mdserver.core.events import Error
from mdserver.core.histories import Histories
from mdserver.core.interest import Interest
from mdserver.core.message import Entry, Publication, checksum, fields_checksum
from mdserver.core.outputs import Output, Send
from mdserver.core.session import Session, session_name
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import segments_of, shown, validate_subject
from mdserver.errors import InvalidSubjectError
from mdserver.limits import (
    NS_PER_S,
    RECEIPT_CONFIRM_BYTES_AT_ONCE,
    RECEIPT_CONFIRM_BYTES_MAX,
    RECEIPT_COUNT_MAX,
    RECEIPT_ENTRY_BYTES,
    RECEIPT_SEQ_MAX,
    RECEIPT_VISIT_BYTES,
    RECEIPTS_ADDRESSES_MAX,
    RECEIPTS_PER_ADDRESS_MAX,
    RECEIPTS_PER_SESSION_MAX,
    RECEIPTS_S,
)

_FULL = (
    f"at most {RECEIPTS_PER_SESSION_MAX:,} of a session and {RECEIPTS_PER_ADDRESS_MAX:,} of an"
    f" address are in {RECEIPTS_S} s"
)


class ReceiptShare:
    """The receipts of a session or an address in the present period of RECEIPTS_S.

    `work` is the cost of confirming those of a session.
    """

    __slots__ = ("left_out", "since", "taken", "work")

    def __init__(self) -> None:
        self.since = 0
        self.taken = 0
        self.work = 0
        self.left_out = 0
        """Receipts that were not recorded since the latest one that was."""

    def look(self, now: int) -> None:
        """Begin a new period if the present one is over."""
        if now - self.since >= RECEIPTS_S * NS_PER_S:
            self.since, self.taken, self.work = now, 0, 0


def _misnumbered(receipt: Receipt) -> str | None:
    """Return why the numbers of a receipt cannot be those of a range, None if they can."""
    low, high = receipt.seq_lo, receipt.seq_hi
    if not low <= high <= RECEIPT_SEQ_MAX:
        return f"seq_lo {low} to seq_hi {high} is no range of numbers up to {RECEIPT_SEQ_MAX}."
    if max(receipt.n, receipt.dups, receipt.reordered, receipt.conflated) > RECEIPT_COUNT_MAX:
        return f"n, dups, reordered and conflated may be {RECEIPT_COUNT_MAX} at most."
    return None


def _checked_bytes(publication: Publication) -> int:
    """Return roughly how many bytes the checksums of a message are made of."""
    fields = publication.fields or {}
    told = sum(len(name) + len(value) for name, value in fields.items())
    return len(publication.content) + told


class Claims:
    """Takes the receipts of all sessions; `work` is what confirming them has cost, in bytes."""

    def __init__(
        self, settings: BrokerSettings, cache: Cache, interest: Interest, histories: Histories
    ) -> None:
        self.work = 0
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._histories = histories
        self._addresses: dict[str, ReceiptShare] = {}
        """By address, the one with the latest receipts last."""

    def take(self, session: Session, command: Receipts, now: int, out: list[Output]) -> None:
        """Record receipts; those that are refused or left out are answered once a command."""
        if not self._settings.receipts:
            return
        share, address = self._shares(session, now)
        refused: list[str] = []
        left_out = 0
        most = min(
            self.work + RECEIPT_CONFIRM_BYTES_AT_ONCE,
            self.work + RECEIPT_CONFIRM_BYTES_MAX - share.work,
        )
        before = self.work
        for receipt in command.receipts:
            if share.taken >= RECEIPTS_PER_SESSION_MAX or address.taken >= RECEIPTS_PER_ADDRESS_MAX:
                left_out += 1
                continue
            share.taken += 1
            address.taken += 1
            denial = _misnumbered(receipt) or self._denial(session, receipt.subject)
            if denial is not None:
                refused.append(denial)
                continue
            verified = self._confirms(session, receipt, most, now)
            owner = session.publisher or session_name(self._settings.member, session.id)
            out.append(receipt_log(session, receipt, owner, share.left_out, now, verified=verified))
            share.left_out = 0
        share.left_out += left_out
        share.work += self.work - before
        if refused:
            reason = f"{len(refused):,} receipts were refused; the first: {refused[0]}"
            self._answer(session, "receipts-refused", reason, command, out)
        if left_out:
            reason = f"{left_out:,} receipts were left out: {_FULL}."
            self._answer(session, "receipts-left-out", reason, command, out)

    def ended(self, session: Session, now: int, out: list[Output]) -> None:
        """Log the receipts of a session that were left out after the last one recorded."""
        share = session.receipts
        if share is not None and share.left_out and self._settings.audit_access:
            reason = f"{share.left_out:,} receipts were left out."
            log = session_log(ACCESS, "receipts-left-out", session, now, reason=reason)
            out.append(log)

    def _shares(self, session: Session, now: int) -> tuple[ReceiptShare, ReceiptShare]:
        if session.receipts is None:
            session.receipts = ReceiptShare()
        address = self._addresses.pop(session.address, None) or ReceiptShare()
        self._addresses[session.address] = address
        if len(self._addresses) > RECEIPTS_ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]
        session.receipts.look(now)
        address.look(now)
        return session.receipts, address

    def _answer(
        self, session: Session, code: str, reason: str, command: Receipts, out: list[Output]
    ) -> None:
        out.append(Send(session.id, Error(code=code, reason=reason, id=command.id)))

    def _denial(self, session: Session, subject: str) -> str | None:
        """Return why a receipt about this subject is refused, None if it is not."""
        settings = self._settings
        try:
            validate_subject(subject, settings.subject_segments_min, settings.subject_segments_max)
        except InvalidSubjectError as error:
            return str(error)
        was_allowed = subject in (session.ended or ())
        if was_allowed or permits(session.readable, subject):
            return None
        return f"The token does not allow reading {shown(subject)}."

    def _confirms(self, session: Session, receipt: Receipt, work_max: int, now: int) -> bool:
        """Return whether this member confirms a receipt, within the limit `work_max` of `work`."""
        if self.work >= work_max or not self._histories.know(receipt.subject, receipt.history):
            return False
        entries = self._range(receipt, now)
        costs = sum(RECEIPT_ENTRY_BYTES + _checked_bytes(one.publication) for one in entries)
        if not entries or self.work + costs > work_max or not self._subscribed(session, receipt):
            return False
        self.work += costs
        crc_sum = crc_at = fields_sum = fields_at = 0
        for distance, entry in enumerate(entries):
            if entry.epoch != receipt.epoch:
                return False
            place = receipt.subject, entry.epoch, entry.seq
            crc = checksum(*place, entry.publication.content)
            crc_sum += crc
            crc_at += crc * distance
            fields = fields_checksum(*place, entry.publication.fields)
            fields_sum += fields
            fields_at += fields * distance
        # A client of an earlier release says nothing of fields.
        told = receipt.fields_sum is not None and receipt.fields_at is not None
        same = not told or (fields_sum, fields_at) == (receipt.fields_sum, receipt.fields_at)
        return same and (crc_sum, crc_at) == (receipt.crc_sum, receipt.crc_at)

    def _range(self, receipt: Receipt, now: int) -> Sequence[Entry]:
        """Return the cached messages of a range, or none if one of them is not cached."""
        count = receipt.seq_hi - receipt.seq_lo + 1
        state = self._cache.find(receipt.subject)
        if state is None or count < 1 or count != receipt.n:
            return ()
        if count > RECEIPT_CONFIRM_BYTES_AT_ONCE // RECEIPT_ENTRY_BYTES:
            return ()
        entries = self._cache.entries(state, now)
        first = receipt.seq_lo - entries[0].seq if entries else -1
        if first < 0 or first + count > len(entries):
            return ()
        self.work += count * RECEIPT_VISIT_BYTES
        return entries[first : first + count]

    def _subscribed(self, session: Session, receipt: Receipt) -> bool:
        """Return whether a session is or was subscribed to this subject at this member."""
        subject, ended = receipt.subject, session.ended
        visited = self._interest.visited
        if self._interest.chosen(session, subject) is not None:
            found = True
        elif not ended:
            found = False
        else:
            segments = segments_of(subject)
            found = subject in ended or any(
                pattern is not None and pattern.matches(segments) for pattern in ended.values()
            )
            self.work += len(ended) * RECEIPT_VISIT_BYTES
        self.work += (self._interest.visited - visited) * RECEIPT_VISIT_BYTES
        return found
