"""Logs why clients could not connect, subscribe or publish, at `LogLevel = debug`.

Said is what the client is told as well, which names no token and no secret; its request is not
repeated, because a query may hold a token.
"""

from collections.abc import Callable

import structlog

from mdserver.core.events import Error, Status
from mdserver.core.outputs import Send
from mdserver.core.text import safe_text
from mdserver.server.clients.measures import REFUSALS
from mdserver.server.clients.sessions import Sessions

log = structlog.get_logger()


def tell(address: str, status: str | int, reason: object, **values: object) -> None:
    """Write a line about a client that was refused, if the log has lines of that level."""
    log.debug("client refused", address=address, status=status, reason=safe_text(reason), **values)


def send_and_tell(sessions: Sessions) -> Callable[[Send], None]:
    """Return the route for events that writes the refusals among them to the log."""

    def send(output: Send) -> None:
        event = output.event
        sink = sessions.sinks.get(output.session)
        if sink is not None:
            if isinstance(event, Error):
                tell(sink.address, event.code, event.reason)
            elif isinstance(event, Status) and event.status in REFUSALS:
                subject = {} if event.subject is None else {"subject": safe_text(event.subject)}
                tell(sink.address, event.status.value, event.reason, **subject)
        sessions.send(output)

    return send
