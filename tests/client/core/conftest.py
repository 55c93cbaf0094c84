"""A driver for `ClientCore` in tests: plays the transport and the server by hand."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.schedule import ReconnectSettings
from mdserver.client.core.values import ClientSettings
from mdserver.codec.binary_form import BINARY
from mdserver.codec.json_form import JsonClient
from mdserver.core import events

S = 1_000_000_000


class Stage:
    """One client core, its outputs so far, and the hands of everything around it."""

    def __init__(
        self, servers: Sequence[str] = ("a:1",), codec: Any = JsonClient, **settings: Any
    ) -> None:
        settings.setdefault("reconnect", ReconnectSettings())
        self.core = ClientCore(servers, ClientSettings(**settings), codec, random.Random(7))
        self.text = codec.text
        self.now = 1_000 * S
        self.timers: dict[str, int] = {}
        self.attempt = 0
        self.server = ""
        self.open = False
        self.sent: list[dict[str, Any]] = []
        self.notices: list[out.Notice] = []
        self.messages: list[events.MessageEvent] = []
        self.results: dict[int, out.PublishResult] = {}
        self.subscribed: list[str] = []
        self.refused: list[out.Refused] = []
        self.stopped: out.Stopped | None = None
        self.closes: list[tuple[int, str]] = []

    def take(self, outputs: list[out.Output]) -> None:
        """Carry outputs out."""
        for output in outputs:
            match output:
                case out.OpenTransport(attempt, server, _):
                    assert not self.open, "one transport at a time"
                    self.attempt, self.server, self.open = attempt, str(server), True
                case out.CloseTransport(attempt, code, reason):
                    assert self.open
                    assert attempt == self.attempt
                    self.open = False
                    self.closes.append((code, reason))
                case out.Transmit(attempt, frame):
                    assert self.open
                    assert attempt == self.attempt
                    if self.text:
                        self.sent.append(msgspec.json.decode(frame))
                case out.SetTimer(timer, at):
                    assert at >= self.now
                    self.timers[timer] = at
                case out.CancelTimer(timer):
                    del self.timers[timer]
                case _:
                    self.tell(output)

    def tell(self, output: out.Output) -> None:
        """Keep what is for the application."""
        match output:
            case out.Notify(notice):
                self.notices.append(notice)
            case out.DeliverMessages(messages):
                self.messages += messages
            case out.Published(result):
                assert result.publication not in self.results, "two results of a publication"
                self.results[result.publication] = result
            case out.Subscribed(subjects):
                self.subscribed += subjects
            case out.Refused():
                self.refused.append(output)
            case out.Stopped():
                self.stopped = output

    def connect(self, **connected: Any) -> None:
        """Connect from the beginning up to the `connected` event."""
        self.take(self.core.connect(self.now))
        self.greet(**connected)

    def greet(self, **connected: Any) -> None:
        """The transport opens and the server answers `connect`."""
        self.take(self.core.opened(self.attempt, self.now))
        event = {
            "op": "connected",
            "session": "1",
            "member": "m",
            "version": 1,
            "history": "h1",
            "groups": 4,
            "keepalive_ms": 0,
            "message_bytes_max": 1000,
        }
        self.hear(event | connected)

    def hear(self, *heard: dict[str, Any]) -> None:
        """The server says this, in one message."""
        if self.text:
            payload = msgspec.json.encode(list(heard))
        else:
            payload = b"".join(BINARY.event(msgspec.convert(e, events.WireEvent)) for e in heard)
        self.take(self.core.received(self.attempt, payload, self.now))

    def message(self, subject: str, seq: int, **keys: Any) -> None:
        """The server delivers a message."""
        event: dict[str, Any] = {
            "op": "message",
            "subject": subject,
            "type": "UPDATE",
            "epoch": 1,
            "seq": seq,
        }
        self.hear(event | {"content": f"{subject} {seq}"} | keys)

    def lose(self, code: int = 1006, reason: str = "gone") -> None:
        """The transport ends."""
        attempt, self.open = self.attempt, False
        self.take(self.core.closed(attempt, code, reason, self.now))

    def wait(self, timer: str) -> float:
        """Let the time pass until this timer; gives the seconds that it took."""
        start, self.now = self.now, self.timers.pop(timer)
        self.take(self.core.due(timer, self.now))
        return (self.now - start) / S

    def spoken(self) -> list[dict[str, Any]]:
        """What was sent since the last call, without pings that fence subscriptions."""
        taken, self.sent = self.sent, []
        return [command for command in taken if command["op"] != "ping"]

    def told(self) -> list[str]:
        """The names of the notices since the last call."""
        taken, self.notices = self.notices, []
        return [notice.status.name for notice in taken]


@pytest.fixture(scope="session")
def stage() -> Callable[..., Stage]:
    """Makes a `Stage`."""
    return Stage
