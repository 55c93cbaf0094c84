"""Publications of clients: from the command to a proposal, and from its outcome to the answer.

A command becomes a `Publication`, or the reason why it cannot (`MalformedPublication`,
`RefusedPublication`). A publication that is allowed leaves the broker as a `Proposal` for the log
of its subject's group. The log answers each proposal with exactly one `Outcome`.

The publisher gets a status if it named its publication (`closure` or `id`). Without a name it could
not tell what a status is about, so it gets nothing for a success and an `error` for a failure.

A failure that is `certain` left no trace: the publication will not be committed later either, so
the publisher may repeat it without creating a duplicate.
"""

import functools
from collections.abc import Iterable, Mapping

from attrs import frozen

from mdserver.core.audit import publish_log, refused_log
from mdserver.core.cache import Cache
from mdserver.core.commands import Publish
from mdserver.core.entitlement import Policy, permits
from mdserver.core.events import Error, Status, StatusName
from mdserver.core.histories import Histories
from mdserver.core.inputs import Denied, Verdict
from mdserver.core.message import Publication, Qos
from mdserver.core.outputs import Output, Send
from mdserver.core.proposal import Origin, Outcome, Proposal
from mdserver.core.publishers import counted
from mdserver.core.session import Session, SessionState
from mdserver.core.settings import BrokerSettings
from mdserver.core.snapshot import fields_bytes
from mdserver.core.subjects import is_servers_own, shown, validate_subject
from mdserver.errors import InvalidSubjectError
from mdserver.limits import PUBLISHER_SERIES_NUMBERS, VALID_SUBJECTS_KEPT

# Looking up a member of an enum takes CPython 3.11 as long as a call, and these are needed for each
# publication.
_BASIC, _STANDARD, _ENDED = Policy.BASIC, Qos.STANDARD, SessionState.ENDED
_PUBLISH_OK = StatusName.PUBLISH_OK


@frozen
class MalformedPublication:
    """A command that cannot be understood, and why."""

    code: str
    reason: str


@frozen
class RefusedPublication:
    """A command that is understood and refused; `certain` if the status has to say so."""

    status: StatusName
    reason: str
    certain: bool | None = None


@functools.lru_cache(VALID_SUBJECTS_KEPT)
def _servers_own(subject: str, least: int, most: int) -> bool:
    """Return whether only the server may publish to a subject. Raises InvalidSubjectError."""
    validate_subject(subject, least, most)
    return is_servers_own(subject)


def read_publication(
    command: Publish, session: Session, settings: BrokerSettings, now: int
) -> Publication | MalformedPublication | RefusedPublication:
    """Return the publication that a command describes, or why the session may not make it."""
    subject, number = command.subject, command.number or 0
    try:
        least, most = settings.subject_segments_min, settings.subject_segments_max
        own = _servers_own(subject, least, most)
        if command.reply_subject is not None:
            _servers_own(command.reply_subject, least, most)
        text = command.content is not None
        content = (
            command.content.encode() if command.content is not None else command.content_base64
        )
        fields = command.fields or None
        size = len(content or b"") if fields is None else len(content or b"") + fields_bytes(fields)
    except InvalidSubjectError as error:
        return MalformedPublication("invalid-subject", str(error))
    except UnicodeEncodeError:
        return MalformedPublication(
            "invalid-value", "A text has half of a surrogate pair: send valid Unicode."
        )
    if content is None:
        return MalformedPublication(
            "missing-key", "A publication has `content` or `content_base64`."
        )
    if number and not session.publisher:
        return MalformedPublication(
            "invalid-value", "`number` needs a `publisher`: name it in the `connect` command."
        )
    publisher = session.publisher if number else ""
    if number and session.idempotency_key:
        # Each number is a publisher of its own, so that none waits for the one before it.
        publisher, number = f"{publisher}/{number}", 1
    elif number > PUBLISHER_SERIES_NUMBERS:
        publisher, number = counted(publisher, number)
    if own:
        return RefusedPublication(
            StatusName.PUBLISH_DENIED,
            f"Only the server itself publishes to {shown(subject)}: subjects that begin with "
            "'/__mdserver__/' are its own.",
        )
    refused = _refused(subject, command.reply_subject, size, session, settings)
    return refused or Publication(
        subject,
        content,
        text,
        fields,
        command.closure,
        command.retained,
        command.qos,
        command.compressed,
        command.reply_subject,
        publisher,
        number,
        now,
    )


def undecided(denied: Denied) -> RefusedPublication:
    """Return the refusal of a publication that a verdict denied or left undecided (`busy`)."""
    if denied.busy:
        return RefusedPublication(StatusName.PUBLISH_FAILED, denied.reason, certain=True)
    return RefusedPublication(StatusName.PUBLISH_DENIED, denied.reason)


