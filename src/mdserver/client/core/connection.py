"""`ClientConnection`: whether the client is connected, and when and where it connects next.

The phases of a connection and the transitions between them (`phases.TRANSITIONS`):

- IDLE: the client has not connected yet, or the application disconnected it. `open` leads to
  OPENING.
- OPENING: a transport is being opened. `opened` leads to GREETING.
- GREETING: the command `connect` was sent. The event `connected` leads to UP.
- UP: the session is established. Subscriptions and publications are sent only in this phase.
- WAITING: an attempt failed, or the connection was lost. The timer `attempt` starts the next one,
  at a time that `Schedule` chooses and to a server that `ServerChoice` chooses.
- NEEDS_TOKEN: the token expired (close code 4005). A new token, or `connect`, leads to OPENING.
- STOPPED: reconnecting unchanged would fail again, because the server refused this client (close
  codes 4100 to 4199) or breaks the protocol. Only the application leads out of this phase, with
  `connect` or a new token.

OPENING, GREETING and UP are the live phases. They end in WAITING ("retry"), NEEDS_TOKEN ("token")
or STOPPED ("stop"). `disconnect` leads from every phase to IDLE. An event without an entry in the
table is a LocalProtocolError.

An attempt number identifies one transport. It changes when a transport is opened and when a
connection ends, so late reports of an earlier transport are recognised and ignored.
"""

import random
from collections.abc import Callable, Iterable

from mdserver import limits
from mdserver.client.core import values as out
from mdserver.client.core.liveness import Liveness, ServerLook
from mdserver.client.core.outputs import Outputs
from mdserver.client.core.phases import (
    TIMER_ATTEMPT,
    TIMER_LIVENESS,
    TIMER_MOVE,
    TIMER_OPENING,
    TIMER_PUBLISH,
    TRANSITIONS,
    Phase,
)
from mdserver.client.core.schedule import ReconnectSettings, Schedule
from mdserver.client.core.servers import ServerChoice, ServerEndpoint, parse_server
from mdserver.client.core.values import Notification
from mdserver.core import events
from mdserver.errors import LocalProtocolError, RemoteProtocolError
from mdserver.limits import NS_PER_MS, NS_PER_S

_ORDERLY = {limits.CLOSE_MOVED, limits.CLOSE_NO_QUORUM, limits.CLOSE_SHUTTING_DOWN}
_LIVE = {Phase.OPENING, Phase.GREETING, Phase.UP}


