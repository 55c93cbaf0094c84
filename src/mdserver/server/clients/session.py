"""Turns the messages of a WebSocket into commands of a session with the node.

One object serves all connections; the state of each is in its outbox. Commands go to the node in
steps, and between two steps the other readers and the flusher may run (`give_commands`).
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import structs

from mdserver.codec.websocket import WebSocketMessage
from mdserver.core.commands import AnyCommand, Subscribe, Unsubscribe
from mdserver.core.inputs import Opened, Received, Writability
from mdserver.errors import RemoteProtocolError
from mdserver.limits import COMMANDS_PER_STEP, SUBJECTS_PER_STEP, SUBPROTOCOL_JSON
from mdserver.server.clients.forms import WEBSOCKET_FORMS, Form, WebSocketForm
from mdserver.server.clients.outbox import Outbox
from mdserver.server.clients.sessions import Sessions

_WITH_SUBJECTS = (Subscribe, Unsubscribe)
_KINDS_WITH_SUBJECTS: frozenset[type] = frozenset(_WITH_SUBJECTS)
DELIVERIES_PER_TURN = 2000  # some milliseconds: then the flusher and other readers have a turn


class SessionHandler(Protocol):
    """The behaviour of a server on WebSocket connections."""

    def form(self, subprotocol: str | None) -> Form:
        """Return the form of the subprotocol that was agreed on in the upgrade."""

    def opened(self, outbox: Outbox, opened: Opened) -> None:
        """Begin a session."""

    async def messages(self, outbox: Outbox, messages: Sequence[WebSocketMessage]) -> int:
        """Handle messages, and return the number of commands in them.

        Raises RemoteProtocolError if a message is malformed or of the wrong kind.
        """

    def writability(self, outbox: Outbox, *, writable: bool) -> None:
        """Note that the outbox was parked, or (`writable`) that all that waited was sent."""

    def closed(self, outbox: Outbox, reason: str) -> None:
        """End a session; does nothing if it has ended."""


class NodeSessions:
    """The usual handler: the messages are commands for the node."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def form(self, subprotocol: str | None) -> Form:
        """Return the form of the subprotocol, that of JSON if the client named none."""
        return WEBSOCKET_FORMS[subprotocol or SUBPROTOCOL_JSON]

    def opened(self, outbox: Outbox, opened: Opened) -> None:
        """Have the node open the session."""
        self._sessions.outboxes[outbox.session] = outbox
        self._sessions.open(outbox.session, outbox, opened)

    async def messages(self, outbox: Outbox, messages: Sequence[WebSocketMessage]) -> int:
        """Decode commands and give them to the node, those before a malformed message included."""
        form = outbox.form
        assert isinstance(form, WebSocketForm)
        codec = form.codec
        commands: list[AnyCommand] = []
        try:
            for message in messages:
                if message.text is not codec.text:
                    kind = "text" if codec.text else "binary"
                    raise RemoteProtocolError(f"This subprotocol has {kind} messages only.")
                commands += codec.commands(message.payload, outbox)
        finally:
            if commands:
                await give_commands(self._sessions, outbox.session, commands)
        return len(commands)

    def writability(self, outbox: Outbox, *, writable: bool) -> None:
        """Have the node pause or resume the catch-up of the session."""
        self._sessions.dispatch(Writability(outbox.session, writable))

    def closed(self, outbox: Outbox, reason: str) -> None:
        """Have the node close the session."""
        self._sessions.close(outbox.session, reason)


async def give_commands(sessions: Sessions, session: int, commands: Sequence[AnyCommand]) -> None:
    """Give a session's commands to the node, in steps between which other tasks may run.

    A step is bounded by the number of subjects, or of commands without subjects, that it handles.
    After the last step there is no pause, because the caller then waits for input anyway.
    """
    turn = sessions.turn
    # The cost of a command with subjects depends on their number, so the size of these steps is
    # fixed. Other commands are cheap or not depending on their audience, which only the clock and
    # the deliveries tell: there the step adapts.
    if not _KINDS_WITH_SUBJECTS.isdisjoint(map(type, commands)):
        for step in portions(commands):
            sessions.dispatch(Received(session, step))
            if turn.over or sessions.deliveries - sessions.deliveries_at_turn > DELIVERIES_PER_TURN:
                sessions.deliveries_at_turn = sessions.deliveries
                await turn.pause()
        return
    if len(commands) <= COMMANDS_PER_STEP:
        sessions.dispatch(Received(session, commands))
        return
    start = 0
    while start < len(commands):
        size = turn.step
        sessions.dispatch(Received(session, commands[start : start + size]))
        start += size
        many = sessions.deliveries - sessions.deliveries_at_turn > DELIVERIES_PER_TURN
        over = turn.size_step(many=many, full=start <= len(commands))
        if over and start < len(commands):
            sessions.deliveries_at_turn = sessions.deliveries
            await turn.pause()


def portions(commands: Sequence[AnyCommand]) -> Iterator[list[AnyCommand]]:
    """Divide commands into steps of at most `SUBJECTS_PER_STEP` subjects each."""
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
    """Divide a command with many subjects into several that together have the same effect."""
    if not isinstance(command, _WITH_SUBJECTS) or len(command.subjects) <= SUBJECTS_PER_STEP:
        yield command
        return
    subjects = list(dict.fromkeys(command.subjects))
    positions = command.positions if isinstance(command, Subscribe) else None
    # A position whose subject the command does not name belongs to a pattern that covers the
    # subject. Every part that has a pattern gets all of these positions.
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
