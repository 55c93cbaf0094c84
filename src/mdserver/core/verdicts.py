"""Commands that wait for a verdict of the entitlement, and those behind them.

The commands of a session take effect in their order: while one waits, so do all after it.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from attrs import frozen

from mdserver.core.commands import AnyCommand, Fetch, Publish, RenewToken, Subscribe
from mdserver.core.entitlement import Policy
from mdserver.core.events import Error, Status, StatusName
from mdserver.core.inputs import Decided, Denied
from mdserver.core.outputs import Ask, Output, Send
from mdserver.core.publishing import Refused, refusal
from mdserver.core.session import Held, Session
from mdserver.core.settings import BrokerSettings
from mdserver.limits import HELD_COMMANDS_MAX, RECHECKS_AT_ONCE

Question = tuple[str, str | None, str | None]
"""An action, the token and the subject that it is about."""


@frozen
class Recheck:
    """The verdict is about a subscription that there is already."""

    session: Session
    subject: str


class Rechecks:
    """What is asked again after a new token: a few subscriptions of a session at a time."""

    __slots__ = ("left", "requests")

    def __init__(self) -> None:
        self.left: deque[str] = deque()
        self.requests: dict[int, None] = {}


class Verdicts:
    """The questions that are open, by the number of the request."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._requests: dict[int, tuple[Session, Held] | Recheck] = {}
        self._rechecks: dict[Session, Rechecks] = {}
        self._request = 0

    def parts(self, command: AnyCommand) -> Sequence[AnyCommand]:
        """A command as one or more, each of which needs one verdict at most."""
        if not (self._settings.ask_each and isinstance(command, Subscribe)):
            return (command,)
        positions = command.positions or {}
        return [
            Subscribe(
                subjects=[subject],
                history=command.history,
                conflation_ms=command.conflation_ms,
                # A pattern may need any of them, a subject needs its own only.
                positions=positions
                if "*" in subject
                else {subject: positions[subject]}
                if subject in positions
                else None,
                id=command.id,
            )
            for subject in dict.fromkeys(command.subjects)
        ]

    def may_go(self, session: Session, command: AnyCommand, out: list[Output]) -> bool:
        """Whether a command can be handled at once; if not, it is held and what it needs asked."""
        questions = self._questions(command)
        if session.held is None and not questions:
            return True
        self.hold(session, command, questions, out)
        return False

    def _questions(self, command: AnyCommand) -> list[Question]:
        if self._settings.policy is Policy.ASK and isinstance(command, RenewToken):
            return [("token", command.token, None)]
        if not self._settings.ask_each:
            return []
        if isinstance(command, Subscribe):
            return [("subscribe", None, command.subjects[0])]
        if isinstance(command, Fetch):
            return [("subscribe", None, command.subject)]
        if isinstance(command, Publish):
            # Whoever answers writes to the reply subject on behalf of the one who asks.
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
        """Ask something; the number of the request."""
        self._request += 1
        out.append(Ask(self._request, session.id, action, token, subject, session.address))
        return self._request

    def recheck_all(self, session: Session, out: list[Output]) -> None:
        """Ask whether the subscriptions of a session may go on, one after the other."""
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
        """Keep a command until its questions are decided, and those of the commands before it."""
        if session.held is None:
            session.held = deque()
        if len(session.held) >= HELD_COMMANDS_MAX:
            out.append(Send(session.id, too_many_held(command)))
            return
        held = Held(command)
        session.held.append(held)
        for action, token, subject in questions:
            request = self.ask(session, action, out, token, subject)
            held.requests[request] = None
            self._requests[request] = (session, held)

    def decided(self, decided: Decided, out: list[Output]) -> Session | Recheck | None:
        """Note a verdict: the session of which commands may be `released`, or what was rechecked.

        None if nobody waits for it any more.
        """
        waiting = self._requests.pop(decided.request, None)
        if waiting is None:
            return None
        if isinstance(waiting, Recheck):
            rechecks = self._rechecks[waiting.session]
            del rechecks.requests[decided.request]
            self._recheck_next(waiting.session, rechecks, out)
            return waiting
        session, held = waiting
        del held.requests[decided.request]
        if not isinstance(held.verdict, Denied):  # one denial is enough
            held.verdict = decided.verdict
        return session

    def released(self, session: Session) -> Iterator[Held]:
        """The commands of a session that need not wait any more, each to be handled at once."""
        while session.held and not session.held[0].requests:
            yield session.held.popleft()
        if not session.held:
            session.held = None

    def end(self, session: Session) -> None:
        """The session ends: nobody waits for what was asked about it."""
        rechecks = self._rechecks.pop(session, None)
        for request in () if rechecks is None else rechecks.requests:
            del self._requests[request]
        for held in session.held or ():
            for request in held.requests:
                del self._requests[request]
        session.held = None


def too_many_held(command: AnyCommand) -> Status | Error:
    """The answer to a command for which there is no room behind the ones that wait."""
    reason = f"More than {HELD_COMMANDS_MAX} commands wait for verdicts: send fewer at a time."
    if isinstance(command, Publish):
        return refusal(command, Refused(StatusName.PUBLISH_FAILED, reason, certain=True))
    return Error(code="too-many-commands", reason=reason, id=getattr(command, "id", None))
