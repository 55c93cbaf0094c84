"""Publishers and subscribers: the project's own client core over simulated connections.

Each client writes what its application sees into the run's history. A publication's content is the
name by which the history knows it.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mdserver.client.core import values
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.schedule import ReconnectSettings
from mdserver.client.core.servers import ServerEndpoint
from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.encoding import ClientCodec
from mdserver.codec.json_form import JsonClient
from mdserver.core.commands import Publish
from mdserver.limits import CLIENT_PUBLICATIONS_MAX
from simulation.recording import Recorder
from simulation.session_rules import SessionRules

if TYPE_CHECKING:
    from simulation.sessions import Session
    from simulation.world import World

CODECS: dict[str, Callable[[], ClientCodec]] = {"json": JsonClient, "binary": BinaryClient}
RECONNECT = ReconnectSettings(
    quick_initial_delay_s=0.2, time_interval_s=0.5, max_delay_s=4.0, notify_rate_threshold=10**6
)


class Client:
    """One client process. It reaches no member before `away_until` (ns).

    `_later`: publications by subject and name that wait until the client takes one more.
    """

    def __init__(self, world: "World", name: str, rng: random.Random, publisher: bool) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.session: Session | None = None
        self.away_until = 0
        self.recorder = Recorder(name, world.see, world.cover)
        self.timers: dict[str, int] = {}
        self._later: deque[tuple[str, str]] = deque()
        self._handlers: dict[type, Callable[[Any], None]] = {
            values.OpenTransport: self._open,
            values.Transmit: self._transmit,
            values.CloseTransport: self._close,
            values.SetTimer: self._set_timer,
            values.CancelTimer: self._cancel_timer,
            values.DeliverMessages: self._messages,
            values.Notify: self._notified,
            values.Published: self._result,
            values.Subscribed: self._confirmed,
            values.Stopped: self._away,
            values.Refused: self._away,
        }
        servers = [ServerEndpoint(host=member, port=1) for member in world.members]
        self.core = ClientCore(
            servers,
            values.ClientSettings(
                publisher=f"{name}-{world.plan.seed}" if publisher else None,
                reconnect=RECONNECT,
                open_timeout_s=3.0,
            ),
            self._codec,
            rng,
        )

    def _codec(self) -> ClientCodec:
        """Make the codec of a connection, which judges what comes."""
        return SessionRules(CODECS[self.world.plan.encoding](), self._broken)

    def _broken(self, kind: str, what: str) -> None:
        self.world.watch.now = self.world.heap.now
        self.world.watch.violate(kind, f"{self.name}: {what}")

    @property
    def waiting(self) -> int:
        """Publications without a result."""
        return len(self.recorder.pending) + len(self._later)

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
        """Publish one message, after those that wait."""
        self._later.append((subject, name))
        self._publish_waiting()

    def _publish_waiting(self) -> None:
        """Publish what waits, as far as the client takes it: without a result are so many."""
        while self._later and len(self.recorder.pending) < CLIENT_PUBLICATIONS_MAX:
            self._publish(*self._later.popleft())

    def _publish(self, subject: str, name: str) -> None:
        number, outputs = self.core.publish(Publish(subject=subject, content=name))
        # Who is forgotten after a takeover may have what it repeats there twice.
        once = not self.world.plan.standard
        self.recorder.published(self.world.heap.now, number, name, subject, once=once)
        self.do(outputs)

    def subscribe(self, subjects: list[str]) -> None:
        """Subscribe for good."""
        self.recorder.subscribed(self.world.heap.now, subjects)
        self.do(self.core.subscribe(subjects))

    def _confirmed(self, output: values.Subscribed) -> None:
        if "before" in self.world.plan.versions:
            return  # members of that release do not say where a subject without messages stood
        now, known = self.world.heap.now, self.core.positions.get
        self.recorder.confirmed(now, output.subjects, known)

    def _result(self, output: values.Published) -> None:
        self.recorder.result(self.world.heap.now, self.core.positions.history, output.result)
        if self._later:
            # What the client said beside this result is carried out first.
            self.world.heap.after(0, self._publish_waiting)

    def _messages(self, output: values.DeliverMessages) -> None:
        self.recorder.messages(self.world.heap.now, self.core.positions.history, output.messages)

    def _notified(self, output: values.Notify) -> None:
        self.recorder.notified(self.world.heap.now, output.notice)
