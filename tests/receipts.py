"""Receipts for tests: of messages whose contents are known, right unless something is changed."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from mdserver.core.commands import Receipt
from mdserver.core.message import checksum, fields_checksum
from mdserver.journal.rows import ROW_VERSION, ReceiptRow


def numbered(seq: int) -> bytes:
    """The content of a message whose test does not care."""
    return b"%d" % seq


def without_fields(_: int) -> None:
    """The fields of a message whose test does not care."""


def sums(
    subject: str,
    seqs: Sequence[int],
    content: Callable[[int], bytes] = numbered,
    epoch: int = 1,
    fields: Callable[[int], dict[str, str] | None] = without_fields,
) -> dict[str, int]:
    """What a receipt says of the range in which these messages came, in this order."""
    got = dict.fromkeys(seqs)
    first = min(seqs)
    crcs = {seq: checksum(subject, epoch, seq, content(seq)) for seq in got}
    digests = {seq: fields_checksum(subject, epoch, seq, fields(seq)) for seq in got}
    return {
        "epoch": epoch,
        "seq_lo": first,
        "seq_hi": max(seqs),
        "n": len(got),
        "crc_sum": sum(crcs.values()),
        "crc_at": sum(crc * (seq - first) for seq, crc in crcs.items()),
        "dups": len(seqs) - len(got),
        "reordered": sum(later < earlier for earlier, later in pairwise(seqs)),
        "fields_sum": sum(digests.values()),
        "fields_at": sum(digest * (seq - first) for seq, digest in digests.items()),
    }


def receipt(
    subject: str = "/a/b",
    seqs: Sequence[int] = (1, 2, 3),
    content: Callable[[int], bytes] = numbered,
    **changed: Any,
) -> Receipt:
    """What a client says of messages that it got just now."""
    values: dict[str, Any] = {
        "session": "s.1",
        "history": "h1",
        "subject": subject,
        "via": "m",
        "opened_ms": 0,
        "closed_ms": 0,
        **sums(subject, seqs, content),
    }
    return Receipt(**(values | changed))


def receipt_row(
    subject: str = "/a/b",
    seqs: Sequence[int] = (1, 2, 3),
    content: Callable[[int], bytes] = numbered,
    **changed: Any,
) -> ReceiptRow:
    """The line of the journal about a receipt; times are in us."""
    values: dict[str, Any] = {
        "v": ROW_VERSION,
        "session": "s1",
        "subscriber": "ann",
        "history": "h1",
        "subject": subject,
        "conflated": 0,
        "via": "n1",
        "opened_ts": 1,
        "closed_ts": 2,
        **sums(subject, seqs, content),
    }
    return ReceiptRow(**(values | changed))
