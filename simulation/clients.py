"""Publishers and subscribers: the project's own client core over simulated connections.

Each client writes what its application sees into the run's history. A publication's content is the
name by which the history knows it.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mdserver.client.core import values
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.schedule import ReconnectSettings
from mdserver.client.core.servers import Server
from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.encoding import ClientCodec
from mdserver.codec.json_form import JsonClient
from mdserver.core.commands import Publish
from mdserver.core.events import MessageEvent, StatusName
from mdserver.core.message import MessageType
from simulation.history import Acked, Delivered, Gap, Published, Refused, Reset, Subscribed

if TYPE_CHECKING:
    from simulation.sessions import Session
    from simulation.world import World

CODECS: dict[str, Callable[[], ClientCodec]] = {"json": JsonClient, "binary": BinaryClient}
RECONNECT = ReconnectSettings(
    quick_initial_delay_s=0.2, time_interval_s=0.5, max_delay_s=4.0, notify_rate_threshold=10**6
)


class Client:
    """One client process. `down` counts how often its connection ended."""

    def __init__(self, world: "World", name: str, rng: random.Random, publisher: bool) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.session: Session | None = None
        self.positions: dict[str, tuple[str, int, int]] = {}
        self.pending: dict[int, str] = {}
        self.subjects: dict[str, str] = {}  # publication -> subject
        self.timers: dict[str, int] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            values.OpenTransport: self._open,
            values.Transmit: self._transmit,
            values.CloseTransport: self._close,
            values.SetTimer: self._set_timer,
            values.CancelTimer: self._cancel_timer,
            values.DeliverMessages: self._messages,
            values.Notify: self._notified,
            values.Published: self._result,
            values.Stopped: self._away,
            values.Refused: self._away,
        }
        servers = [Server(host=member, port=1) for member in world.members]
        self.core = ClientCore(
            servers,
            values.ClientSettings(
                publisher=f"{name}-{world.plan.seed}" if publisher else None,
                reconnect=RECONNECT,
                open_timeout_s=3.0,
            ),
            CODECS[world.plan.encoding],
            rng,
        )

    @property
    def waiting(self) -> int:
        """Publications without a result."""
        return len(self.pending)

    def do(self, outputs: list[values.Output]) -> None:
        """Carry out what the core says; what is no concern of a run is passed over."""
        for output in outputs:
            handler = self._handlers.get(type(output))
            if handler is not None:
                handler(output)

    def _open(self, output: values.OpenTransport) -> None:
        self.session = self.world.open(self, output.attempt, output.server.host)

    def _transmit(self, output: values.Transmit) -> None:
        if self.session is not None:
            self.session.to_member(output.frame)

    def _close(self, output: values.CloseTransport) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.closed_by_client()
        self.world.cover(f"closed by a client with {output.code}")

    def _away(self, output: values.Stopped | values.Refused) -> None:
        self.world.watch.violate("client", f"{self.name} was turned away: {output.reason}")

    def _cancel_timer(self, output: values.CancelTimer) -> None:
        self.timers.pop(output.timer, None)

    def _set_timer(self, output: values.SetTimer) -> None:
        timer = output.timer
        token = self.world.next_token()
        self.timers[timer] = token

        def due() -> None:
            if self.timers.get(timer) == token:
                del self.timers[timer]
                self.do(self.core.due(timer, self.world.heap.now))

        self.world.heap.at(output.at, due)

    # What the application does and sees

    def connect(self) -> None:
        """Start."""
        self.do(self.core.connect(self.world.heap.now))

    def publish(self, subject: str, name: str) -> None:
        """Publish one message."""
        number, outputs = self.core.publish(Publish(subject=subject, content=name))
        self.pending[number] = name
        self.subjects[name] = subject
        self.world.see(Published(self.world.heap.now, name, subject, self.name, number))
        self.do(outputs)

    def subscribe(self, subjects: list[str]) -> None:
        """Subscribe for good."""
        for subject in subjects:
            self.world.see(Subscribed(self.world.heap.now, self.name, subject))
        self.do(self.core.subscribe(subjects))

    def _result(self, output: values.Published) -> None:
        result = output.result
        name = self.pending.pop(result.publication)
        now, world = self.world.heap.now, self.world
        if result.status is StatusName.PUBLISH_OK:
            connected = self.core.connected_to
            history = "" if connected is None else self.core.positions.history
            world.cover("acked")
            if result.duplicate:
                world.cover("acked as a repeat")
            if result.epoch:
                world.see(Acked(now, name, self.subjects[name], history, result.epoch, result.seq))
        else:
            world.cover("publication failed")
            world.see(Refused(now, name, result.certain))

    def _messages(self, output: values.DeliverMessages) -> None:
        for message in output.messages:
            self._delivered(message)

    def _delivered(self, message: MessageEvent) -> None:
        history = self.core.positions.history
        before = self.positions.get(message.subject)
        if before is not None and before[0] != history:
            self.world.see(Reset(self.world.heap.now, self.name, message.subject, history))
        self.positions[message.subject] = (history, message.epoch, message.seq)
        self.world.cover(f"delivered {message.type.value}")
        self.world.see(
            Delivered(
                self.world.heap.now, self.name, message.content or "", message.subject, history,
                message.epoch, message.seq, message.type is MessageType.SNAPSHOT,
            )
        )  # fmt: skip

    def _notified(self, output: values.Notify) -> None:
        notice = output.notice
        now, world = self.world.heap.now, self.world
        if notice.status is values.Notification.DATA_RESYNC:
            world.cover("told of a gap")
            last = notice.missing.last.seq if notice.missing else 0
            world.see(Gap(now, self.name, notice.subject or "", last))
        elif notice.status is values.Notification.DATA_SYNC:
            world.cover("recovered")
