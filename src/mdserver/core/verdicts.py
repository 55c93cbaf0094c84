"""Commands that wait for a verdict of the entitlement, and those behind them.

The commands of a session take effect in their order: while one waits, so do all after it.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from attrs import frozen

from mdserver.core.commands import AnyCommand, Fetch, Publish, RenewToken, Subscribe
from mdserver.core.entitlement import Policy
from mdserver.core.events import Error, Status, StatusName
from mdserver.core.inputs import Decided
from mdserver.core.outputs import Ask, Output, Send
from mdserver.core.publishing import Refused, refusal
from mdserver.core.session import Held, Session, SessionState
from mdserver.core.settings import BrokerSettings
from mdserver.limits import HELD_COMMANDS_MAX


@frozen
class Recheck:
    """The verdict is about a subscription that there is already."""

    session: Session
    subject: str


class Verdicts:
    """The questions that are open, by the number of the request."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._requests: dict[int, tuple[Session, Held] | Recheck] = {}
        self._request = 0

    def parts(self, command: AnyCommand) -> Sequence[AnyCommand]:
        """A command as one or more, each of which needs one verdict at most."""
        if not (self._settings.ask_each and isinstance(command, Subscribe)):
            return (command,)
        return [
            Subscribe(
                subjects=[subject],
                history=command.history,
                conflation_ms=command.conflation_ms,
                positions=command.positions,
                id=command.id,
            )
            for subject in dict.fromkeys(command.subjects)
        ]

    def question(self, session: Session, command: AnyCommand, out: list[Output]) -> int | None:
        """Ask for the verdict that a command needs, if it needs one."""
        if self._settings.policy is Policy.ASK and isinstance(command, RenewToken):
            return self.ask(session, "token", out, token=command.token)
        if self._settings.ask_each and isinstance(command, Subscribe):
            return self.ask(session, "subscribe", out, subject=command.subjects[0])
        if self._settings.ask_each and isinstance(command, Fetch):
            return self.ask(session, "subscribe", out, subject=command.subject)
        if self._settings.ask_each and isinstance(command, Publish):
            return self.ask(session, "publish", out, subject=command.subject)
        return None

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

    def recheck(self, session: Session, subject: str, out: list[Output]) -> None:
        """Ask whether a subscription may go on."""
        request = self.ask(session, "subscribe", out, subject=subject)
        self._requests[request] = Recheck(session, subject)

    def hold(
        self, session: Session, command: AnyCommand, request: int | None, out: list[Output]
    ) -> None:
        """Keep a command until its request is decided, or with None until those before it are."""
        if session.held is None:
            session.held = deque()
        if len(session.held) >= HELD_COMMANDS_MAX:
            out.append(Send(session.id, too_many_held(command)))
            return
        held = Held(command, request is not None)
        session.held.append(held)
        if request is not None:
            self._requests[request] = (session, held)

    def decided(self, decided: Decided) -> Session | Recheck | None:
        """Note a verdict: the session of which commands may be `released`, or what was rechecked.

        None where nobody waits for it any more.
        """
        waiting = self._requests.pop(decided.request, None)
        if isinstance(waiting, Recheck):
            return None if waiting.session.state is SessionState.ENDED else waiting
        if waiting is None or waiting[0].state is SessionState.ENDED:
            return None
        session, held = waiting
        held.asked = False
        held.verdict = decided.verdict
        return session

    def released(self, session: Session) -> Iterator[Held]:
        """The commands of a session that need not wait any more, each to be handled at once."""
        while session.held and not session.held[0].asked:
            yield session.held.popleft()
        if not session.held:
            session.held = None


def too_many_held(command: AnyCommand) -> Status | Error:
    """The answer to a command for which there is no room behind the ones that wait."""
    reason = f"More than {HELD_COMMANDS_MAX} commands wait for verdicts: send fewer at a time."
    if isinstance(command, Publish):
        return refusal(command, Refused(StatusName.PUBLISH_FAILED, reason, certain=True))
    return Error(code="too-many-commands", reason=reason, id=getattr(command, "id", None))
