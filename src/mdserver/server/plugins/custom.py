"""`Entitlement = Custom`: a Python class of the operator decides who may do what.

The class that `EntitlementCustom.Class` names is instantiated once, without arguments. It has these
coroutine functions, each of which is given a `Client`:

- `connect(client, token)` and `update_token(client, token)` return True, a `Grants`, or a `Denied`;
- `subscribe(client, subject)` and `publish(client, subject)` return True or a `Denied`; the subject
  of a subscription may be a pattern;
- `disconnect(client)`, whose result is ignored.

Any other result, an exception, and a call that takes longer than the deadline are denials; the last
two are logged. The functions run in the server's event loop, so a function that blocks, blocks the
server.

A request for authorization takes this way:

    waiting --its session's turn--> asked --the class answers, or the deadline--> answered
       |
       '--no room, or too late--> answered with BUSY

The class may be slow, so three bounds keep one session from delaying the others. Sessions take
turns, and a turn asks one request. `VERDICTS_PER_SESSION_AT_ONCE` requests of a session are asked
at the same time at most. And a session may have only as many requests waiting as there is room left
for all: a single session takes half of the room, a second one a third, and so on, so there is
always some left for the next one.
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
    """Instantiate the class `package.module:Class`, which must have these methods.

    Raises ConfigError with the name of the configuration parameter.
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
    """The requests about one session.

    `waiting` has the requests that are not asked yet, each with the time since when it waits (s).
    `asked` is how many the class is working on. `in_turn` says that the session is in `_turns`.
    """

    __slots__ = ("asked", "in_turn", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[float, Authorize]] = deque()
        self.asked = 0
        self.in_turn = False


class CustomAuthorizer(TaskScope):
    """Answers requests for authorization by calling the operator's object.

    Each call runs in a task with a deadline (ns), and `decide` is given the answer. `_waiting` and
    `_asked` are the sums over all sessions.
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
        """Take a request; `decide` is called with the answer, now if it is BUSY, otherwise later.

        A "disconnect" is never refused: it is the class's only chance to forget a client.
        """
        line = self._lines.get(question.session)
        if line is None:
            line = self._lines[question.session] = _Line()
        if question.action == "disconnect":
            # The session has ended, so the core ignores the answers to its earlier requests.
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
        """Queue a session for a turn if it has a request to ask; forget it if it has none at all.

        A session is in `_turns` at most once, so that each round asks one request of each session.
        """
        if not line.waiting:
            if not line.asked and not line.in_turn:
                self._lines.pop(session, None)
        elif not line.in_turn and line.asked < limits.VERDICTS_PER_SESSION_AT_ONCE:
            line.in_turn = True
            self._turns.append(session)

    def _go_on(self) -> None:
        """Ask requests while fewer than `VERDICTS_AT_ONCE` are asked, one session after another."""
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
        """Ask one request, give the answer to `decide`, and let the next request go."""
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
        """Await the answer of the class; return what it grants or denies, None for a plain yes."""
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
