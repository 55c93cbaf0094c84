"""Authorization: commands that wait for a verdict about their session, and the life of its token.

Under `Policy.ASK` the core cannot decide itself. It asks (`Authorize`) and goes on with other
sessions until the verdict comes (`Authorized`). The commands of one session take effect in their
order, so while one of them waits for a verdict, all later ones are held as well, whether they need
a verdict or not, up to HELD_COMMANDS_MAX. Their questions are asked at once, not one after the
other, and verdicts may come in any order: commands are released from the head of the queue as far
as all their questions are answered.

After a session has renewed its token, its subscriptions are asked about again (`Recheck`). They go
on meanwhile; one that is denied is revoked when the verdict comes.

A token with an expiry time sets one timer of its session twice. The first time is
`renew_token_before` the expiry, when the client is asked to send a new token (TOKEN_TO_EXPIRE). The
second is the expiry, when the session ends (TOKEN_EXPIRED).
"""

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec
from attrs import frozen

from mdserver.core.commands import AnyCommand, Fetch, Publish, RenewToken, Subscribe
from mdserver.core.entitlement import Policy, parse_grants
from mdserver.core.events import Error, Status, StatusName
from mdserver.core.inputs import Authorized, Denied, Grants, Verdict
from mdserver.core.outputs import Authorize, CancelTimer, Output, Send, SetTimer
from mdserver.core.publications import RefusedPublication, refusal
from mdserver.core.session import HeldCommand, Session
from mdserver.core.settings import BrokerSettings
from mdserver.core.statistics import AuthorizationStatistics
from mdserver.limits import HELD_COMMANDS_MAX, NS_PER_S, RECHECKS_AT_ONCE

TOKEN_TIMER = "token"
"""The middle of the name of a session's timer."""
Question = tuple[str, str | None, str | None]
"""An action, the token and the subject that it is about."""


@frozen
class Recheck:
    """A question about whether an existing subscription may go on."""

    session: Session
    subject: str


class Rechecks:
    """Subscriptions of a session that are asked about again after a new token.

    `left` are those not asked about yet, `requests` the open questions, at most RECHECKS_AT_ONCE:
    a session with many subscriptions must not keep others from being answered.
    """

    __slots__ = ("left", "requests")

    def __init__(self) -> None:
        self.left: deque[str] = deque()
        self.requests: dict[int, None] = {}


