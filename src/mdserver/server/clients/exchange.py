"""How an HTTP path reaches the node: a session of its own for one request, and its answer.

So that a request takes the same way through entitlement and limits as a command over WebSocket.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs
import trio
from attrs import frozen
from msgspec import structs

from mdserver.codec.http import Headers, Request
from mdserver.codec.reading import mistakes_in, too_many_malformed
from mdserver.codec.streaming import PartedAnswer, StreamAnswer
from mdserver.core.commands import AnyCommand, Connect, Publish
from mdserver.core.events import AnyEvent, Connected, Status, StatusName
from mdserver.core.inputs import Opened
from mdserver.limits import (
    CLOSE_PROTOCOL_ERROR,
    MALFORMED_MAX,
)
from mdserver.server.clients.session import give_commands
from mdserver.server.clients.sessions import Sessions

_NO_ANSWER = frozenset(
    (StatusName.CONNECT_OK, StatusName.TOKEN_TO_EXPIRE, StatusName.TOKEN_UPDATED)
)


@frozen
class Answer:
    """A whole answer to a request; the length is added where it is sent."""

    status: int
    headers: Headers = ()
    body: bytes = b""


class Exchange:
    """One request's session with the node; a sink of the sessions."""

    __slots__ = (
        "_answered",
        "_answers",
        "_ended",
        "_given",
        "_number",
        "_opened",
        "_refusal",
        "_sessions",
        "_waiting",
    )

    def __init__(self, sessions: Sessions, address: str, *, secure: bool = False) -> None:
        self._sessions = sessions
        self._number = next(sessions.numbers)
        self._opened = Opened(self._number, address, "http", secure)
        self._answers: dict[int, AnyEvent] = {}
        self._refusal: AnyEvent | None = None
        self._waiting = 1
        self._given = False
        self._ended = False
        self._answered: trio.Event | None = None

    @property
    def address(self) -> str:
        """Return the IP address that the request comes from."""
        return self._opened.address

    @property
    def answered(self) -> bool:
        """Whether the node has answered anything."""
        return bool(self._answers) or self._refusal is not None

    async def ask(self, token: str | None, command: AnyCommand, timeout: float) -> AnyEvent | None:
        """Return the answer to a command, None if there is none in time (seconds) or ever."""
        (answer,) = await self.ask_each(token, (command,), timeout)
        return answer

    async def ask_each(
        self,
        token: str | None,
        commands: Sequence[AnyCommand],
        timeout: float,
        idempotency_key: str = "",
    ) -> list[AnyEvent | None]:
        """Return the answer to each command, None for those that have none in time (seconds).

        If the node serves no sessions now, the answer is a PUBLISH_FAILED with its reason.

        The commands have no `id` of their own. With an `idempotency_key` the n-th of them is the
        same publication whenever it comes under that key.
        """
        sessions = self._sessions
        numbered = [
            structs.replace(command, id=n) if isinstance(command, Publish) else command
            for n, command in enumerate(commands)
        ]
        self._waiting = len(numbered)
        opened = attrs.evolve(self._opened, idempotency_key=idempotency_key)
        sessions.open(self._number, self, opened)
        try:
            if not self._ended:
                self._given = True
                await give_commands(sessions, self._number, (Connect(token=token), *numbered))
            if not self._complete:
                self._answered = trio.Event()
                with trio.move_on_after(timeout):
                    await self._answered.wait()
        finally:
            sessions.close(self._number, "the request is answered")
        return [self._answers.get(n, self._refusal) for n in range(len(numbered))]

    @property
    def _complete(self) -> bool:
        return self._ended or self._refusal is not None or len(self._answers) >= self._waiting

    def has_stream(self, secret: str) -> bool:
        """Return whether there is a stream of that secret path."""
        return secret in self._sessions.streams

    async def ready(self, secret: str) -> None:
        """Wait until no verdict about that stream, which is there, is awaited.

        What is posted meanwhile stays with its request, where it is counted, and is not decoded.
        """
        await self._sessions.authorizations.resolved(self._sessions.streams[secret])

    async def give(self, secret: str, commands: Sequence[AnyCommand]) -> None:
        """Give commands to that stream, which is there."""
        sessions = self._sessions
        session = sessions.streams[secret]
        outbox = sessions.outboxes.get(session)
        if outbox is not None:
            outbox.mistakes += mistakes_in(commands)
            if outbox.mistakes > MALFORMED_MAX:
                outbox.end(CLOSE_PROTOCOL_ERROR, too_many_malformed().reason)
                return
        await give_commands(sessions, session, commands)

    def put(self, event: AnyEvent) -> bool:
        """Keep what answers a command; what has no number answers all that have no answer."""
        if isinstance(event, Connected) or (
            isinstance(event, Status) and event.status in _NO_ANSWER
        ):
            return False
        number = getattr(event, "id", None)
        if isinstance(number, int):
            self._answers.setdefault(number, event)
        elif self._refusal is None:
            self._refusal = event
        if self._complete:
            self._wake()
        return False

    def end(self, code: int, reason: str) -> None:  # noqa: ARG002 - the signature of sinks
        """Take notice that the node ends this session."""
        self._ended = True
        if not self._given:
            # The node ended the session when it was opened. Nothing was asked yet, so it is
            # certain that nothing was taken.
            said = f"This server serves no clients now: {reason}."
            self._refusal = Status(status=StatusName.PUBLISH_FAILED, reason=said)
        self._wake()

    def _wake(self) -> None:
        if self._answered is not None:
            self._answered.set()


class Handler(Protocol):
    """What answers requests that are no upgrade."""

    async def __call__(
        self, request: Request, exchange: Exchange
    ) -> Answer | PartedAnswer | StreamAnswer:
        """Answer a request; RequestRefusedError if it cannot be understood."""
