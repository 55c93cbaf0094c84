"""What HTTP paths may do to the node: one command in a session of its own, and its answer.

So that a request takes the same way through entitlement and limits as a command over WebSocket.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import attrs
import trio
from msgspec import structs

from mdserver.codec.http import Headers, Request
from mdserver.codec.reading import mistakes_in, too_many_malformed
from mdserver.codec.streaming import PartedAnswer, StreamAnswer
from mdserver.core.commands import AnyCommand, Connect, Publish, Subscribe, Unsubscribe
from mdserver.core.events import AnyEvent, Connected, Status, StatusName
from mdserver.core.inputs import Opened, Received
from mdserver.limits import (
    CLOSE_PROTOCOL_ERROR,
    COMMANDS_PER_STEP,
    MALFORMED_MAX,
    SUBJECTS_PER_STEP,
)
from mdserver.server.engine import Engine

_WITH_SUBJECTS = (Subscribe, Unsubscribe)
_KINDS_WITH_SUBJECTS: frozenset[type] = frozenset(_WITH_SUBJECTS)
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

    __slots__ = (
        "_answered",
        "_answers",
        "_ended",
        "_engine",
        "_given",
        "_number",
        "_opened",
        "_refusal",
        "_waiting",
    )

    def __init__(self, engine: Engine, address: str, *, secure: bool = False) -> None:
        self._engine = engine
        self._number = next(engine.numbers)
        self._opened = Opened(self._number, address, "http", secure)
        self._answers: dict[int, AnyEvent] = {}
        self._refusal: AnyEvent | None = None
        self._waiting = 1
        self._given = False
        self._ended = False
        self._answered: trio.Event | None = None

    @property
    def address(self) -> str:
        """Where the request comes from."""
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
        engine = self._engine
        numbered = [
            structs.replace(command, id=n) if isinstance(command, Publish) else command
            for n, command in enumerate(commands)
        ]
        self._waiting = len(numbered)
        opened = attrs.evolve(self._opened, idempotency_key=idempotency_key)
        engine.opened(self._number, self, opened)
        try:
            if not self._ended:
                self._given = True
                await give_commands(engine, self._number, (Connect(token=token), *numbered))
            if not self._complete:
                self._answered = trio.Event()
                with trio.move_on_after(timeout):
                    await self._answered.wait()
        finally:
            engine.closed(self._number, "the request is answered")
        return [self._answers.get(n, self._refusal) for n in range(len(numbered))]

    @property
    def _complete(self) -> bool:
        return self._ended or self._refusal is not None or len(self._answers) >= self._waiting

    def has_stream(self, secret: str) -> bool:
        """Whether there is a stream of that secret path."""
        return secret in self._engine.streams

    async def ready(self, secret: str) -> None:
        """Wait until no verdict about that stream, which is there, is awaited.

        What is posted meanwhile stays with its request, where it is counted, and is not decoded.
        """
        await self._engine.decided(self._engine.streams[secret])

    async def give(self, secret: str, commands: Sequence[AnyCommand]) -> None:
        """Give commands to that stream, which is there."""
        engine = self._engine
        session = engine.streams[secret]
        outbox = engine.outboxes.get(session)
        if outbox is not None:
            outbox.mistakes += mistakes_in(commands)
            if outbox.mistakes > MALFORMED_MAX:
                outbox.end(CLOSE_PROTOCOL_ERROR, too_many_malformed().reason)
                return
        await give_commands(engine, session, commands)

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

    def end(self, code: int, reason: str) -> None:  # noqa: ARG002 - the engine's sinks
        """The node wants no more of this session."""
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


async def give_commands(engine: Engine, session: int, commands: Sequence[AnyCommand]) -> None:
    """Give a session's commands to the node, in steps that leave the others a turn.

    After the last one there is no pause: whoever called waits for what comes next.
    """
    turn = engine.turn
    if not _KINDS_WITH_SUBJECTS.isdisjoint(map(type, commands)):
        for step in portions(commands):
            engine.dispatch(Received(session, step))
            if turn.over or engine.deliveries - engine.rested > DELIVERIES_PER_TURN:
                engine.rested = engine.deliveries
                await turn.pause()
        return
    if len(commands) <= COMMANDS_PER_STEP:
        engine.dispatch(Received(session, commands))
        return
    start = 0
    while start < len(commands):
        size = turn.step
        engine.dispatch(Received(session, commands[start : start + size]))
        start += size
        many = engine.deliveries - engine.rested > DELIVERIES_PER_TURN
        over = turn.size_step(many=many, full=start <= len(commands))
        if over and start < len(commands):
            engine.rested = engine.deliveries
            await turn.pause()


def portions(commands: Sequence[AnyCommand]) -> Iterator[list[AnyCommand]]:
    """Divide commands into steps, of which each is about SUBJECTS_PER_STEP subjects at most."""
    step: list[AnyCommand] = []
    weight = 0
    for command in commands:
        for part in _parts(command):
            more = len(part.subjects) if isinstance(part, _WITH_SUBJECTS) else 1
            if step and weight + more > SUBJECTS_PER_STEP:
                yield step
                step, weight = [], 0
            step.append(part)
            weight += more
    if step:
        yield step


def _parts(command: AnyCommand) -> Iterator[AnyCommand]:
    """A command about many subjects as several about some of them, with the same answers."""
    if not isinstance(command, _WITH_SUBJECTS) or len(command.subjects) <= SUBJECTS_PER_STEP:
        yield command
        return
    subjects = list(dict.fromkeys(command.subjects))
    positions = command.positions if isinstance(command, Subscribe) else None
    # Positions that no subject names belong to whichever pattern covers them.
    named = dict.fromkeys(subjects)
    covered = {name: after for name, after in (positions or {}).items() if name not in named}
    for start in range(0, len(subjects), SUBJECTS_PER_STEP):
        some = subjects[start : start + SUBJECTS_PER_STEP]
        if positions is None:
            yield structs.replace(command, subjects=some)
            continue
        own = {name: positions[name] for name in some if name in positions}
        if any("*" in name for name in some):
            own |= covered
        yield structs.replace(command, subjects=some, positions=own or None)


class Handler(Protocol):
    """What answers requests that are no upgrade."""

    async def __call__(
        self, request: Request, exchange: Exchange
    ) -> Answer | PartedAnswer | StreamAnswer:
        """Answer a request; RequestRefusedError where it cannot be understood."""
