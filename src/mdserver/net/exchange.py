"""What HTTP paths may do to the node: one command in a session of its own, and its answer.

So that a request takes the same way through entitlement and limits as a command over WebSocket.
"""

from collections.abc import Sequence
from typing import Protocol

import trio

from mdserver.codec.http import Headers, Request
from mdserver.codec.streaming import StreamAnswer
from mdserver.core.commands import AnyCommand, Connect
from mdserver.core.events import AnyEvent, Connected, Status, StatusName
from mdserver.core.inputs import Opened, Received
from mdserver.net.engine import Engine

COMMANDS_PER_STEP = 64
COMMANDS_PER_STEP_MAX = 256
DELIVERIES_PER_TURN = 2000  # some milliseconds: then the flusher and other readers have a turn
_NO_ANSWER = frozenset(
    (StatusName.CONNECT_OK, StatusName.TOKEN_TO_EXPIRE, StatusName.TOKEN_UPDATED)
)


class Answer(Protocol):
    """A whole answer to a request."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Headers:
        """All headers but the length."""

    @property
    def body(self) -> bytes:
        """The content."""


class Exchange:
    """One request's session with the node; a sink of the engine."""

    __slots__ = ("_answer", "_answered", "_engine", "_number", "_opened")

    def __init__(self, engine: Engine, address: str, *, secure: bool = False) -> None:
        self._engine = engine
        self._number = next(engine.numbers)
        self._opened = Opened(self._number, address, "http", secure)
        self._answer: AnyEvent | None = None
        self._answered: trio.Event | None = None

    async def ask(self, token: str | None, command: AnyCommand, timeout: float) -> AnyEvent | None:
        """The answer to a command, None where there is none in time (seconds) or ever."""
        engine = self._engine
        commands: Sequence[AnyCommand] = (Connect(token=token), command)
        engine.opened(self._number, self, self._opened)
        try:
            engine.dispatch(Received(self._number, commands))
            if self._answer is None:
                self._answered = trio.Event()
                with trio.move_on_after(timeout):
                    await self._answered.wait()
        finally:
            engine.closed(self._number, "the request is answered")
        return self._answer

    def has_stream(self, secret: str) -> bool:
        """Whether there is a stream of that secret path."""
        return secret in self._engine.streams

    async def give(self, secret: str, commands: Sequence[AnyCommand]) -> None:
        """Give commands to that stream, which is there."""
        await give_commands(self._engine, self._engine.streams[secret], commands)

    def put(self, event: AnyEvent) -> bool:
        """The first event that is an answer is kept."""
        if isinstance(event, Connected) or (
            isinstance(event, Status) and event.status in _NO_ANSWER
        ):
            return False
        if self._answer is None:
            self._answer = event
            self._wake()
        return False

    def end(self, code: int, reason: str) -> None:  # noqa: ARG002 - the engine's sinks
        """The node wants no more of this session."""
        self._wake()

    def _wake(self) -> None:
        if self._answered is not None:
            self._answered.set()


async def give_commands(engine: Engine, session: int, commands: Sequence[AnyCommand]) -> None:
    """Give a session's commands to the node, in steps that leave the others a turn.

    Steps grow while they deliver little: a larger one costs the cluster less a publication.
    """
    start, size = 0, COMMANDS_PER_STEP
    while start < len(commands):
        engine.dispatch(Received(session, commands[start : start + size]))
        start += size
        if engine.deliveries - engine.rested > DELIVERIES_PER_TURN:
            engine.rested = engine.deliveries
            size = COMMANDS_PER_STEP
            await trio.lowlevel.checkpoint()
        else:
            size = min(2 * size, COMMANDS_PER_STEP_MAX)


class Handler(Protocol):
    """What answers requests that are no upgrade."""

    async def __call__(self, request: Request, exchange: Exchange) -> Answer | StreamAnswer:
        """Answer a request; RequestRefusedError where it cannot be understood."""
