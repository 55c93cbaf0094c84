"""The lines of the audit streams; their columns are described in docs/operations.md."""

from mdserver.core.commands import Publish, Receipt
from mdserver.core.message import Publication
from mdserver.core.outputs import Log
from mdserver.core.proposal import Outcome
from mdserver.core.session import Session

ACCESS = "access"
PRESENCE = "presence"
MESSAGE = "message"
CACHE = "cache"
RECEIPTS = "receipts"

NS_PER_US = 1_000
US_PER_MS = 1_000


def session_log(
    stream: str, name: str, session: Session, now: int, **values: str | int | None
) -> Log:
    """Return a line about a session; `now` is in ns since the Unix epoch, here and below."""
    return Log(
        stream,
        name,
        {
            "time": now,
            "session": session.id,
            "address": session.address,
            "transport": session.transport,
            "client": session.client,
            "user": session.user,
            **values,
        },
    )


def presence_log(name: str, session: Session, subject: str, now: int) -> Log:
    """Return a line about a session that began or ceased to be subscribed to a subject.

    It has the external token, by which the application knows the client.
    """
    external = session.external_token
    return session_log(PRESENCE, name, session, now, external_token=external, subject=subject)


def publish_log(
    outcome: Outcome, publication: Publication, session: Session | None, history: str, now: int
) -> Log:
    """Return a line about the outcome of a publication.

    `history` is the history id of its position; `session` is None if it is gone.
    """
    fields = publication.fields or {}
    size = sum(len(name.encode()) + len(value.encode()) for name, value in fields.items())
    return Log(
        MESSAGE,
        "publish" if outcome.reason is None else "publish-failed",
        {
            "time": now,
            "session": outcome.origin.session,
            "subject": publication.subject,
            "bytes": len(publication.content) + size,
            "retained": publication.retained,
            "qos": publication.qos.value,
            "closure": publication.closure,
            "publisher": publication.publisher or None,
            "number": publication.number or None,
            "epoch": outcome.epoch,
            "seq": outcome.seq,
            "reason": outcome.reason,
            "history": history if outcome.seq else None,
        },
        None if session is None else session.address,
    )


def refused_log(session: Session, command: Publish, reason: str, now: int) -> Log:
    """Return a line about a publication that the broker itself refused."""
    return Log(
        MESSAGE,
        "publish-denied",
        {
            "time": now,
            "session": session.id,
            "subject": command.subject,
            "closure": command.closure,
            "reason": reason,
        },
        session.address,
    )


def receipt_log(
    session: Session, receipt: Receipt, owner: str, left_out: int, now: int, *, verified: bool
) -> Log:
    """Return a line about a receipt; the client gave its times as ages.

    `owner` is the publisher identity or the session that the receipt is from, `left_out` how many
    receipts of the same session were not recorded before it, `verified` whether this member
    confirms it.
    """
    return Log(
        RECEIPTS,
        "receipt",
        {
            "time": now,
            "session": receipt.session,
            "subscriber": session.user or session.external_token or session.client or "",
            "history": receipt.history,
            "subject": receipt.subject,
            "epoch": receipt.epoch,
            "seq_lo": receipt.seq_lo,
            "seq_hi": receipt.seq_hi,
            "n": receipt.n,
            "crc_sum": receipt.crc_sum,
            "crc_at": receipt.crc_at,
            "dups": receipt.dups,
            "reordered": receipt.reordered,
            "conflated": receipt.conflated,
            "via": receipt.via,
            "opened_ts": max(0, now // NS_PER_US - receipt.opened_ms * US_PER_MS),
            "closed_ts": max(0, now // NS_PER_US - receipt.closed_ms * US_PER_MS),
            "owner": owner,
            "verified": verified,
            "left_out": left_out,
            "fields_sum": receipt.fields_sum,
            "fields_at": receipt.fields_at,
        },
    )


def dropped_log(name: str, messages: int, size: int, now: int) -> Log:
    """Return a line about the messages that left the cache since the last line of this name."""
    return Log(CACHE, name, {"time": now, "messages": messages, "bytes": size})
