"""A session whose client stays connected: the common part of WebSocket and streams over HTTP.

    open --close, or the client closes--> closing --both have closed, or the timer--> ended
     |                                                                                  ^
     '--the socket breaks, or the client takes no byte in time--------------------------'

*open*: commands go to the node, and messages to the client. The timer checks on the client. It ends
the session of a client that has to connect and has not done so within the handshake time-out, and
of one that was silent for two keep-alive intervals. After one interval of silence it sends
something that a living client answers.
*closing*: the node has closed the session. The outbox sends what waits, with the goodbye last. The
connection ends when both sides have closed, at the latest by the timer.

A socket that takes no more *parks* the outbox. A task then waits until the socket takes bytes again
and sends the rest. Meanwhile the node pauses the session's catch-up (`Writability`); live messages
wait in the outbox, up to its limit.
"""

import trio
from attrs import frozen

from mdserver import limits
from mdserver.core.inputs import Opened
from mdserver.core.session import session_name
from mdserver.limits import NS_PER_MS, NS_PER_S
from mdserver.server.clients import refusals
from mdserver.server.clients.connection import Connection
from mdserver.server.clients.forms import Form
from mdserver.server.clients.outbox import Outbox, SessionView
from mdserver.server.clients.sessions import INTERNAL_ERROR


@frozen
class EndedOwner:
    """Takes the place of a session whose connection has ended: there is nothing left to do."""

    last: SessionView

    def view(self, now: int) -> SessionView:  # noqa: ARG002 - as of a live one
        """Return how the session was doing at its end."""
        return self.last

    def keepalive_agreed(self, keepalive: int) -> None:
        """Do nothing."""

    def parked(self) -> None:
        """Do nothing."""

    def lost(self, reason: str) -> None:
        """Do nothing."""

    def outbox_overflow(self) -> None:
        """Do nothing."""

    def catch_up_overflow(self) -> None:
        """Do nothing."""

    def failed(self) -> None:
        """Do nothing."""

    def close(self, code: int, reason: str) -> None:
        """Do nothing."""


