"""`ClientCore`: one client's side of the protocol as a state machine.

The core is sans-IO. A driver reports what happened to the transport (`opened`, `received`,
`closed`, `due`), passes on what the application wants (`connect`, `subscribe`, `publish`, ...), and
carries out the outputs that each call returns, in order. The clock is an argument: `now` is in
nanoseconds and never goes back. Randomness is a `random.Random` that is handed in, so a run can be
repeated exactly.

The core combines two kinds of state. `DesiredSubscriptions`, `Positions` and `PublicationLines`
outlive a connection; `ClientConnection` has the phases, and decides when and where to connect.
This module adds the conversation itself: which commands the client sends in a session, and how it
reacts to each event of the server.

Invariants:

- Subscriptions and publications are sent only in the phase UP. Reports about the transport of an
  earlier attempt are ignored.
- What the application wants (`DesiredSubscriptions`, `PublicationLines`) outlives a connection. A
  new session starts empty, so after the event `connected` the client subscribes to everything
  again, with positions, and sends again the publications that have no result.
- A position is noted only for a message that is delivered. A message that was dropped (paused,
  held, unsubscribed) is therefore recovered later.
"""

import random
from collections.abc import Callable, Iterable

import attrs

from mdserver import limits
from mdserver.client.core import values as out
from mdserver.client.core.connection import ClientConnection
from mdserver.client.core.fences import Fences
from mdserver.client.core.outputs import Outputs
from mdserver.client.core.phases import TIMER_LIVENESS, TIMER_PUBLISH, Phase
from mdserver.client.core.positions import Positions
from mdserver.client.core.publications import PublicationLines
from mdserver.client.core.returning import Returning
from mdserver.client.core.schedule import ReconnectSettings
from mdserver.client.core.servers import ServerEndpoint
from mdserver.client.core.subscriptions import DesiredSubscriptions, Options
from mdserver.client.core.values import (
    ClientSettings,
    Notification,
    Numbering,
    Output,
    PublishResult,
)
from mdserver.codec.encoding import ClientCodec
from mdserver.core import commands, events
from mdserver.core.commands import PositionAfter, WireCommand
from mdserver.core.events import StatusName, WireEvent
from mdserver.errors import InvalidSubjectError, RemoteProtocolError
from mdserver.limits import NS_PER_S

_FIRST = events.Connected | events.Move | events.Status | events.Error | events.StreamClosed
"""The events that may come before `connected`: a server may refuse or redirect the client."""


