"""The isolation boundary of one client's connection: a failure on it ends it and nothing else.

Exceptions are caught with `except*`: what a handler raises from a nursery is a group, which may
contain `Cancelled` as well, and a plain `except Exception` would not isolate that.
"""

import ssl

import trio

from mdserver.server.clients.admission import Admission
from mdserver.server.clients.connection import Connection
from mdserver.server.clients.requests import HttpRequests
from mdserver.server.tls import ListenerCertificate


async def serve_connection(
    connection: Connection,
    identity: ListenerCertificate | None = None,
    admission: Admission | None = None,
) -> None:
    """Serve a connection until it ends, encrypted if there is an `identity`.

    `admission` counts the connection for its address, until its end. Raises only Cancelled.
    """
    context = connection.context
    try:
        with trio.CancelScope() as scope:
            connection.scope = scope
            if identity is not None:
                await _encrypt(connection, identity)
            connection.protocol = requests = HttpRequests(connection)
            session = await requests.serve()
            del requests
            if session is not None:
                await session.serve()
    except* (OSError, ssl.SSLError):
        pass  # the client is gone; `close` has the node close the session
    except* Exception:
        context.log.exception("connection failed", address=connection.address)
    finally:
        try:
            connection.close()
        finally:
            if admission is not None:
                admission.leave(connection.address)


async def _encrypt(connection: Connection, identity: ListenerCertificate) -> None:
    connection.give_time(connection.context.settings.handshake_timeout)
    try:
        connection.sock = await identity.encrypt(connection.plain)
    except OSError as error:
        connection.refuse("no TLS connection", error)
        raise
