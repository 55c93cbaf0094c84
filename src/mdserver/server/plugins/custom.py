"""`Entitlement = Custom`: a Python class of the operator's decides who may do what.

The class named by `EntitlementCustom.Class` is made once, without arguments, and has these
coroutine functions, each of which is given a `Client`:

- `connect(client, token)` and `update_token(client, token)` answer True, a `Grants`, or a `Denied`;
- `subscribe(client, subject)` and `publish(client, subject)` answer True or a `Denied`; the subject
  of a subscription may be a pattern;
- `disconnect(client)`, of which the answer does not matter.

Anything else that is answered, an exception, and an answer that takes longer than the deadline are
denials; the last two are logged. The functions run in the server's event loop: what blocks there
blocks the server.
"""

import importlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog
import trio
from attrs import evolve, frozen

from mdserver import limits
from mdserver.core.inputs import Authorized, Denied, Grants
from mdserver.core.outputs import Authorize
from mdserver.core.text import safe_text
from mdserver.errors import ConfigError
from mdserver.server.plugins.task_scope import TaskScope

METHODS = {
    "connect": "connect",
    "token": "update_token",
    "subscribe": "subscribe",
    "publish": "publish",
    "disconnect": "disconnect",
}
GRANTING = ("connect", "token")
BUSY = Denied("The server is too busy to decide: try again.", busy=True)
REASON_CHARS_MAX = 500
log = structlog.get_logger()


@frozen
class Client:
    """The client that an authorization request concerns: its session's number and IP address."""

    session: int
    address: str | None


def load_class(
    name: str,
    parameter: str = "EntitlementCustom.Class",
    methods: Iterable[str] = METHODS.values(),
) -> Any:
    """Make an object of the class `package.module:Class`, which has to have these methods.

    Raises `ConfigError`, with the name of the parameter.
    """
    module_name, colon, class_name = name.partition(":")
    if not colon or not module_name or not class_name:
        raise ConfigError(f"{parameter} = {name}: expected `package.module:Class`")
    try:
        module = importlib.import_module(module_name)
        made = getattr(module, class_name)()
    except Exception as error:  # whatever the operator's module raises
        raise ConfigError(f"{parameter} = {name}: {type(error).__name__}: {error}") from error
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ConfigError(f"{parameter} = {name}: it has no {', '.join(missing)}")
    return made


class _Line:
    """The questions about one session: those that wait, since when, and how many are asked."""

    __slots__ = ("asked", "in_turn", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[float, Authorize]] = deque()
        self.asked = 0
        self.in_turn = False


class CustomAuthorizer(TaskScope):
    """Puts the core's questions to the operator's object, each in a task with a deadline.

    Sessions take turns, and of each only a few questions are asked at the same time, so however
    many questions one session has, another's wait for no more than their turn. What may wait of a
    session is bounded by the room that is left for all: one session can take half of it, a second
    one a third, and so on, and there is always some for the next one.
    """

    def __init__(self, judge: Any, deadline: int, decide: Callable[[Authorized], None]) -> None:
        super().__init__()
        self._judge = judge
        self._deadline_s = deadline / limits.NS_PER_S
        self._decide = decide
        self._lines: dict[int, _Line] = {}
        self._turns: deque[int] = deque()
        self._waiting = 0
        self._asked = 0

    def ask(self, question: Authorize) -> None:
        """Take a question; the answer goes to `decide` later."""
        line = self._lines.get(question.session)
        if line is None:
            line = self._lines[question.session] = _Line()
        if question.action == "disconnect":
            # The core has forgotten what was asked about the session, so nobody waits for it.
            self._waiting -= len(line.waiting)
            line.waiting.clear()
        elif len(line.waiting) >= limits.VERDICTS_PENDING_MAX - self._waiting:
            self._answer(question, BUSY)
            return
        line.waiting.append((trio.current_time(), question))
        self._waiting += 1
        self._take_turn(question.session, line)
        self._go_on()

    def _take_turn(self, session: int, line: _Line) -> None:
        """Give a session a turn if it has something to ask; forget it once all is answered."""
        if not line.waiting:
            if not line.asked and not line.in_turn:
                self._lines.pop(session, None)
        elif not line.in_turn and line.asked < limits.VERDICTS_PER_SESSION_AT_ONCE:
            line.in_turn = True
            self._turns.append(session)

    def _go_on(self) -> None:
        """Ask what can be asked now, one question of each session in turn."""
        while self._turns and self._asked < limits.VERDICTS_AT_ONCE:
            session = self._turns.popleft()
            line = self._lines[session]
            line.in_turn = False
            since, question = line.waiting.popleft()
            self._waiting -= 1
            late = trio.current_time() - since > limits.VERDICT_WAIT_S
            if self._nursery is None or (late and question.action != "disconnect"):
                self._take_turn(session, line)
                self._answer(question, BUSY)
                continue
            line.asked += 1
            self._asked += 1
            self._take_turn(session, line)
            self._nursery.start_soon(self._judged, question, line)

    async def _judged(self, question: Authorize, line: _Line) -> None:
        client = Client(question.session, question.address)
        method = getattr(self._judge, METHODS[question.action])
        about = question.token if question.action in GRANTING else question.subject
        try:
            answer = method(client) if question.action == "disconnect" else method(client, about)
            verdict = await self._verdict(question.action, answer)
        except Exception:
            log.exception("entitlement class failed", action=question.action)
            verdict = Denied("The server could not decide: its entitlement class failed.")
        finally:
            line.asked -= 1
            self._asked -= 1
            self._take_turn(question.session, line)
        self._answer(question, verdict)
        self._go_on()

    async def _verdict(self, action: str, answer: Awaitable[object]) -> Grants | Denied | None:
        with trio.move_on_after(self._deadline_s) as deadline:
            given = await answer
        if deadline.cancelled_caught:
            log.warning("entitlement class took too long", action=action)
            return Denied("The server could not decide in time.")
        if given is True:
            return None
        if isinstance(given, Denied):
            return evolve(given, reason=safe_text(given.reason, REASON_CHARS_MAX))
        if isinstance(given, Grants) and action in GRANTING:
            return given if given.user is None else evolve(given, user=safe_text(given.user))
        return Denied("The server's entitlement does not allow it.")

    def _answer(self, question: Authorize, verdict: Grants | Denied | None) -> None:
        if question.action != "disconnect":
            self._decide(Authorized(question.request, verdict))
