"""`ClientCore`: one client's side of the protocol as a state machine.

A driver tells it what happened (`opened`, `received`, `closed`, `due`) and what the application
wants (`connect`, `subscribe`, `publish`, ...), always with the time, and carries out the outputs
that each call gives back, in order. Nothing else happens in here.
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
"""What a server may say before `connected`: it may have no use for this client at all."""


class ClientCore:
    """The client without its transport.

    `new_codec` makes the client's side of one encoding for each connection; `rng` is used for the
    choice of servers and for the randomness of delays. Not reentrant.
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
        self._down_told = False
        self._ever_up = False
        self.failure = "nothing answered yet"
        self._moving = False
        self._now = 0
        self._heard = 0
        self._asked: int | None = None
        self._silence = 0
        self._look = 0
        self._timers: dict[str, None] = {}
        self._fences = Fences(self._codec)
        self._singles: list[str] = []
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

    # What the application wants

    @property
    def publications_waiting(self) -> int:
        """Publications without a result; `publish` takes no more than `publications_max`."""
        return len(self._publications)

    @property
    def receiving(self) -> bool:
        """Whether messages that the server sends are taken, as far as they are not held."""
        return self.phase is Phase.UP and not self.paused

    @property
    def numbering(self) -> Numbering:
        """How far the publisher has come, for a later run that goes on from here."""
        return self._publications.numbering

    def connect(self, now: int) -> list[Output]:
        """Connect now, also while waiting to reconnect. Without effect on a live connection."""
        self._now = now
        if self.phase not in _LIVE:
            self._open()
        return self._take()

    def disconnect(self, reason: str = "the client disconnected") -> list[Output]:
        """Close the connection and stay away; publications without a result fail."""
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
        """Use these servers from the next connection on. Raises ValueError."""
        self._choice.replace(self._parsed(servers))

    def set_reconnect(self, reconnect: ReconnectSettings) -> None:
        """Follow this schedule from the next failure on."""
        self.settings = attrs.evolve(self.settings, reconnect=reconnect)
        self._schedule.follow(reconnect)

    def set_token(self, token: str, now: int) -> list[Output]:
        """Use this token from now on; renews it in band on a live connection."""
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
        """Subscribe to subjects and patterns, also for all later connections.

        `history`: so many cached messages first. `conflation_ms`: at most one message a subject in
        so many milliseconds. `replay`: with what was seen already. Answered by `Subscribed`, and by
        `Refused` before it where due.
        Raises InvalidSubjectError before anything is subscribed.
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
        """End subscriptions; those that do not exist are no error."""
        removed = self.subscriptions.remove(subjects)
        if removed and self.phase is Phase.UP and not self.paused:
            self._unsubscribe(removed)
        return self._take()

    def pause(self) -> list[Output]:
        """Receive no more messages; subscriptions and positions are kept."""
        if not self.paused:
            self.paused = True
            if self.phase is Phase.UP and len(self.subscriptions):
                self._unsubscribe(self.subscriptions)
        return self._take()

    def resume(self) -> list[Output]:
        """Receive messages again, first those that were missed."""
        if self.paused:
            self.paused = False
            if self.phase is Phase.UP:
                self._resubscribe(self.subscriptions)
        return self._take()

    def hold(self, subjects: Iterable[str]) -> list[Output]:
        """Receive nothing of these subscriptions for now; what is missed is recovered later."""
        held = self.subscriptions.hold(subjects)
        if held and self.phase is Phase.UP and not self.paused:
            self._unsubscribe(held)
        return self._take()

    def release(self, subjects: Iterable[str]) -> list[Output]:
        """End `hold`."""
        released = self.subscriptions.release(subjects)
        if self.phase is Phase.UP and not self.paused:
            self._resubscribe(released)
        return self._take()

    def publish(self, request: commands.Publish) -> tuple[int, list[Output]]:
        """Publish; `id` and `number` of the request are ours to give.

        Gives the number that the `PublishResult` will carry. Raises LocalProtocolError where
        `publications_max` publications have no result yet.
        """
        publication, done = self._publications.add(request)
        if isinstance(done, PublishResult):
            self._published(done)
        elif done is not None:
            self._command(done)
        elif self.phase is Phase.STOPPED:
            self._give_up("the client is not connected")
        return publication, self._take()

    def report(self, receipts: Iterable[list[commands.Receipt]], mark: int) -> list[Output]:
        """Send receipts, if a connection stands; answered by `Reported` with the mark."""
        if self.phase is Phase.UP:
            for portion in receipts:
                self._command(commands.Receipts(receipts=portion))
            self._command(self._fences.marked(mark))
        return self._take()

    def ask_caught_up(self, mark: int) -> list[Output]:
        """Ask for `Reported` with the mark when subscriptions have brought what comes first."""
        if self.phase is Phase.UP:
            self._command(self._fences.marked(mark, caught_up=True))
        return self._take()

    # What happened to the transport

    def opened(self, attempt: int, now: int) -> list[Output]:
        """The transport stands: say who we are."""
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
        """One message of the transport; a server that breaks the protocol is left for good."""
        if attempt == self._attempt and self.phase in {Phase.GREETING, Phase.UP}:
            self._now = self._heard = now
            try:
                self._events(self._codec.events(payload))
            except RemoteProtocolError as error:
                self._emit(out.CloseTransport(self._attempt, error.code, error.reason))
                self._stop(error.code, f"the server broke the protocol: {error.reason}")
            self._publish_ready()
            if self._singles and self.phase is Phase.UP:
                self._unsubscribe(self._singles)
            self._singles = []
        return self._take()

    def closed(self, attempt: int, code: int, reason: str, now: int) -> list[Output]:
        """The transport is closed or could not be opened; `code` as in docs/protocol.md."""
        if attempt == self._attempt and self.phase in _LIVE:
            self._now = now
            self._closed(code, reason)
        return self._take()

    def due(self, timer: str, now: int) -> list[Output]:
        """A timer is due."""
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
            self._transition("retry")
            self._leave_out()
            self._set_timer(TIMER_ATTEMPT, self._now + self._move_jitter())
        else:
            self._retry(reason, elsewhere=code != limits.CLOSE_SLOW_CONSUMER)

    def _retry(self, reason: str, *, elsewhere: bool = True) -> None:
        """Wait by the schedule for the next attempt."""
        self._transition("retry")
        if elsewhere:
            self._leave_out()
        self._down(reason)
        self._set_timer(TIMER_ATTEMPT, self._now + self._schedule.next_delay(self._rng))

    def _leave_out(self) -> None:
        """Connect to another server than this one, if there is one."""
        assert self._server is not None
        self._choice.failed(self._server)

    def _move(self) -> None:
        """The delay of `move` is over."""
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
        """Give this connection up and reconnect."""
        self._emit(out.CloseTransport(self._attempt, code, reason))
        self._closed(limits.CLOSE_GOING_AWAY, reason)

    def _stop(self, code: int, reason: str) -> None:
        self._end_connection()
        self._transition("stop")
        self._down(reason, always=True)
        self._give_up(reason)
        self._emit(out.Stopped(code, reason))

    def _end_connection(self) -> None:
        """What every end of a connection, or of waiting for one, has in common."""
        for timer in (TIMER_OPENING, TIMER_LIVENESS, TIMER_MOVE, TIMER_PUBLISH):
            self._cancel(timer)
        self._attempt += 1
        self._moving = False
        self.connected_to = None
        for result in self._publications.lost():
            self._published(result)

    def _down(self, reason: str, *, always: bool = False) -> None:
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
        late = self._now - self._look > limits.CLIENT_LATE_S * NS_PER_S
        if self._asked is not None and self._heard > self._asked:
            self._asked = None
        if self._asked is not None and not late:
            self._abandon(
                limits.CLOSE_KEEPALIVE_MISSED, "nothing was heard of the server for too long"
            )
        elif self._asked is not None or self._now - self._heard >= self._silence:
            # A client that stood still itself may not have read what came: it asks once more.
            self._command(commands.Ping())
            self._asked = self._now
            self._look_at(self._now + self._bit_less(limits.CLIENT_PONG_S))
        else:
            self._look_again()

    def _look_again(self) -> None:
        """Look at the connection when the server has been silent for a while."""
        self._silence = self._bit_less(limits.CLIENT_SILENCE_S)
        self._look_at(max(self._now, self._heard + self._silence))

    def _bit_less(self, longest_s: float) -> int:
        """Another time each time, so that very many clients do not ask at once."""
        assert self.connected_to is not None
        keepalive = self.connected_to.keepalive_ms * NS_PER_MS
        return int(min(longest_s * NS_PER_S, keepalive) * self._rng.uniform(0.75, 1))

    def _look_at(self, at: int) -> None:
        self._look = at
        self._set_timer(TIMER_LIVENESS, at)

    # What the server says

    def _events(self, batch: list[WireEvent | events.MessageEvent]) -> None:
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
                # What a pattern brought was on its way before the single subscription stood.
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
            if self.phase not in {Phase.GREETING, Phase.UP}:
                return
        if messages:
            self._emit(out.DeliverMessages(messages))

    def _single_done(self, subject: str) -> None:
        """A subject that was recovered one by one goes on through its pattern."""
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