class ClientCore:
    """The client without its transport.

    `servers` is not empty. `new_codec` makes the client's side of one encoding for each connection;
    `rng` serves the choice of servers and the randomness of delays. Raises ValueError if an address
    cannot be read or there is none.
    """

    def __init__(
        self,
        servers: Iterable[str | ServerEndpoint],
        settings: ClientSettings,
        new_codec: Callable[[], ClientCodec],
        rng: random.Random,
    ) -> None:
        self.settings = settings
        self.positions = Positions()
        self.subscriptions = DesiredSubscriptions(self.positions)
        self.paused = False
        self._rng = rng
        self._new_codec = new_codec
        self._codec = new_codec()
        self._token = settings.token
        resumed = settings.numbering or Numbering()
        if settings.publisher_key is not None:
            resumed = attrs.evolve(
                resumed, publisher=settings.publisher, publisher_key=settings.publisher_key
            )
        self._publications = PublicationLines(
            numbered=settings.publisher is not None or resumed.publisher is not None,
            publications_max=settings.publications_max,
            resumed=resumed,
        )
        self._outputs = Outputs()
        self._connection = ClientConnection(
            servers,
            encryption=settings.encryption,
            reconnect=settings.reconnect,
            open_timeout_s=settings.open_timeout_s,
            rng=rng,
            outputs=self._outputs,
            ended=self._connection_ended,
            stopped=self._fail_publications,
        )
        self._fences = Fences(self._codec)
        self._returning = Returning(self.subscriptions)
        self._singles: list[str] = []  # single subscriptions to end after this payload
        self._handlers: dict[type[object], Callable[..., None]] = {
            events.Connected: self._on_connected,
            events.Status: self._on_status,
            events.Reset: self._on_reset,
            events.Move: self._connection.move,
            events.Error: self._on_error,
            events.Pong: self._on_pong,
            events.StreamClosed: self._on_closed,
        }

    # Requests of the application

    @property
    def phase(self) -> Phase:
        """The phase of the connection."""
        return self._connection.phase

    @property
    def connected_to(self) -> events.Connected | None:
        """The event with which the server opened the current session; None without a session."""
        return self._connection.connected_to

    @property
    def failure(self) -> str:
        """Why the last connection ended or could not be opened, as a sentence."""
        return self._connection.failure

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
        """Connect now instead of at the next attempt; do nothing on a live connection."""
        self._connection.now = now
        if not self._connection.live:
            self._connection.open()
        return self._outputs.take()

    def disconnect(self, reason: str = "the client disconnected") -> list[Output]:
        """Close the connection and do not reconnect; publications without a result fail."""
        self._connection.disconnect()
        self._fail_publications(reason)
        return self._outputs.take()

    def give_up(self, reason: str) -> list[Output]:
        """Fail all publications without a result; the client goes on trying to connect."""
        self._fail_publications(reason)
        return self._outputs.take()

    def set_servers(self, servers: Iterable[str | ServerEndpoint]) -> None:
        """Use these servers from the next connection on.

        Raises ValueError if an address cannot be read or there is none.
        """
        self._connection.set_servers(servers)

    def set_reconnect(self, reconnect: ReconnectSettings) -> None:
        """Follow these settings from the next failure on."""
        self.settings = attrs.evolve(self.settings, reconnect=reconnect)
        self._connection.set_reconnect(reconnect)

    def set_encryption(self, encryption: bool) -> None:
        """Use TLS or not from the next connection on, for servers without a scheme."""
        self.settings = attrs.evolve(self.settings, encryption=encryption)
        self._connection.encryption = encryption

    def set_token(self, token: str, now: int) -> list[Output]:
        """Use this token from now on.

        In a session the token is renewed in band. A client that stopped or waits for a token
        connects with the new one.
        """
        self._connection.now = now
        self._token = token
        if self.phase is Phase.UP:
            self._command(commands.RenewToken(token=token))
        elif self.phase in {Phase.NEEDS_TOKEN, Phase.STOPPED}:
            self._connection.open()
        return self._outputs.take()

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
        history also of subjects that were seen already. The answer is `Subscribed`, preceded by
        `Refused` if the server refuses some of the subjects. Raises InvalidSubjectError if a
        subject is invalid; nothing is subscribed then.
        """
        wanted = list(dict.fromkeys(subjects))
        options = Options(history, conflation_ms)
        new = [subject for subject in wanted if subject not in self.subscriptions]
        self.subscriptions.add(wanted, options, replay=replay)
        if self.phase is Phase.UP and not self.paused:
            self._return(self._returning.begin(new))
            if replay:
                again = self.subscriptions.commands(wanted, replay=True)
            else:
                again = self.subscriptions.first_commands(wanted, options, anew=True)
            for command in again:
                self._subscribe(command)
        return self._outputs.take()

    def unsubscribe(self, subjects: Iterable[str]) -> list[Output]:
        """End subscriptions; subjects that are not subscribed are ignored."""
        ending = list(subjects)
        self._returning.leave(ending)
        removed = self.subscriptions.remove(ending)
        if removed and self.phase is Phase.UP and not self.paused:
            self._unsubscribe(removed)
        return self._outputs.take()

    def pause(self) -> list[Output]:
        """Stop receiving messages; subscriptions and positions are kept."""
        if not self.paused:
            self.paused = True
            if self.phase is Phase.UP and len(self.subscriptions):
                self._unsubscribe(self.subscriptions)
        return self._outputs.take()

    def resume(self) -> list[Output]:
        """Receive messages again, beginning with those that were missed."""
        if self.paused:
            self.paused = False
            if self.phase is Phase.UP and len(self.subscriptions):
                self._return(self._returning.resume(self.subscriptions))
                self._resubscribe(self.subscriptions)
        return self._outputs.take()

    def hold(self, subjects: Iterable[str]) -> list[Output]:
        """Stop receiving these subscriptions for now; what they miss is recovered on `release`."""
        held = self.subscriptions.hold(subjects)
        if held and self.phase is Phase.UP and not self.paused:
            self._unsubscribe(held)
        return self._outputs.take()

    def release(self, subjects: Iterable[str]) -> list[Output]:
        """Receive held subscriptions again, beginning with what they missed."""
        released = self.subscriptions.release(subjects)
        if released and self.phase is Phase.UP and not self.paused:
            self._return(self._returning.release(released))
            self._resubscribe(released)
        return self._outputs.take()

    def publish(self, request: commands.Publish) -> tuple[int, list[Output]]:
        """Take a publication, and send it if there is a session and its line is not held.

        The core sets `id` and `number` of the request. Returns the id that the `PublishResult` will
        carry, and the outputs. While the client is stopped, the publication fails at once; in every
        other phase without a session it waits for the next session. Raises LocalProtocolError if
        `publications_max` publications have no result yet.
        """
        publication, done = self._publications.add(request)
        if isinstance(done, PublishResult):
            self._published(done)
        elif done is not None:
            self._command(done)
        elif self.phase is Phase.STOPPED:
            # Publications that waited when the client stopped have failed already. A later one must
            # not wait either, because no session follows unless the application asks for one.
            self._fail_publications("the client is not connected")
        return publication, self._outputs.take()

    def report(self, receipts: Iterable[list[commands.Receipt]], mark: int) -> list[Output]:
        """Send receipts, and ask for `Reported` with this mark once the server has taken them.

        `receipts` holds one list for each command. Without a session nothing is sent, and no answer
        comes.
        """
        if self.phase is Phase.UP:
            for portion in receipts:
                self._command(commands.Receipts(receipts=portion))
            self._command(self._fences.marked(mark))
        return self._outputs.take()

    def ask_caught_up(self, mark: int) -> list[Output]:
        """Ask for `Reported` with this mark once all subscriptions have caught up.

        The answer comes after everything that earlier subscriptions bring before live messages.
        Without a session nothing is sent, and no answer comes.
        """
        if self.phase is Phase.UP:
            self._command(self._fences.marked(mark, caught_up=True))
        return self._outputs.take()

    # Reports of the driver

    def opened(self, attempt: int, now: int) -> list[Output]:
        """Handle a transport that has been opened: send `connect`."""
        if attempt == self._connection.attempt and self.phase is Phase.OPENING:
            self._connection.now = now
            self._connection.opened()
            self._codec = self._new_codec()
            self._fences = Fences(self._codec)
            self._returning = Returning(self.subscriptions)
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
        return self._outputs.take()

    def heard(self, attempt: int, now: int) -> list[Output]:
        """Note that bytes arrived; a part of a message is a sign of life as well."""
        if attempt == self._connection.attempt and self.phase in {Phase.GREETING, Phase.UP}:
            self._connection.now = now
            self._connection.heard()
        return self._outputs.take()

    def received(self, attempt: int, payload: bytes, now: int) -> list[Output]:
        """Handle one message of the transport.

        A server that breaks the protocol stops the client: the same server would break it again.
        """
        if attempt == self._connection.attempt and self.phase in {Phase.GREETING, Phase.UP}:
            self._connection.now = now
            self._connection.heard()
            try:
                self._events(self._codec.events(payload))
            except RemoteProtocolError as error:
                self._connection.close(error.code, error.reason)
                self._connection.stop(error.code, f"the server broke the protocol: {error.reason}")
            self._publish_ready()
            # Subjects whose single recovery ended are unsubscribed after the whole payload was
            # read, so that one command suffices for all of them.
            if self._singles and self.phase is Phase.UP:
                self._unsubscribe(self._singles)
            self._singles = []
        return self._outputs.take()

    def closed(self, attempt: int, code: int, reason: str, now: int) -> list[Output]:
        """Handle a transport that ended or could not be opened; `code` as in docs/protocol.md."""
        if attempt == self._connection.attempt and self._connection.live:
            self._connection.now = now
            self._connection.lost(code, reason)
        return self._outputs.take()

    def due(self, timer: str, now: int) -> list[Output]:
        """Handle a timer that is due.

        A timer may come due in a phase that it no longer concerns; it then has no effect.
        """
        self._connection.now = now
        self._outputs.expired(timer)
        if timer not in {TIMER_LIVENESS, TIMER_PUBLISH}:
            self._connection.due(timer)
        elif self.phase is not Phase.UP:
            pass
        elif timer == TIMER_PUBLISH:
            self._publications.retry()
            self._publish_ready()
        elif self._connection.ping_due():
            self._command(commands.Ping())
            self._connection.pinged()
        return self._outputs.take()

    def _connection_ended(self) -> None:
        """Fail the publications that were in flight and cannot be repeated."""
        for result in self._publications.lost():
            self._published(result)

    def _fail_publications(self, reason: str) -> None:
        for result in self._publications.stopped(reason):
            self._published(result)

    # What the server says

    def _events(self, batch: list[WireEvent | events.MessageEvent]) -> None:
        """Handle the events of one message of the transport.

        Consecutive messages are delivered in one output. Every other event, and a repeated message,
        ends such a run, so that the application sees everything in the order of the server. Raises
        RemoteProtocolError.
        """
        messages: list[events.MessageEvent] = []
        for event in batch:
            if self.phase is Phase.GREETING and not isinstance(event, _FIRST):
                raise RemoteProtocolError("the first event of a session is `connected`")
            if isinstance(event, events.MessageEvent):
                if not self._returning.takes(event):
                    continue
                if not self.paused and self.subscriptions.takes(event):
                    if self.positions.repeats(event):
                        if messages:
                            self._outputs.emit(out.DeliverMessages(messages))
                            messages = []
                        self._outputs.emit(out.DeliverMessages([event], repeated=True))
                    elif self.positions.accept(event):
                        messages.append(event)
                self._note_single(event)
                continue
            if messages:
                self._outputs.emit(out.DeliverMessages(messages))
                messages = []
            self._handlers[type(event)](event)
            # The event may have ended the connection, and with it the session of all that follows.
            if self.phase not in {Phase.GREETING, Phase.UP}:
                return
        if messages:
            self._outputs.emit(out.DeliverMessages(messages))

    def _note_single(self, event: events.MessageEvent) -> None:
        # Only a message without `match` came through the single subscription. One that came through
        # the pattern may have been sent before that subscription existed, and then says nothing
        # about its recovery.
        if (
            self.subscriptions.lone
            and event.match is None
            and not self.subscriptions.replay_awaited(event.subject)
        ):
            self._single_done(event.subject)

    def _single_done(self, subject: str) -> None:
        """End the single recovery of a subject; from now on its pattern brings the messages."""
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
        self._connection.greeted(event)
        self.positions.connected(event.history)
        self.subscriptions.connected()
        if not self.paused:
            self._resubscribe(self.subscriptions)
        for result in self._publications.connected(event):
            self._published(result)

    def _on_status(self, event: events.Status) -> None:
        status = event.status
        if status in _RESULTS:
            for result in self._publications.answered(event):
                self._published(result, event if result.publication == event.id else None)
            return
        self._outputs.notify(
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
        elif status is StatusName.SUBSCRIBE_ALLOW:
            self._fences.allowed(event.subject, event.id)
        elif status is StatusName.SUBSCRIBE_DENY:
            reason = event.reason or "the subscription was refused"
            self._refuse(event.subject, event.id, reason)

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
            self._outputs.notify(Notification.DATA_RESYNC, info=info, subject=subject)

    def _on_error(self, event: events.Error) -> None:
        subjects = self._fences.subjects(event.id)
        if isinstance(event.id, int):
            status = events.Status(
                status=StatusName.PUBLISH_FAILED, id=event.id, reason=event.reason, certain=True
            )
            for result in self._publications.answered(status):
                self._published(result)
        elif len(subjects) == 1:
            self._outputs.notify(
                Notification.SUBSCRIBE_DENY, info=event.reason, subject=subjects[0]
            )
            self._refuse(subjects[0], event.id, event.reason)
        else:
            self._outputs.notify(Notification.ERROR, info=f"{event.code}: {event.reason}")

    def _on_pong(self, event: events.Pong) -> None:
        if event.positions:
            wanted = [s for s in event.positions if s in self.subscriptions]
            self.positions.begin({s: event.positions[s] for s in self._answered(wanted)})
        subjects = self._answered(self._fences.passed(event.t))
        if subjects:
            self._outputs.emit(out.Subscribed(subjects))
        mark = self._fences.mark(event.t)
        if mark is not None:
            self._outputs.emit(out.Reported(mark))
        returned = self._fences.returned(event.t)
        if returned is not None:
            self._returning.passed(returned)

    def _answered(self, subjects: list[str]) -> list[str]:
        """Return those of which the answer to the newest subscription may have come."""
        return [subject for subject in subjects if not self._returning.awaits(subject)]

    def _on_closed(self, event: events.StreamClosed) -> None:
        self._connection.close(limits.CLOSE_NORMAL, "")
        self._connection.lost(event.code, event.reason)

    # Commands

    def _return(self, ping: int | None) -> None:
        """Send the ping for which subscriptions wait, if there is one."""
        if ping is not None:
            self._command(self._fences.returning(ping))

    def _resubscribe(self, subjects: Iterable[str]) -> None:
        for command in self.subscriptions.commands(subjects):
            self._subscribe(command)

    def _subscribe(self, command: commands.Subscribe) -> None:
        for fenced in self._fences.put(command):
            self._command(fenced)

    def _unsubscribe(self, subjects: Iterable[str]) -> None:
        self._returning.unsubscribed()
        ending = self.subscriptions.ending(subjects)
        for command in self.subscriptions.first_commands(ending, Options()):
            self._command(commands.Unsubscribe(subjects=command.subjects))

    def _refuse(self, subject: str, command: commands.CommandId, reason: str) -> None:
        """Drop a subscription, unless the refusal is about an earlier one of the same subject.

        What is paused or held will be asked for again, and then be refused again.
        """
        newest = self._fences.refused(subject, command)
        if newest and not self.paused and self.subscriptions.is_taken(subject):
            self.subscriptions.remove([subject])
            self._outputs.emit(out.Refused([subject], reason))

    def _publish_ready(self) -> None:
        if self.phase is not Phase.UP:
            return
        for command in self._publications.ready():
            self._command(command)
        if self._publications.resting:
            delay = self._rng.uniform(0.5, 1) * limits.CLIENT_PUBLISH_RETRY_S
            self._outputs.set_timer(TIMER_PUBLISH, self._connection.now + int(delay * NS_PER_S))

    def _published(self, result: PublishResult, event: events.Status | None = None) -> None:
        self._outputs.emit(out.Published(result))
        if event is not None and event.closure is not None:
            position = None
            if result.seq:
                position = PositionAfter(self.positions.history, result.epoch, result.seq)
            self._outputs.notify(
                Notification[result.status.value],
                info=result.reason,
                subject=event.subject,
                closure=event.closure,
                position=position,
            )

    def _command(self, command: WireCommand) -> None:
        self._outputs.emit(out.Transmit(self._connection.attempt, self._codec.command(command)))


_RESULTS = {
    StatusName.PUBLISH_OK,
    StatusName.PUBLISH_FAILED,
    StatusName.PUBLISH_DENIED,
    StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED,
}
