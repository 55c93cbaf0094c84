"""`ClientCore`: one client's side of the protocol as a state machine.

The core is sans-IO. A driver reports what happened to the transport (`opened`, `received`,
`closed`, `due`), passes on what the application wants (`connect`, `subscribe`, `publish`, ...), and
carries out the outputs that each call returns, in order. The clock is an argument: `now` is in
nanoseconds and never goes back. Randomness is a `random.Random` that is handed in, so a run can be
repeated exactly.

The phases of a connection and the transitions between them (`phases.TRANSITIONS`):

- IDLE: never connected, or disconnected by the application. `connect` opens a transport.
- OPENING: a transport is being opened. `opened` leads to GREETING.
- GREETING: `connect` was sent. The event `connected` leads to UP.
- UP: the session stands. Only in this phase subscriptions and publications are sent.
- WAITING: an attempt failed, or the connection was lost. The timer `attempt` opens the next one, at
  a moment that `Schedule` chooses and to a server that `ServerChoice` chooses.
- NEEDS_TOKEN: the token expired (close code 4005). `set_token` or `connect` opens again.
- STOPPED: the server does not want this client back unchanged (close codes 4100 to 4199, or a
  server that breaks the protocol). `set_token` or `connect` opens again.

OPENING, GREETING and UP are the live phases. They end in WAITING ("retry"), NEEDS_TOKEN ("token")
or STOPPED ("stop"). `disconnect` leads from every phase to IDLE. An event without an entry in the
table is a LocalProtocolError.

Invariants:

- An attempt number names one transport. It changes when a transport is opened and when a connection
  ends, so whatever an older transport still reports is ignored.
- What the application wants (`Subscriptions`, `Publications`) outlives a connection. A new session
  starts empty, so `connected` subscribes to everything again, with positions, and sends again the
  publications that have no result.
- A position is noted only for a message that is delivered. A message that was dropped (paused,
  held, unsubscribed) is therefore recovered later.
"""

import random
from collections.abc import Callable, Iterable

import attrs

from mdserver import limits
from mdserver.client.core import values as out
from mdserver.client.core.fences import Fences
from mdserver.client.core.phases import (
    TIMER_ATTEMPT,
    TIMER_LIVENESS,
    TIMER_MOVE,
    TIMER_OPENING,
    TIMER_PUBLISH,
    TRANSITIONS,
    Phase,
)
from mdserver.client.core.positions import Positions
from mdserver.client.core.publications import Publications
from mdserver.client.core.schedule import ReconnectSettings, Schedule
from mdserver.client.core.servers import Server, ServerChoice, parse_server
from mdserver.client.core.subscriptions import Options, Subscriptions
from mdserver.client.core.values import (
    ClientSettings,
    Notice,
    Notification,
    Numbering,
    Output,
    PublishResult,
)
from mdserver.codec.encoding import ClientCodec
from mdserver.core import commands, events
from mdserver.core.commands import PositionAfter, WireCommand
from mdserver.core.events import StatusName, WireEvent
from mdserver.errors import InvalidSubjectError, LocalProtocolError, RemoteProtocolError
from mdserver.limits import NS_PER_MS, NS_PER_S

_ORDERLY = {limits.CLOSE_MOVED, limits.CLOSE_NO_QUORUM, limits.CLOSE_SHUTTING_DOWN}
_LIVE = {Phase.OPENING, Phase.GREETING, Phase.UP}

_FIRST = events.Connected | events.Move | events.Status | events.Error | events.Closed
"""The events that may come before `connected`: a server may refuse or redirect the client."""