def _refused(
    subject: str, reply: str | None, size: int, session: Session, settings: BrokerSettings
) -> RefusedPublication | None:
    """Return why a session may not make a publication of `size` bytes, None if it may."""
    most = settings.message_bytes_max
    if size > most:
        reason = f"Content and fields have {size} bytes: at most {most} are allowed."
        return RefusedPublication(StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED, reason)
    denial = None
    if not session.address_allowed:
        denial = (
            f"Nobody may publish from the address {session.address}: the server's configuration "
            "lists others in `PublishAllowFromAddressList`."
        )
    elif settings.policy is _BASIC and not session.trusted:
        denial = (
            "Only clients that connect with the token `EntitlementAllowToken` may publish."
            if settings.allow_token
            else "Nobody may publish: with `Entitlement = Basic` the server's configuration has to "
            "name a token in `EntitlementAllowToken`, which publishers connect with."
        )
    elif session.writable is not None and not permits(session.writable, subject):
        denial = f"The token does not allow publishing to {shown(subject)}."
    elif reply is not None and not permits(session.readable, reply):
        # Subscribers publish their replies there, perhaps with more rights than the publisher has.
        # Without this check it could have them write to a subject that it may not even read.
        denial = (
            f"The token does not allow subscribing to {shown(reply)}, "
            "which `reply_subject` names for replies."
        )
    return None if denial is None else RefusedPublication(StatusName.PUBLISH_DENIED, denial)


def refusal(command: Publish, refused: RefusedPublication | MalformedPublication) -> Status | Error:
    """Return the answer to a refused command: a status, or an error if it has no name."""
    if isinstance(refused, MalformedPublication):
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
    """Return the code of an `error` that stands for a status."""
    return status.value.lower().replace("_", "-")


def accepted(outcome: Outcome) -> Status:
    """Return the answer to a publication that was committed."""
    origin = outcome.origin
    # The number of an old duplicate is remembered longer than its position.
    forgotten = outcome.duplicate and not outcome.epoch
    return Status(
        status=_PUBLISH_OK,
        subject=origin.subject,
        closure=origin.closure,
        id=origin.id,
        epoch=None if forgotten else outcome.epoch,
        seq=None if forgotten else outcome.seq,
        duplicate=outcome.duplicate,
    )


def failed(outcome: Outcome) -> Status:
    """Return the answer to a publication that was not committed or whose result is uncertain."""
    origin, expected = outcome.origin, outcome.expected
    return Status(
        status=StatusName.PUBLISH_FAILED,
        subject=origin.subject,
        reason=outcome.reason,
        closure=origin.closure,
        id=origin.id,
        certain=outcome.certain,
        expected=None if expected is None else origin.before + expected,
    )


class Publications:
    """The publications of this member's clients, from their command to the answer.

    `count` is how many were understood and allowed. `refusing` is the reason why publications that
    need a place in a log are refused at the moment, None if they are accepted. STANDARD ones need
    no place and are never refused for it.
    """

    def __init__(self, settings: BrokerSettings, cache: Cache, histories: Histories) -> None:
        self.settings = settings
        self.count = 0
        self.refusing: str | None = None
        self._cache = cache
        self._histories = histories
        self._proposals: list[Proposal] = []

    def take_proposals(self) -> list[Proposal]:
        """Return what was proposed since the last call, in order."""
        proposals, self._proposals = self._proposals, []
        return proposals

    def publish(
        self, session: Session, command: Publish, verdict: Verdict, now: int, out: list[Output]
    ) -> None:
        """Propose the publication of a command, or tell the client why that is not possible."""
        read: Publication | MalformedPublication | RefusedPublication = (
            undecided(verdict)
            if isinstance(verdict, Denied)
            else read_publication(command, session, self.settings, now)
        )
        if type(read) is Publication:
            self.count += 1
            lack = None
            if read.qos is not _STANDARD:
                lack = self.refusing or self._cache.make_room(read, now)
            if lack is None:
                audited = read if self.settings.audit_message else None
                fields = read.fields is not None and read.retained and read.qos is Qos.GUARANTEED
                before = command.number - read.number if command.number else 0
                origin = Origin(
                    session.id,
                    command.closure,
                    command.id,
                    command.subject,
                    audited,
                    fields,
                    before,
                )
                self._proposals.append(Proposal(origin, read))
                return
            read = RefusedPublication(StatusName.PUBLISH_FAILED, lack, certain=True)
        assert not isinstance(read, Publication)
        out.append(Send(session.id, refusal(command, read)))
        if self.settings.audit_message:
            out.append(refused_log(session, command, read.reason, now))

    def resolve(
        self,
        outcomes: Iterable[Outcome],
        sessions: Mapping[int, Session],
        now: int,
        out: list[Output],
    ) -> None:
        """Take the outcomes of proposals and answer; `sessions` are all that exist, by number."""
        for outcome in outcomes:
            origin = outcome.origin
            session = sessions.get(origin.session)
            if origin.fields and origin.subject is not None:
                self._cache.landed(origin.subject)
            if origin.publication is not None:
                history = self._histories.current
                out.append(publish_log(outcome, origin.publication, session, history, now))
            if session is None or session.state is _ENDED:
                continue
            if origin.closure is not None or origin.id is not None:
                answer = accepted(outcome) if outcome.reason is None else failed(outcome)
                out.append(Send(origin.session, answer))
            elif outcome.reason is not None:
                code = error_code(StatusName.PUBLISH_FAILED)
                out.append(Send(origin.session, Error(code=code, reason=outcome.reason)))