class ClientConnection:
    """The client's connection, one attempt after another.

    `now` is the time of the input that is being handled, in nanoseconds. `ended` is called whenever
    a connection has ended. `stopped` is called with the reason when the client stops, so that no
    other connection follows by itself. The outputs of `ended` come before the notification of the
    loss, those of `stopped` before the output `Stopped`. Raises ValueError if an address cannot be
    parsed or there is none.
    """

    def __init__(
        self,
        servers: Iterable[str | ServerEndpoint],
        *,
        encryption: bool,
        reconnect: ReconnectSettings,
        open_timeout_s: float,
        rng: random.Random,
        outputs: Outputs,
        ended: Callable[[], None],
        stopped: Callable[[str], None],
    ) -> None:
        self.phase = Phase.IDLE
        self.now = 0
        self.attempt = 0
        self.connected_to: events.Connected | None = None
        self.failure = "nothing answered yet"
        self.encryption = encryption
        self._open_timeout_s = open_timeout_s
        self._rng = rng
        self._outputs = outputs
        self._ended = ended
        self._stopped = stopped
        self._choice = ServerChoice(self._parsed(servers))
        self._server: ServerEndpoint | None = None
        self._schedule = Schedule(reconnect)
        self._liveness = Liveness(rng)
        self._down_told = False  # SERVER_DOWN was notified, and no SERVER_UP since
        self._ever_up = False
        self._moving = False  # `move` came on this connection

    # What the application wants

    @property
    def live(self) -> bool:
        """Whether a transport is being opened or is open."""
        return self.phase in _LIVE

    def set_servers(self, servers: Iterable[str | ServerEndpoint]) -> None:
        """Use these servers from the next attempt on; raises ValueError as the constructor does."""
        self._choice.replace(self._parsed(servers))

    def set_reconnect(self, reconnect: ReconnectSettings) -> None:
        """Follow these settings from the next failure on."""
        self._schedule.follow(reconnect)

    def open(self) -> None:
        """Open a transport to the server that `ServerChoice` chooses."""
        self._transition("open")
        self._outputs.cancel(TIMER_ATTEMPT)
        if self._server is not None and self._schedule.reconnecting(self.now):
            self._outputs.notify(Notification.RECONNECT_RATE_EXCEEDED)
        self._server = self._choice.choose(self._rng)
        secure = self.encryption if self._server.secure is None else self._server.secure
        self.attempt += 1
        self._outputs.emit(out.OpenTransport(self.attempt, self._server, secure=secure))
        self._outputs.set_timer(TIMER_OPENING, self.now + int(self._open_timeout_s * NS_PER_S))

    def disconnect(self) -> None:
        """Close the connection and do not reconnect."""
        if self.live:
            self.close(limits.CLOSE_NORMAL, "")
        self._end()
        self._outputs.cancel(TIMER_ATTEMPT)
        self.phase = Phase.IDLE

    def close(self, code: int, reason: str) -> None:
        """Close the transport. The caller sets the phase that follows."""
        self._outputs.emit(out.CloseTransport(self.attempt, code, reason))

    # Reports of the driver

    def opened(self) -> None:
        """Note that the transport is open."""
        self._transition("opened")
        self._liveness.heard(self.now)

    def heard(self) -> None:
        """Note that the server sent something."""
        self._liveness.heard(self.now)

    def lost(self, code: int, reason: str) -> None:
        """Leave a live phase: decide from the close code whether, when and where to reconnect."""
        if 4100 <= code <= 4199:
            self.stop(code, reason)
            return
        was_moving, was_up = self._moving, self.phase is Phase.UP
        self._end()
        if not was_up and not was_moving:
            self._retry(reason)
            return
        if was_up:
            self._schedule.lost(self.now)
        if code == limits.CLOSE_TOKEN_EXPIRED:
            self._transition("token")
            self._down(reason, always=True)
        elif (code in _ORDERLY or was_moving) and self._schedule.hop(self._choice.count):
            # The server sent this client away. Nothing failed, so the client neither backs off nor
            # notifies the application. `hop` bounds this: every server might send it to the next.
            self._transition("retry")
            self._leave_out()
            self._outputs.set_timer(TIMER_ATTEMPT, self.now + self._move_jitter())
        else:
            # A slow consumer was disconnected because it was slow itself, so there is no reason to
            # avoid this server.
            self._retry(reason, elsewhere=code != limits.CLOSE_SLOW_CONSUMER)

    def due(self, timer: str) -> None:
        """Handle a timer that is due, except the one of liveness, which `ping_due` handles.

        A timer may come due in a phase that it no longer concerns; it then has no effect.
        """
        if timer == TIMER_ATTEMPT and self.phase is Phase.WAITING:
            self.open()
        elif timer == TIMER_OPENING and self.phase in {Phase.OPENING, Phase.GREETING}:
            self._abandon(limits.CLOSE_GOING_AWAY, "the server did not answer in time")
        elif timer == TIMER_MOVE and self.phase in {Phase.GREETING, Phase.UP}:
            self._move()

    def ping_due(self) -> bool:
        """Check the server when the liveness timer is due; return whether to send a ping now.

        The connection to a server that did not answer a ping is given up. Call `pinged` after the
        ping.
        """
        verdict = self._liveness.look(self.now)
        if verdict is ServerLook.LOST:
            self._abandon(
                limits.CLOSE_KEEPALIVE_MISSED, "nothing was heard of the server for too long"
            )
        elif verdict is ServerLook.ALIVE:
            self._outputs.set_timer(TIMER_LIVENESS, self._liveness.next_look)
        return verdict is ServerLook.SILENT

    def pinged(self) -> None:
        """Give the server time to answer the ping that was just sent."""
        self._liveness.pinged(self.now)
        self._outputs.set_timer(TIMER_LIVENESS, self._liveness.next_look)

    # What the server says

    def greeted(self, event: events.Connected) -> None:
        """Begin the session: the server has accepted the client."""
        self._transition("connected")
        self._outputs.cancel(TIMER_OPENING)
        self.connected_to = event
        self._choice.succeeded()
        self._schedule.succeeded(self.now)
        self._outputs.emit(out.Connected(event))
        if self._down_told or not self._ever_up:
            self._outputs.notify(Notification.SERVER_UP, info=str(self._server))
        self._down_told, self._ever_up = False, True
        if event.keepalive_ms:
            self._liveness.start(event.keepalive_ms, self.now)
            self._outputs.set_timer(TIMER_LIVENESS, self._liveness.next_look)

    def move(self, event: events.Move) -> None:
        """Leave for another server after the delay that the server asks for.

        Raises RemoteProtocolError if the event names a bad server.
        """
        self._moving = True
        self._leave_out()
        try:
            self._choice.prefer(self._parsed(event.servers or []))
        except ValueError as error:
            raise RemoteProtocolError(f"`move` names a bad server: {error}") from None
        delay = max(0, event.delay_ms) * NS_PER_MS + self._move_jitter()
        self._outputs.set_timer(TIMER_MOVE, self.now + delay)

    def stop(self, code: int, reason: str) -> None:
        """End the connection, fail what has no result, and do not reconnect."""
        self._end()
        self._transition("stop")
        self._down(reason, always=True)
        self._stopped(reason)
        self._outputs.emit(out.Stopped(code, reason))

    # How a connection ends

    def _transition(self, event: str) -> None:
        target = TRANSITIONS.get((self.phase, event))
        if target is None:
            raise LocalProtocolError(f"{event!r} while the client is {self.phase.value}")
        self.phase = target

    def _retry(self, reason: str, *, elsewhere: bool = True) -> None:
        """Wait for the next attempt, as long as the schedule says.

        With `elsewhere` the next attempt avoids this server, if there is another one.
        """
        self._transition("retry")
        if elsewhere:
            self._leave_out()
        self._down(reason)
        self._outputs.set_timer(TIMER_ATTEMPT, self.now + self._schedule.next_delay(self._rng))

    def _leave_out(self) -> None:
        """Have the next attempt choose another server, if there is one."""
        assert self._server is not None
        self._choice.failed(self._server)

    def _move(self) -> None:
        """Leave for another server, now that the delay of `move` is over."""
        self.close(limits.CLOSE_NORMAL, "moving")
        self._end()
        if self.phase is Phase.UP:
            self._schedule.lost(self.now)
        if self._schedule.hop(self._choice.count):
            self._transition("retry")
            self.open()
        else:
            self._retry("every server sends this client elsewhere")

    def _abandon(self, code: int, reason: str) -> None:
        """Close this connection and reconnect, as if the server had closed it."""
        self.close(code, reason)
        self.lost(limits.CLOSE_GOING_AWAY, reason)

    def _end(self) -> None:
        """Reset the state of one connection.

        The attempt number changes, so that late reports of its transport are ignored.
        """
        for timer in (TIMER_OPENING, TIMER_LIVENESS, TIMER_MOVE, TIMER_PUBLISH):
            self._outputs.cancel(timer)
        self.attempt += 1
        self._moving = False
        self.connected_to = None
        self._ended()

    def _down(self, reason: str, *, always: bool = False) -> None:
        """Note a failure, and notify SERVER_DOWN once for each time that the server is down.

        The notification comes once the schedule has counted enough failures, with `always` at once.
        """
        self.failure = f"{self._server}: {reason}"
        told = self._schedule.failed()
        if (told or always) and not self._down_told:
            self._down_told = True
            self._outputs.notify(Notification.SERVER_DOWN, info=self.failure)

    def _move_jitter(self) -> int:
        return int(self._rng.uniform(0, limits.CLIENT_MOVE_JITTER_S) * NS_PER_S)

    def _parsed(self, servers: Iterable[str | ServerEndpoint]) -> list[ServerEndpoint]:
        return [
            one if isinstance(one, ServerEndpoint) else parse_server(one, secure=self.encryption)
            for one in servers
        ]
