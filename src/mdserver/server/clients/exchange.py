"""How an HTTP path reaches the node: with a session of its own for each request.

The session connects with the token of the request, gives its commands, collects the answers and is
closed. A request thus takes the same way through entitlement and limits as commands over WebSocket.
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
from mdserver.core.events import AnyEvent, Connected, Reset, Status, StatusName
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
    """A whole answer to a request; the connection adds `content-length`."""

    status: int
    headers: Headers = ()
    body: bytes = b""


class Exchange:
    """The session of one request; the sink of its events.

    `_answers` maps the index of a command to its answer, `_refusal` answers all commands that have
    no answer of their own. `_given` says whether the commands were given to the node.
    """

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
        """Return the answer to a command, None if there is none within `timeout` (s)."""
        (answer,) = await self.ask_each(token, (command,), timeout)
        return answer

    async def ask_each(
        self,
        token: str | None,
        commands: Sequence[AnyCommand],
        timeout: float,
        idempotency_key: str = "",
    ) -> list[AnyEvent | None]:
        """Return the answer to each command, None for those without one within `timeout` (s).

        If the node serves no sessions now, the answer is a PUBLISH_FAILED with its reason.

        The commands must not have an `id`. With an `idempotency_key` the n-th command is the same
        publication in every request with that key.
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
        """Wait until no authorization request about a stream is unanswered.

        The stream must exist. Commands that are posted meanwhile stay in the bodies of their
        requests, whose memory is counted, and are not decoded.
        """
        await self._sessions.authorizations.resolved(self._sessions.streams[secret])

    async def give(self, secret: str, commands: Sequence[AnyCommand]) -> None:
        """Give commands to a stream, which must exist."""
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
        """Keep an answer. One without an `id` answers all commands that have no answer."""
        if isinstance(event, Connected | Reset) or (
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
        """Note that the node has ended this session."""
        self._ended = True
        if not self._given:
            # The node ended the session when it was opened. No command was given to it, so it is
            # certain that nothing was published, and the client may repeat the request.
            said = f"This server serves no clients now: {reason}."
            self._refusal = Status(status=StatusName.PUBLISH_FAILED, reason=said)
        self._wake()

    def _wake(self) -> None:
        if self._answered is not None:
            self._answered.set()


class Handler(Protocol):
    """The function that answers requests which are no upgrade."""

    async def __call__(
        self, request: Request, exchange: Exchange
    ) -> Answer | PartedAnswer | StreamAnswer:
        """Answer a request. Raises RequestRefusedError if the request is malformed."""