class LiveSession:
    """Base of the sessions of each protocol; owns the outbox.

    `admitted` says whether the node has accepted the client.
    """

    __slots__ = ("_keepalive", "_open", "admitted", "connection", "outbox")

    def __init__(self, connection: Connection, form: Form) -> None:
        context = connection.context
        self.connection = connection
        self.admitted = False
        self._open = True
        self._keepalive = context.settings.keepalive
        self.outbox = Outbox(
            next(context.sessions.numbers),
            form,
            connection.sock,
            self,
            context.settings.outbox_bytes_max,
            context.sessions.traffic,
        )

    def begin(self, transport: str) -> None:
        """Take over the connection, and have the node open the session."""
        connection = self.connection
        settings = connection.context.settings
        connection.protocol = self
        connection.give_time(
            settings.handshake_timeout if self._must_connect() else self._keepalive
        )
        opened = Opened(self.outbox.session, connection.address, transport, connection.secure)
        connection.context.session_handler.opened(self.outbox, opened)

    def connection_ended(self) -> None:
        """Have the node close the session, and let go of the outbox.

        Session and outbox refer to each other, so both would stay until the garbage collector looks
        at old objects, which a server has it do seldom.
        """
        context = self.connection.context
        context.session_handler.closed(self.outbox, "the connection ended")
        self.outbox.owner = EndedOwner(self.view(context.clock()))

    def timer_due(self, now: int) -> None:
        """Check on the client while the session is open; end the connection when it is closing."""
        if not self._open:
            self.connection.abort()
            return
        context, outbox = self.connection.context, self.outbox
        # A client whose token is being checked has done its part.
        if self._must_connect() and outbox.session not in context.sessions.authorizations.pending:
            timeout_s = context.settings.handshake_timeout // NS_PER_S
            reason = f"No `connect` came within {timeout_s} s."
            self.close(limits.CLOSE_CONNECT_DENIED, reason, drop=True)
            return
        due = self.connection.last_received + self._keepalive
        if not outbox.form.answers:
            # The client of a stream cannot answer. If it is gone, its socket takes no more bytes,
            # and `_drain` ends the session.
            self.connection.last_received = now
        elif now >= due + self._keepalive:
            reason = f"Nothing was heard for {2 * self._keepalive // NS_PER_S} s."
            self.close(limits.CLOSE_KEEPALIVE_MISSED, reason, drop=True)
            return
        if now >= due:
            outbox.send_control(outbox.form.alive())
            due += self._keepalive
        context.engine.set_timer(self.connection, due)

    def _must_connect(self) -> bool:
        """Return whether the client still has to connect with a token that the node accepts."""
        return self.connection.context.settings.tokens_decide and not self.admitted

    # The methods of `Owner`, which the outbox calls.

    def view(self, now: int) -> SessionView:
        """Return how the session is doing."""
        outbox, connection = self.outbox, self.connection
        return SessionView(
            session=session_name(connection.context.settings.node_name, outbox.session),
            address=connection.address,
            transport=outbox.form.name,
            secure=connection.secure,
            outbox_bytes=outbox.bytes_waiting,
            waiting_ms=(now - outbox.since) // NS_PER_MS if outbox.unsent else 0,
            silent_ms=(now - connection.last_received) // NS_PER_MS,
        )

    def keepalive_agreed(self, keepalive: int) -> None:
        """Take the keep-alive interval (ns) of `connected`: the node has admitted the client."""
        if not self.admitted:
            self.admitted = True
            self.connection.unfinished.admit()
        self._keepalive = keepalive
        self.connection.give_time(keepalive)

    def parked(self) -> None:
        """Start the task that waits until the socket takes more."""
        connection = self.connection
        if connection.ending:
            return
        self.outbox.since = connection.context.clock()
        connection.drain_with(self._drain)
        connection.context.session_handler.writability(self.outbox, writable=False)

    def lost(self, reason: str) -> None:
        """End the session: the socket is broken."""
        self.connection.context.session_handler.closed(self.outbox, reason)
        self.connection.abort()

    def outbox_overflow(self) -> None:
        """Apply the policy for slow consumers, and end the session if that does not help.

        The client can reconnect and recover what it missed.
        """
        context = self.connection.context
        if self.outbox.apply_policy(context.settings.slow_consumers):
            context.sessions.measures.relieved += 1
            return
        self.close(
            limits.CLOSE_SLOW_CONSUMER,
            "This client reads too slowly. Reconnect and recover what was missed.",
            drop=True,
        )

    def catch_up_overflow(self) -> None:
        """End the session: the client requested more than may wait for it."""
        self.close(
            limits.CLOSE_SLOW_CONSUMER,
            f"More than {limits.CATCH_UP_BYTES_MAX} bytes wait: ask for fewer subjects at a time.",
            drop=True,
        )

    def failed(self) -> None:
        """End the session with 1011 because of the exception that is being handled, a bug."""
        log, address = self.connection.context.log, self.connection.address
        log.exception("session failed", address=address)
        try:
            self.close(limits.CLOSE_INTERNAL_ERROR, INTERNAL_ERROR, drop=True)
        except Exception:
            log.exception("session could not be closed", address=address)
            self.connection.abort()

    def close(self, code: int, reason: str, *, drop: bool = False) -> None:
        """Close the session: send what waits (with `drop` nothing of it), then code and reason.

        Does nothing if the session is closing already.
        """
        if not self._open:
            return
        self._open = False
        connection, outbox = self.connection, self.outbox
        refusals.tell(connection.address, code, reason, session=outbox.session)
        connection.context.sessions.measures.close(code)
        connection.context.session_handler.closed(outbox, reason)
        connection.give_time(connection.context.settings.close_timeout)
        outbox.finish(outbox.form.goodbye(code, reason), drop=drop)

    async def _drain(self) -> None:
        """Send on whenever the socket takes more, until nothing waits."""
        outbox, connection = self.outbox, self.connection
        timeout_s = connection.context.settings.write_timeout / NS_PER_S
        done = False
        while not done and not connection.ending:
            with trio.move_on_after(timeout_s) as waiting:
                await trio.lowlevel.wait_writable(connection.sock)
            if waiting.cancelled_caught:
                self.lost("the client took no byte in time")
                return
            done = outbox.drain()
            if done:
                connection.context.session_handler.writability(outbox, writable=True)
            self._drained()
            await trio.lowlevel.checkpoint()

    def _drained(self) -> None:
        """Act on the socket having taken bytes; for protocols whose reader waits for that."""