class ClientCore:
    """The client without its transport.

    `servers` is not empty. `new_codec` makes the client's side of one encoding for each connection;
    `rng` serves the choice of servers and the randomness of delays. Raises ValueError if an address
    cannot be read or there is none.
    """

    def __init__(
        self,
        servers: Iterable[str | Server],
        settings: ClientSettings,
        new_codec: Callable[[], ClientCodec],
        rng: random.Random,
    ) -> None:
        self.settings = settings
        self.phase = Phase.IDLE
        self.connected_to: events.Connected | None = None
        self.positions = Positions()
        self.subscriptions = Subscriptions(self.positions)
        self.paused = False
        self._rng = rng
        self._new_codec = new_codec
        self._codec = new_codec()
        self._token = settings.token
        self._choice = ServerChoice(self._parsed(servers))
        self._server: Server | None = None
        self._schedule = Schedule(settings.reconnect)
        resumed = settings.numbering or Numbering()
        if settings.publisher_key is not None:
            resumed = attrs.evolve(
                resumed, publisher=settings.publisher, publisher_key=settings.publisher_key
            )
        self._publications = Publications(
            numbered=settings.publisher is not None or resumed.publisher is not None,
            publications_max=settings.publications_max,
            resumed=resumed,
        )
        self._attempt = 0
        self._down_told = False  # SERVER_DOWN was notified, and no SERVER_UP since
        self._ever_up = False
        self.failure = "nothing answered yet"
        self._moving = False  # `move` came on this connection
        self._now = 0
        self._heard = 0  # when the last message of the transport came
        self._asked: int | None = None  # when the ping was sent whose pong is awaited
        self._silence = 0  # how long (ns) the server may be silent before it is pinged
        self._look = 0  # when the liveness timer is due
        self._timers: dict[str, None] = {}
        self._fences = Fences(self._codec)
        self._singles: list[str] = []  # single subscriptions to end after this payload
        self._out: list[Output] = []
        self._handlers: dict[type[object], Callable[..., None]] = {
            events.Connected: self._on_connected,
            events.Status: self._on_status,
            events.Reset: self._on_reset,
            events.Move: self._on_move,
            events.Error: self._on_error,
            events.Pong: self._on_pong,
            events.Closed: self._on_closed,
        }

    # Requests of the application

    @property
    def publications_waiting(self) -> int:
        """The number of publications without a result, at most `publications_max`."""
        return len(self._publications)

    @property
    def receiving(self) -> bool:
        """Whether messages from the server are accepted, except those of held subscriptions."""
        return self.phase is Phase.UP and not self.paused

    @property
    def numbering(self) -> Numbering:
        """The last number taken in each subject group, from which a later run can go on."""
        return self._publications.numbering

    def connect(self, now: int) -> list[Output]:
        """Connect now, also while waiting to reconnect; do nothing on a live connection."""
        self._now = now
        if self.phase not in _LIVE:
            self._open()
        return self._take()

    def disconnect(self, reason: str = "the client disconnected") -> list[Output]:
        """Close the connection and do not reconnect; publications without a result fail."""
        if self.phase in _LIVE:
            self._emit(out.CloseTransport(self._attempt, limits.CLOSE_NORMAL, ""))
        self._end_connection()
        self._cancel(TIMER_ATTEMPT)
        self.phase = Phase.IDLE
        self._give_up(reason)
        return self._take()

    def give_up(self, reason: str) -> list[Output]:
        """Fail all publications without a result; the client goes on trying to connect."""
        self._give_up(reason)
        return self._take()

    def set_servers(self, servers: Iterable[str | Server]) -> None:
        """Use these servers from the next connection on.

        Raises ValueError if an address cannot be read or there is none.
        """
        self._choice.replace(self._parsed(servers))

    def set_reconnect(self, reconnect: ReconnectSettings) -> None:
        """Follow these settings from the next failure on."""
        self.settings = attrs.evolve(self.settings, reconnect=reconnect)
        self._schedule.follow(reconnect)

    def set_token(self, token: str, now: int) -> list[Output]:
        """Use this token from now on.

        On a session that stands it is renewed in band. When the client stopped, or waits for a
        token, it connects with the new one.
        """
        self._now = now
        self._token = token
        if self.phase is Phase.UP:
            self._command(commands.RenewToken(token=token))
        elif self.phase in {Phase.NEEDS_TOKEN, Phase.STOPPED}:
            self._open()
        return self._take()

    def subscribe(
        self,
        subjects: Iterable[str],
        *,
        history: int = 0,
        conflation_ms: int = 0,
        replay: bool = False,
    ) -> list[Output]:
        """Subscribe to subjects and patterns, on this connection and all later ones.

        `history`: the number of cached messages per subject that come first. `conflation_ms`: at
        most one message per subject in this many milliseconds. `replay`: bring the snapshot or
        history also of subjects that were seen already. Answered by `Subscribed`, and before it by
        `Refused` for subjects that the server refuses. Raises InvalidSubjectError before anything
        is subscribed.
        """
        wanted = list(dict.fromkeys(subjects))
        options = Options(history, conflation_ms)
        self.subscriptions.add(wanted, options, replay=replay)
        if self.phase is Phase.UP and not self.paused:
            if replay:
                again = self.subscriptions.commands(wanted, replay=True)
            else:
                again = self.subscriptions.first_commands(wanted, options, anew=True)
            for command in again:
                self._subscribe(command)
        return self._take()

    def unsubscribe(self, subjects: Iterable[str]) -> list[Output]:
        """End subscriptions; subjects that are not subscribed are ignored."""
        removed = self.subscriptions.remove(subjects)
        if removed and self.phase is Phase.UP and not self.paused:
            self._unsubscribe(removed)
        return self._take()

    def pause(self) -> list[Output]:
        """Stop receiving messages; subscriptions and positions are kept."""
        if not self.paused:
            self.paused = True
            if self.phase is Phase.UP and len(self.subscriptions):
                self._unsubscribe(self.subscriptions)
        return self._take()

    def resume(self) -> list[Output]:
        """Receive messages again; those that were missed come first."""
        if self.paused:
            self.paused = False
            if self.phase is Phase.UP:
                self._resubscribe(self.subscriptions)
        return self._take()

    def hold(self, subjects: Iterable[str]) -> list[Output]:
        """Stop receiving these subscriptions for now; what they miss is recovered on `release`."""
        held = self.subscriptions.hold(subjects)
        if held and self.phase is Phase.UP and not self.paused:
            self._unsubscribe(held)
        return self._take()

    def release(self, subjects: Iterable[str]) -> list[Output]:
        """Receive held subscriptions again; what they missed comes first."""
        released = self.subscriptions.release(subjects)
        if self.phase is Phase.UP and not self.paused:
            self._resubscribe(released)
        return self._take()

    def publish(self, request: commands.Publish) -> tuple[int, list[Output]]:
        """Take a publication, and send it if the session stands and its line is not held.

        The core sets `id` and `number` of the request. Returns the id that the `PublishResult` will
        carry, and the outputs. While the client is stopped, the publication fails at once; in every
        other phase without a session it waits for the next one. Raises LocalProtocolError if
        `publications_max` publications have no result yet.
        """
        publication, done = self._publications.add(request)
        if isinstance(done, PublishResult):
            self._published(done)
        elif done is not None:
            self._command(done)
        elif self.phase is Phase.STOPPED:
            # `_stop` failed what was waiting; what is published later must not wait either.
            self._give_up("the client is not connected")
        return publication, self._take()

    def report(self, receipts: Iterable[list[commands.Receipt]], mark: int) -> list[Output]:
        """Send receipts if the session stands; answered by `Reported` with this mark.

        `receipts` holds one list for each command. Without a session nothing is sent, and no answer
        comes.
        """
        if self.phase is Phase.UP:
            for portion in receipts:
                self._command(commands.Receipts(receipts=portion))
            self._command(self._fences.marked(mark))
        return self._take()

    def ask_caught_up(self, mark: int) -> list[Output]:
        """Ask for `Reported` with this mark once all subscriptions have caught up.

        The answer comes after everything that earlier subscriptions bring before live messages.
        Without a session nothing is asked, and no answer comes.
        """
        if self.phase is Phase.UP:
            self._command(self._fences.marked(mark, caught_up=True))
        return self._take()

    # Reports of the driver

    def opened(self, attempt: int, now: int) -> list[Output]:
        """Handle a transport that has been opened: send `connect`."""
        if attempt == self._attempt and self.phase is Phase.OPENING:
            self._transition("opened")
            self._now = self._heard = now
            self._codec = self._new_codec()
            self._fences = Fences(self._codec)
            known = self._publications.numbering
            self._command(
                commands.Connect(
                    token=self._token,
                    client=self.settings.client,
                    publisher=known.publisher or self.settings.publisher,
                    publisher_key=known.publisher_key,
                    external_token=self.settings.external_token,
                    keepalive_ms=self.settings.keepalive_ms,
                )
            )
        return self._take()

    def received(self, attempt: int, payload: bytes, now: int) -> list[Output]:
        """Handle one message of the transport.

        A server that breaks the protocol stops the client: the same server would break it again.
        """
        if attempt == self._attempt and self.phase in {Phase.GREETING, Phase.UP}:
            self._now = self._heard = now
            try:
                self._events(self._codec.events(payload))
            except RemoteProtocolError as error:
                self._emit(out.CloseTransport(self._attempt, error.code, error.reason))
                self._stop(error.code, f"the server broke the protocol: {error.reason}")
            self._publish_ready()
            # One command for all of them, after the whole payload was read.
            if self._singles and self.phase is Phase.UP:
                self._unsubscribe(self._singles)
            self._singles = []
        return self._take()

    def closed(self, attempt: int, code: int, reason: str, now: int) -> list[Output]:
        """Handle a transport that ended or could not be opened; `code` as in docs/protocol.md."""
        if attempt == self._attempt and self.phase in _LIVE:
            self._now = now
            self._closed(code, reason)
        return self._take()

    def due(self, timer: str, now: int) -> list[Output]:
        """Handle a timer that is due.

        A timer may come due in a phase that it no longer concerns; it then has no effect.
        """
        self._now = now
        self._timers.pop(timer, None)
        if timer == TIMER_ATTEMPT and self.phase is Phase.WAITING:
            self._open()
        elif timer == TIMER_OPENING and self.phase in {Phase.OPENING, Phase.GREETING}:
            self._abandon(limits.CLOSE_GOING_AWAY, "the server did not answer in time")
        elif timer == TIMER_LIVENESS and self.phase is Phase.UP:
            self._check_liveness()
        elif timer == TIMER_MOVE and self.phase in {Phase.GREETING, Phase.UP}:
            self._move()
        elif timer == TIMER_PUBLISH and self.phase is Phase.UP:
            self._publications.retry()
            self._publish_ready()
        return self._take()

    # The connection

    def _transition(self, event: str) -> None:
        target = TRANSITIONS.get((self.phase, event))
        if target is None:
            raise LocalProtocolError(f"{event!r} while the client is {self.phase.value}")
        self.phase = target

    def _open(self) -> None:
        self._transition("open")
        self._cancel(TIMER_ATTEMPT)
        if self._server is not None and self._schedule.reconnecting(self._now):
            self._notify(Notification.RECONNECT_RATE_EXCEEDED)
        self._server = self._choice.choose(self._rng)
        secure = self._server.secure
        self._attempt += 1
        self._emit(
            out.OpenTransport(
                self._attempt,
                self._server,
                secure=self.settings.encryption if secure is None else secure,
            )
        )
        self._set_timer(TIMER_OPENING, self._now + int(self.settings.open_timeout_s * NS_PER_S))

    def _closed(self, code: int, reason: str) -> None:
        """Leave a live phase: decide from the close code whether, when and where to reconnect."""
        if 4100 <= code <= 4199:
            self._stop(code, reason)
            return
        was_moving, was_up = self._moving, self.phase is Phase.UP
        self._end_connection()
        if not was_up and not was_moving:
            self._retry(reason)
            return
        if was_up:
            self._schedule.lost(self._now)
        if code == limits.CLOSE_TOKEN_EXPIRED:
            self._transition("token")
            self._down(reason, always=True)
        elif (code in _ORDERLY or was_moving) and self._schedule.hop(self._choice.count):
            # The server sent this client away: nothing failed, so it neither backs off nor
            # notifies. `hop` bounds this, in case every server sends it to the next one.
            self._transition("retry")
            self._leave_out()
            self._set_timer(TIMER_ATTEMPT, self._now + self._move_jitter())
        else:
            # A slow consumer was disconnected for its own slowness; its server is as good as any.
            self._retry(reason, elsewhere=code != limits.CLOSE_SLOW_CONSUMER)

    def _retry(self, reason: str, *, elsewhere: bool = True) -> None:
        """Wait for the next attempt as the schedule says.

        `elsewhere`: avoid this server for now.
        """
        self._transition("retry")
        if elsewhere:
            self._leave_out()
        self._down(reason)
        self._set_timer(TIMER_ATTEMPT, self._now + self._schedule.next_delay(self._rng))

    def _leave_out(self) -> None:
        """Connect to another server next time, if there is one."""
        assert self._server is not None
        self._choice.failed(self._server)

    def _move(self) -> None:
        """Leave for another server when the delay of `move` is over."""
        self._emit(out.CloseTransport(self._attempt, limits.CLOSE_NORMAL, "moving"))
        self._end_connection()
        if self.phase is Phase.UP:
            self._schedule.lost(self._now)
        if self._schedule.hop(self._choice.count):
            self._transition("retry")
            self._open()
        else:
            self._retry("every server sends this client elsewhere")

    def _abandon(self, code: int, reason: str) -> None:
        """Close this connection and reconnect, as if the server had closed it."""
        self._emit(out.CloseTransport(self._attempt, code, reason))
        self._closed(limits.CLOSE_GOING_AWAY, reason)

    def _stop(self, code: int, reason: str) -> None:
        """End the connection, fail what has no result, and do not reconnect."""
        self._end_connection()
        self._transition("stop")
        self._down(reason, always=True)
        self._give_up(reason)
        self._emit(out.Stopped(code, reason))

    def _end_connection(self) -> None:
        """Reset the state of one connection.

        The attempt number changes, so that what its transport still reports is ignored.
        """
        for timer in (TIMER_OPENING, TIMER_LIVENESS, TIMER_MOVE, TIMER_PUBLISH):
            self._cancel(timer)
        self._attempt += 1
        self._moving = False
        self.connected_to = None
        for result in self._publications.lost():
            self._published(result)

    def _down(self, reason: str, *, always: bool = False) -> None:
        """Note a failure, and notify SERVER_DOWN once for each time that the server is down.

        The notification comes when the schedule has counted enough failures; with `always` at once.
        """
        self.failure = f"{self._server}: {reason}"
        told = self._schedule.failed()
        if (told or always) and not self._down_told:
            self._down_told = True
            self._notify(Notification.SERVER_DOWN, info=f"{self._server}: {reason}")

    def _give_up(self, reason: str) -> None:
        for result in self._publications.stopped(reason):
            self._published(result)

    def _move_jitter(self) -> int:
        return int(self._rng.uniform(0, limits.CLIENT_MOVE_JITTER_S) * NS_PER_S)

    def _check_liveness(self) -> None:
        """Ping a silent server, and abandon it if no pong comes."""
        late = self._now - self._look > limits.CLIENT_LATE_S * NS_PER_S
        if self._asked is not None and self._heard > self._asked:
            self._asked = None
        if self._asked is not None and not late:
            self._abandon(
                limits.CLOSE_KEEPALIVE_MISSED, "nothing was heard of the server for too long"
            )
        elif self._asked is not None or self._now - self._heard >= self._silence:
            # If the timer itself is late, this process stood still and may not have read an answer
            # that has arrived: ask again before the server is blamed.
            self._command(commands.Ping())
            self._asked = self._now
            self._look_at(self._now + self._bit_less(limits.CLIENT_PONG_S))
        else:
            self._look_again()

    def _look_again(self) -> None:
        """Set the liveness timer to when the server will have been silent for too long."""
        self._silence = self._bit_less(limits.CLIENT_SILENCE_S)
        self._look_at(max(self._now, self._heard + self._silence))

    def _bit_less(self, longest_s: float) -> int:
        """Return a time (ns) up to `longest_s` or the keep-alive interval, at most the shorter.

        It is random, so that very many clients do not ping at the same moment.
        """
        assert self.connected_to is not None
        keepalive = self.connected_to.keepalive_ms * NS_PER_MS
        return int(min(longest_s * NS_PER_S, keepalive) * self._rng.uniform(0.75, 1))

    def _look_at(self, at: int) -> None:
        self._look = at
        self._set_timer(TIMER_LIVENESS, at)

    # What the server says

    def _events(self, batch: list[WireEvent | events.MessageEvent]) -> None:
        """Handle the events of one message of the transport.

        Consecutive messages are delivered in one output.
        """
        messages: list[events.MessageEvent] = []
        for event in batch:
            if self.phase is Phase.GREETING and not isinstance(event, _FIRST):
                raise RemoteProtocolError("the first event of a session is `connected`")
            if isinstance(event, events.MessageEvent):
                if not self.paused and self.subscriptions.takes(event):
                    if self.positions.repeats(event):
                        if messages:
                            self._emit(out.DeliverMessages(messages))
                            messages = []
                        self._emit(out.DeliverMessages([event], repeated=True))
                    elif self.positions.accept(event):
                        messages.append(event)
                # Only a message without `match` came through the single subscription. One that
                # came through the pattern may have been sent before that subscription stood.
                if (
                    self.subscriptions.lone
                    and event.match is None
                    and not self.subscriptions.replay_awaited(event.subject)
                ):
                    self._single_done(event.subject)
                continue
            if messages:
                self._emit(out.DeliverMessages(messages))
                messages = []
            self._handlers[type(event)](event)
            # The event may have ended the connection; what follows it has no session any more.
            if self.phase not in {Phase.GREETING, Phase.UP}:
                return
        if messages:
            self._emit(out.DeliverMessages(messages))

    def _single_done(self, subject: str) -> None:
        """Note that a subject was recovered on its own; from now on its pattern brings it."""
        if self.subscriptions.recovered(subject):
            self._singles.append(subject)

    def _on_connected(self, event: events.Connected) -> None:
        if self.phase is not Phase.GREETING:
            raise RemoteProtocolError("`connected` comes once, as the first event")
        if event.version != limits.PROTOCOL_VERSION or event.groups < 1:
            raise RemoteProtocolError(
                f"version {event.version} with {event.groups} subject groups was answered; this "
                f"client speaks version {limits.PROTOCOL_VERSION}"
            )
        self._transition("connected")
        self._cancel(TIMER_OPENING)
        self.connected_to = event
        self._choice.succeeded()
        self._schedule.succeeded(self._now)
        self._emit(out.Connected(event))
        if self._down_told or not self._ever_up:
            self._notify(Notification.SERVER_UP, info=str(self._server))
        self._down_told, self._ever_up = False, True
        self.positions.connected(event.history)
        self.subscriptions.connected()
        if event.keepalive_ms:
            self._asked = None
            self._look_again()
        if not self.paused:
            self._resubscribe(self.subscriptions)
        for result in self._publications.connected(event):
            self._published(result)

    def _on_status(self, event: events.Status) -> None:
        status = event.status
        if status in _RESULTS:
            result = self._publications.answered(event)
            if result is not None:
                self._published(result, event)
            return
        self._notify(
            Notification[status.value],
            info=event.reason or event.info,
            subject=event.subject,
            closure=event.closure,
            missing=event.missing,
        )
        if event.subject is None:
            return
        if status in {StatusName.DATA_SYNC, StatusName.DATA_RESYNC}:
            again = self.subscriptions.replays(event.subject)
            for command in again:
                self._subscribe(command)
            if not again:
                self._single_done(event.subject)
        elif status is StatusName.SUBSCRIBE_DENY:
            self._refuse([event.subject], event.reason or "the subscription was refused")

    def _on_reset(self, event: events.Reset) -> None:
        known = [
            subject
            for subject in event.subjects
            if subject in self.subscriptions or self.positions.get(subject) is not None
        ]
        try:
            self.positions.reset(event.history, event.subjects)
        except InvalidSubjectError as error:
            raise RemoteProtocolError(f"`reset` names a bad subject: {error}") from None
        for subject in known:
            info = f"the server numbers messages anew (history {event.history}): some may be lost"
            self._notify(Notification.DATA_RESYNC, info=info, subject=subject)

    def _on_move(self, event: events.Move) -> None:
        self._moving = True
        self._leave_out()
        servers = []
        for text in event.servers or []:
            try:
                servers.append(parse_server(text, secure=self.settings.encryption))
            except ValueError as error:
                raise RemoteProtocolError(f"`move` names a bad server: {error}") from None
        self._choice.prefer(servers)
        delay = max(0, event.delay_ms) * NS_PER_MS + self._move_jitter()
        self._set_timer(TIMER_MOVE, self._now + delay)

    def _on_error(self, event: events.Error) -> None:
        subjects = self._fences.subjects(event.id)
        if isinstance(event.id, int):
            status = events.Status(
                status=StatusName.PUBLISH_FAILED, id=event.id, reason=event.reason, certain=True
            )
            result = self._publications.answered(status)
            if result is not None:
                self._published(result)
        elif len(subjects) == 1:
            self._notify(Notification.SUBSCRIBE_DENY, info=event.reason, subject=subjects[0])
            self._refuse(subjects, event.reason)
        else:
            self._notify(Notification.ERROR, info=f"{event.code}: {event.reason}")

    def _on_pong(self, event: events.Pong) -> None:
        subjects = self._fences.passed(event.t)
        if subjects:
            self._emit(out.Subscribed(subjects))
        mark = self._fences.mark(event.t)
        if mark is not None:
            self._emit(out.Reported(mark))

    def _on_closed(self, event: events.Closed) -> None:
        self._emit(out.CloseTransport(self._attempt, limits.CLOSE_NORMAL, ""))
        self._closed(event.code, event.reason)

    # Commands

    def _resubscribe(self, subjects: Iterable[str]) -> None:
        for command in self.subscriptions.commands(subjects):
            self._subscribe(command)

    def _subscribe(self, command: commands.Subscribe) -> None:
        for fenced in self._fences.put(command):
            self._command(fenced)

    def _unsubscribe(self, subjects: Iterable[str]) -> None:
        ending = self.subscriptions.ending(subjects)
        for command in self.subscriptions.first_commands(ending, Options()):
            self._command(commands.Unsubscribe(subjects=command.subjects))

    def _refuse(self, subjects: Iterable[str], reason: str) -> None:
        gone = self.subscriptions.remove(subjects)
        if gone:
            self._emit(out.Refused(gone, reason))

    def _publish_ready(self) -> None:
        if self.phase is not Phase.UP:
            return
        for command in self._publications.ready():
            self._command(command)
        if self._publications.resting:
            delay = self._rng.uniform(0.5, 1) * limits.CLIENT_PUBLISH_RETRY_S
            self._set_timer(TIMER_PUBLISH, self._now + int(delay * NS_PER_S))

    def _published(self, result: PublishResult, event: events.Status | None = None) -> None:
        self._emit(out.Published(result))
        if event is not None and event.closure is not None:
            position = None
            if result.seq:
                position = PositionAfter(self.positions.history, result.epoch, result.seq)
            self._notify(
                Notification[result.status.value],
                info=result.reason,
                subject=event.subject,
                closure=event.closure,
                position=position,
            )

    def _command(self, command: WireCommand) -> None:
        self._emit(out.Transmit(self._attempt, self._codec.command(command)))

    def _notify(self, status: Notification, **told: object) -> None:
        self._emit(out.Notify(Notice(status, **told)))  # type: ignore[arg-type]

    def _set_timer(self, timer: str, at: int) -> None:
        self._timers[timer] = None
        self._emit(out.SetTimer(timer, at))

    def _cancel(self, timer: str) -> None:
        if timer in self._timers:
            del self._timers[timer]
            self._emit(out.CancelTimer(timer))

    def _emit(self, output: Output) -> None:
        self._out.append(output)

    def _take(self) -> list[Output]:
        taken, self._out = self._out, []
        return taken

    def _parsed(self, servers: Iterable[str | Server]) -> list[Server]:
        secure = self.settings.encryption
        return [s if isinstance(s, Server) else parse_server(s, secure=secure) for s in servers]


_RESULTS = {
    StatusName.PUBLISH_OK,
    StatusName.PUBLISH_FAILED,
    StatusName.PUBLISH_DENIED,
    StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED,
}
