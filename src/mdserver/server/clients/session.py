"""What a WebSocket connection is for: a session with the node.

The object is shared by all connections; what belongs to one of them is in its outbox.
"""

from collections.abc import Sequence
from typing import Protocol

from mdserver.codec.websocket import Message
from mdserver.core.commands import AnyCommand
from mdserver.core.inputs import Opened, Writability
from mdserver.errors import RemoteProtocolError
from mdserver.limits import SUBPROTOCOL_JSON
from mdserver.server.clients.exchange import give_commands
from mdserver.server.clients.forms import WEBSOCKET_FORMS, Form, WebSocketForm
from mdserver.server.clients.outbox import Outbox
from mdserver.server.engine import Engine


class Behaviour(Protocol):
    """What happens on WebSocket connections."""

    def form(self, subprotocol: str | None) -> Form:
        """The form for what was agreed in the upgrade."""

    def opened(self, outbox: Outbox, opened: Opened) -> None:
        """A connection is open."""

    async def messages(self, outbox: Outbox, messages: Sequence[Message]) -> int:
        """Handle messages, and give the number of commands in them.

        Raises RemoteProtocolError if they are nothing that belongs here.
        """

    def writability(self, outbox: Outbox, *, writable: bool) -> None:
        """Note that the socket takes no more for now, or that all that waited was sent."""

    def closed(self, outbox: Outbox, reason: str) -> None:
        """A connection is closing; may be told more than once."""


class NodeSessions:
    """Messages are commands for the node."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def form(self, subprotocol: str | None) -> Form:
        """JSON where no subprotocol was asked for."""
        return WEBSOCKET_FORMS[subprotocol or SUBPROTOCOL_JSON]

    def opened(self, outbox: Outbox, opened: Opened) -> None:
        """A session begins."""
        self._engine.outboxes[outbox.session] = outbox
        self._engine.opened(outbox.session, outbox, opened)

    async def messages(self, outbox: Outbox, messages: Sequence[Message]) -> int:
        """Decode commands and give them to the node, those before a bad message too."""
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
                await give_commands(self._engine, outbox.session, commands)
        return len(commands)

    def writability(self, outbox: Outbox, *, writable: bool) -> None:
        """Tell the node, which pauses what the session is still to be brought."""
        self._engine.dispatch(Writability(outbox.session, writable))

    def closed(self, outbox: Outbox, reason: str) -> None:
        """A session ends."""
        self._engine.closed(outbox.session, reason)
