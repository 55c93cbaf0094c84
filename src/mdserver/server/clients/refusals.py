"""Logs why clients could not connect, subscribe or publish, at `LogLevel = debug`.

A line contains the reason that the client gets too, which has no token and no secret in it. It does
not contain the request, because a query may contain a token.
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
    """Log, at level debug, that a client was refused, and why."""
    log.debug("client refused", address=address, status=status, reason=safe_text(reason), **values)


def send_and_tell(sessions: Sessions) -> Callable[[Send], None]:
    """Return a route for events that also logs the refusals among them."""

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