class PendingAuthorizations:
    """The questions that are not answered yet, by the number of their request."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._requests: dict[int, tuple[Session, HeldCommand] | Recheck] = {}
        self._rechecks: dict[Session, Rechecks] = {}
        self._request = 0

    def statistics(self) -> AuthorizationStatistics:
        """Return the numbers of what waits for an answer, as a snapshot."""
        return AuthorizationStatistics(len(self._requests), len(self._rechecks))

    def parts(self, command: AnyCommand) -> Sequence[AnyCommand]:
        """Divide a command so that each part subscribes to one subject, and needs one verdict."""
        if not (self._settings.ask_each and isinstance(command, Subscribe)):
            return (command,)
        positions = command.positions or {}
        return [
            msgspec.structs.replace(
                command,
                subjects=[subject],
                # A pattern may need the position of any subject, a subject only its own.
                positions=positions
                if "*" in subject
                else {subject: positions[subject]}
                if subject in positions
                else None,
            )
            for subject in dict.fromkeys(command.subjects)
        ]

    def may_go(self, session: Session, command: AnyCommand, out: list[Output]) -> bool:
        """Return whether a command can be handled at once; if not, ask and hold the command."""
        questions = self._questions(command)
        if session.held is None and not questions:
            return True
        self.hold(session, command, questions, out)
        return False

    def _questions(self, command: AnyCommand) -> list[Question]:
        """Return the questions of which every one has to be granted before a command is handled."""
        if self._settings.policy is Policy.ASK and isinstance(command, RenewToken):
            return [("token", command.token, None)]
        if not self._settings.ask_each:
            return []
        if isinstance(command, Subscribe):
            return [("subscribe", None, command.subjects[0])]
        if isinstance(command, Fetch):
            return [("subscribe", None, command.subject)]
        if isinstance(command, Publish):
            # Others publish to the reply subject on behalf of this session, which therefore needs
            # the right to read there (the same rule as in `core.publications`).
            reply = command.reply_subject
            asked = [] if reply is None else [("subscribe", None, reply)]
            return [("publish", None, command.subject), *asked]
        return []

    def ask(
        self,
        session: Session,
        action: str,
        out: list[Output],
        token: str | None = None,
        subject: str | None = None,
    ) -> int:
        """Ask a question, and return the number of the request."""
        self._request += 1
        out.append(Authorize(self._request, session.id, action, token, subject, session.address))
        return self._request

    def recheck_all(self, session: Session, out: list[Output]) -> None:
        """Ask whether the subscriptions of a session may go on, a few at a time."""
        if session.subscriptions:
            rechecks = self._rechecks.setdefault(session, Rechecks())
            rechecks.left = deque(session.subscriptions)
            self._recheck_next(session, rechecks, out)

    def _recheck_next(self, session: Session, rechecks: Rechecks, out: list[Output]) -> None:
        while rechecks.left and len(rechecks.requests) < RECHECKS_AT_ONCE:
            subject = rechecks.left.popleft()
            if subject in session.subscriptions:
                request = self.ask(session, "subscribe", out, subject=subject)
                rechecks.requests[request] = None
                self._requests[request] = Recheck(session, subject)
        if not rechecks.requests:
            del self._rechecks[session]

    def hold(
        self,
        session: Session,
        command: AnyCommand,
        questions: Sequence[Question],
        out: list[Output],
    ) -> None:
        """Hold a command until its questions and those of the commands before it are answered."""
        if session.held is None:
            session.held = deque()
        if len(session.held) >= HELD_COMMANDS_MAX:
            out.append(Send(session.id, too_many_held(command)))
            return
        held = HeldCommand(command)
        session.held.append(held)
        for action, token, subject in questions:
            request = self.ask(session, action, out, token, subject)
            held.requests[request] = None
            self._requests[request] = (session, held)

    def authorized(self, authorized: Authorized, out: list[Output]) -> Session | Recheck | None:
        """Note a verdict.

        Returns the session whose commands may be `released`, the `Recheck` that the verdict is
        about, or None if the session ended meanwhile.
        """
        waiting = self._requests.pop(authorized.request, None)
        if waiting is None:
            return None
        if isinstance(waiting, Recheck):
            rechecks = self._rechecks[waiting.session]
            del rechecks.requests[authorized.request]
            self._recheck_next(waiting.session, rechecks, out)
            return waiting
        session, held = waiting
        del held.requests[authorized.request]
        # A command may need several verdicts. One denial decides, regardless of the others.
        if not isinstance(held.verdict, Denied):
            held.verdict = authorized.verdict
        return session

    def released(self, session: Session) -> Iterator[HeldCommand]:
        """Yield the commands of a session that need not wait any more, for the caller to handle.

        A command may end the session while it is handled, which empties the queue (`end`).
        """
        while session.held and not session.held[0].requests:
            yield session.held.popleft()
        if not session.held:
            session.held = None

    def end(self, session: Session) -> None:
        """Drop the open questions and the held commands of a session that ends."""
        rechecks = self._rechecks.pop(session, None)
        for request in () if rechecks is None else rechecks.requests:
            del self._requests[request]
        for held in session.held or ():
            for request in held.requests:
                del self._requests[request]
        session.held = None


def too_many_held(command: AnyCommand) -> Status | Error:
    """Return the answer to a command that is dropped because HELD_COMMANDS_MAX wait already."""
    reason = f"More than {HELD_COMMANDS_MAX} commands wait for verdicts: send fewer at a time."
    if isinstance(command, Publish):
        return refusal(command, RefusedPublication(StatusName.PUBLISH_FAILED, reason, certain=True))
    return Error(code="too-many-commands", reason=reason, id=getattr(command, "id", None))


def unexpired(verdict: Verdict, now: int) -> Verdict:
    """Return the verdict, with a denial in place of grants that have expired."""
    if isinstance(verdict, Grants) and verdict.expires is not None and verdict.expires <= now:
        return Denied("The token has expired: get a new one.", StatusName.TOKEN_EXPIRED)
    return verdict


def grant(
    session: Session, grants: Grants | None, renew_before: int, now: int, out: list[Output]
) -> None:
    """Give a session the rights of its token, None for all rights, and set the token's timer.

    `renew_before` (ns) is how long before its expiry the client is asked to renew the token.
    """
    stop_token_timer(session, out)
    session.expires = None
    if grants is None:
        session.readable = session.writable = None
        return
    session.readable = parse_grants(grants.subscribe)
    session.writable = parse_grants(grants.publish)
    session.user = grants.user
    if grants.expires is not None:
        session.expires = grants.expires
        notice = max(now, grants.expires - renew_before)
        out.append(SetTimer(("broker", TOKEN_TIMER, session.id), notice))


def stop_token_timer(session: Session, out: list[Output]) -> None:
    """Cancel the timer of a session's token, if it has one."""
    if session.expires is not None:
        out.append(CancelTimer(("broker", TOKEN_TIMER, session.id)))


def token_expired(session: Session, now: int, out: list[Output]) -> bool:
    """Return whether the token of a session, whose timer is due, has expired.

    If it has not, tell the client to send a new one, and set the timer again for the expiry.
    """
    expires = session.expires
    if expires is None:
        return False
    if now >= expires:
        return True
    left_s = -(-(expires - now) // NS_PER_S)
    status = Status(
        status=StatusName.TOKEN_TO_EXPIRE,
        info=f"The token expires in {left_s} s: send a new one with `token`.",
    )
    out.append(Send(session.id, status))
    out.append(SetTimer(("broker", TOKEN_TIMER, session.id), expires))
    return False
