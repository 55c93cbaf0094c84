"""From a publish command to a publication, or to the reason why not; and its result."""

import functools

from attrs import frozen

from mdserver.core.commands import Publish
from mdserver.core.entitlement import Policy, permits
from mdserver.core.events import Error, Status, StatusName
from mdserver.core.inputs import Denied
from mdserver.core.message import Publication
from mdserver.core.proposal import Outcome
from mdserver.core.session import Session
from mdserver.core.settings import BrokerSettings
from mdserver.core.snapshot import fields_bytes
from mdserver.core.subjects import shown, validate_subject
from mdserver.errors import InvalidSubjectError
from mdserver.limits import VALID_SUBJECTS_KEPT


@frozen
class Malformed:
    """The command cannot be understood."""

    code: str
    reason: str


@frozen
class Refused:
    """The command is understood and refused; `certain` where the status says so."""

    status: StatusName
    reason: str
    certain: bool | None = None


_validate = functools.lru_cache(VALID_SUBJECTS_KEPT)(validate_subject)


def read_publication(
    command: Publish, session: Session, settings: BrokerSettings, now: int
) -> Publication | Malformed | Refused:
    """Check what the command says and what the session may do."""
    subject, number = command.subject, command.number or 0
    try:
        least, most = settings.subject_segments_min, settings.subject_segments_max
        _validate(subject, least, most)
        if command.reply_subject is not None:
            _validate(command.reply_subject, least, most)
        text = command.content is not None
        content = (
            command.content.encode() if command.content is not None else command.content_base64
        )
        fields = command.fields or None
        size = len(content or b"") if fields is None else len(content or b"") + fields_bytes(fields)
    except InvalidSubjectError as error:
        return Malformed("invalid-subject", str(error))
    except UnicodeEncodeError:
        return Malformed(
            "invalid-value", "A text has half of a surrogate pair: send valid Unicode."
        )
    if content is None:
        return Malformed("missing-key", "A publication has `content` or `content_base64`.")
    if number and not session.publisher:
        return Malformed(
            "invalid-value", "`number` needs a `publisher`: name it in the `connect` command."
        )
    publisher = session.publisher if number else ""
    if number and session.idempotency_key:
        # Each number is a publisher of its own, so that none waits for the one before it.
        publisher, number = f"{publisher}/{number}", 1
    refused = _refused(subject, command.reply_subject, size, session, settings)
    return refused or Publication(
        subject, content, text, fields, command.closure, command.retained, command.qos,
        command.compressed, command.reply_subject, publisher, number, now,
    )  # fmt: skip


def undecided(denied: Denied) -> Refused:
    """Return the refusal of a publication that a verdict denied, or that nobody decided about."""
    if denied.busy:
        return Refused(StatusName.PUBLISH_FAILED, denied.reason, certain=True)
    return Refused(StatusName.PUBLISH_DENIED, denied.reason)


def _refused(
    subject: str, reply: str | None, size: int, session: Session, settings: BrokerSettings
) -> Refused | None:
    most = settings.message_bytes_max
    if size > most:
        reason = f"Content and fields have {size} bytes: at most {most} are allowed."
        return Refused(StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED, reason)
    denial = may_publish(subject, session, settings)
    if denial is None and reply is not None and not permits(session.readable, reply):
        # Others write there on behalf of the publisher, who must not reach beyond its own rights.
        denial = (
            f"The token does not allow subscribing to {shown(reply)}, "
            "which `reply_subject` names for replies."
        )
    return None if denial is None else Refused(StatusName.PUBLISH_DENIED, denial)


def may_publish(subject: str, session: Session, settings: BrokerSettings) -> str | None:
    """Why a session may not publish to a subject; None where it may."""
    if not session.address_allowed:
        return (
            f"Nobody may publish from the address {session.address}: the server's configuration "
            "lists others in `PublishAllowFromAddressList`."
        )
    if settings.policy is Policy.BASIC and not session.trusted:
        if not settings.allow_token:
            return (
                "Nobody may publish: with `Entitlement = Basic` the server's configuration has to "
                "name a token in `EntitlementAllowToken`, which publishers connect with."
            )
        return "Only clients that connect with the token `EntitlementAllowToken` may publish."
    if session.writable is not None and not permits(session.writable, subject):
        return f"The token does not allow publishing to {shown(subject)}."
    return None


def refusal(command: Publish, refused: Refused | Malformed) -> Status | Error:
    """How the publisher hears of it: a status, or an error where it could not tell which one."""
    if isinstance(refused, Malformed):
        return Error(code=refused.code, reason=refused.reason, id=command.id)
    if command.closure is None and command.id is None:
        return Error(code=error_code(refused.status), reason=refused.reason)
    return Status(
        status=refused.status,
        subject=command.subject,
        reason=refused.reason,
        closure=command.closure,
        id=command.id,
        certain=refused.certain,
    )


def error_code(status: StatusName) -> str:
    """The word for a refusal that goes out as an error."""
    return status.value.lower().replace("_", "-")


def accepted(outcome: Outcome) -> Status:
    """The answer to a publication that has its place."""
    origin = outcome.origin
    forgotten = outcome.duplicate and not outcome.epoch
    return Status(
        status=StatusName.PUBLISH_OK,
        subject=origin.subject,
        closure=origin.closure,
        id=origin.id,
        epoch=None if forgotten else outcome.epoch,
        seq=None if forgotten else outcome.seq,
        duplicate=outcome.duplicate,
    )


def failed(outcome: Outcome) -> Status:
    """The answer to a publication that got no place, or perhaps none."""
    origin = outcome.origin
    return Status(
        status=StatusName.PUBLISH_FAILED,
        subject=origin.subject,
        reason=outcome.reason,
        closure=origin.closure,
        id=origin.id,
        certain=outcome.certain,
        expected=outcome.expected,
    )
