"""Random conversations of a client core with a server that says anything, right or wrong.

The simulator's servers behave; here the client meets every event in every phase. What the core does
is its own affair: only that the JavaScript core does the same is looked at.
"""

import random
from typing import Any

import msgspec

from mdserver.client.core import values as out
from mdserver.client.core.schedule import ReconnectPolicy, ReconnectSettings
from mdserver.client.core.values import ClientSettings
from mdserver.codec.binary_form import EVENT, BinaryClient, BinaryCodec
from mdserver.codec.encoding import ClientCodec
from mdserver.codec.frames import frame
from mdserver.codec.json_form import JsonClient
from mdserver.core import events
from mdserver.core.commands import Publish
from mdserver.core.message import Entry, Publication, Qos
from mdserver.limits import NS_PER_MS, NS_PER_S
from tests.web.recorded import RecordedCore, command_of

SUBJECTS = ("/a/b", "/a/c", "/a/d/e", "/x", "/a/ü☃𝄞", "/__mdserver__/load")
PATTERNS = ("/a/*", "/a/**", "/**", "/*/b", "/__mdserver__/**")
TYPES = ("UPDATE", "UPDATE", "SNAPSHOT", "RECOVERED", "HISTORICAL")
CODEC = BinaryCodec()
CODES = (1000, 1006, 1011, 4000, 4001, 4002, 4003, 4004, 4005, 4006, 4100, 4101)


class Conversation:
    """One core, and the hands of everybody around it, all drawn from one generator."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now = rng.randrange(10**15)
        self.timers: dict[str, int] = {}
        self.attempt = 0
        self.open = False
        self.ids: list[int | str] = []
        self.pings: list[Any] = []
        codec: type[ClientCodec] = rng.choice((JsonClient, BinaryClient))
        self.text = codec.text
        self.core = RecordedCore(
            rng.choice((["a:1"], ["a:1", "50 b:2", "0 [::1]:3"], ["wss://a", "http://b:9", "c"])),
            self.settings(),
            codec,
            random.Random(seed + 1),
        )

    def settings(self) -> ClientSettings:
        """Draw how the client is set up."""
        rng = self.rng
        publisher = rng.choice((None, "desk", "~0/desk"))
        return ClientSettings(
            client="me/1",
            publisher=publisher,
            publisher_key="k" if publisher == "~0/desk" else None,
            token=rng.choice((None, "t")),
            keepalive_ms=rng.choice((None, 2000)),
            encryption=rng.random() < 0.3,
            publications_max=rng.choice((4, 1000)),
            reconnect=ReconnectSettings(
                policy=rng.choice(list(ReconnectPolicy)),
                quick_max_retries=rng.randrange(4),
                notify_after_failed_attempts=rng.randrange(1, 4),
                notify_rate_threshold=rng.randrange(1, 5),
            ),
        )

    def play(self, steps: int) -> None:
        """Have `steps` things happen."""
        happenings = [self.transport] * 10 + [self.says] * 12 + [self.wants] * 6 + [self.waits] * 4
        for _ in range(steps):
            self.rng.choice(happenings)()

    def do(self, outputs: list[out.Output]) -> None:
        """Carry outputs out as far as the conversation needs it."""
        for output in outputs:
            match output:
                case out.OpenTransport(attempt, _, _):
                    self.attempt, self.open = attempt, False
                    self.pings, self.ids = [], []
                case out.Transmit(_, sent):
                    self.sent(sent)
                case out.SetTimer(timer, at):
                    self.timers[timer] = at
                case out.CancelTimer(timer):
                    self.timers.pop(timer, None)

    def sent(self, sent: bytes) -> None:
        """Remember what a server could answer."""
        command = command_of(sent, text=self.text)
        if command["op"] == "ping":
            self.pings.append(command.get("t"))
        elif "id" in command:
            self.ids.append(command["id"])

    def transport(self) -> None:
        """The transport opens, ends, or is still opening."""
        rng = self.rng
        if not self.open and rng.random() < 0.9:
            self.open = True
            self.do(self.core.opened(self.attempt, self.now))
            if rng.random() < 0.9:
                self.hear([self.connected()])
        elif rng.random() < 0.1:
            self.open = False
            self.do(self.core.closed(self.attempt, rng.choice(CODES), "gone", self.now))

    def waits(self) -> None:
        """A timer is due, mostly the next one, sometimes late."""
        rng = self.rng
        if self.timers:
            timer = min(self.timers, key=lambda name: self.timers[name])
            late = rng.choice((0, 0, 0, 3 * NS_PER_S))
            self.now = max(self.now, self.timers.pop(timer)) + late
            self.do(self.core.due(timer, self.now))
        else:
            self.now += rng.randrange(10 * NS_PER_MS)

    def wants(self) -> None:
        """The application calls a method of the core."""
        rng, core = self.rng, self.core
        some = rng.sample(SUBJECTS + PATTERNS, rng.randrange(1, 4))
        history, conflation_ms = rng.choice((0, 0, 5)), rng.choice((0, 0, 500))
        wish = rng.randrange(14)
        if wish < 3:
            replay = rng.random() < 0.3
            self.do(
                core.subscribe(some, history=history, conflation_ms=conflation_ms, replay=replay)
            )
        elif wish < 7:
            self.publish()
        else:
            calls = (
                lambda: core.unsubscribe(some),
                core.pause,
                core.resume,
                lambda: core.hold(some),
                lambda: core.release(some),
                lambda: core.ask_caught_up(-rng.randrange(5)),
                lambda: core.set_token("t2", self.now),
                lambda: core.connect(self.now),
                lambda: core.give_up("late") if rng.random() < 0.2 else core.resume(),
                lambda: core.disconnect() if rng.random() < 0.2 else core.resume(),
            )
            self.do(rng.choice(calls)())

    def publish(self) -> None:
        """Publish something, unless too much waits."""
        rng, core = self.rng, self.core
        if core.publications_waiting >= core.settings.publications_max:
            return
        size = rng.choice((1, 1, 1, 2000))
        is_text = rng.random() < 0.8
        request = Publish(
            subject=rng.choice(SUBJECTS),
            content="ü" * size if is_text else None,
            content_base64=None if is_text else bytes(size),
            closure=rng.choice((None, "c")),
            fields=rng.choice((None, {"bid": "1☃"})),
            qos=rng.choice((Qos.GUARANTEED, Qos.GUARANTEED, Qos.STANDARD)),
        )
        self.do(core.publish(request)[1])

    def says(self) -> None:
        """The server says one thing, or several in one message."""
        count = self.rng.choice((1, 1, 1, 3))
        self.hear([self.event() for _ in range(count)])

    def hear(self, heard: list[dict[str, Any]]) -> None:
        """Bring events to the core in its encoding."""
        if self.text:
            payload = msgspec.json.encode(heard)
        else:
            payload = b"".join(
                _binary_message(one)
                if one["op"] == "message"
                else frame(EVENT, msgspec.msgpack.encode(one))
                for one in heard
            )
        self.do(self.core.received(self.attempt, payload, self.now))

    def connected(self) -> dict[str, Any]:
        """Return the event that begins a session."""
        rng = self.rng
        told = {
            "op": "connected",
            "session": "s",
            "member": "m",
            "version": 1 if rng.random() < 0.98 else 2,
            "history": rng.choice(("h1", "h1", "h1", "h2")),
            "groups": rng.choice((4, 4, 4, 8)),
            "keepalive_ms": rng.choice((0, 25_000, 1000)),
            "message_bytes_max": 1000,
        }
        identity = rng.choice((None, "~0/desk", "~0/desk", "~1/desk"))
        return told | ({"publisher": identity, "publisher_key": "k"} if identity else {})

    def event(self) -> dict[str, Any]:
        """Return any event: mostly a message, an answer, or a status."""
        kinds = (self.message, self.pong, self.answer, self.status, self.error, self.trouble)
        (kind,) = self.rng.choices(kinds, weights=(26, 10, 8, 6, 3, 6))
        return kind()

    def pong(self) -> dict[str, Any]:
        """Return the answer to the oldest ping."""
        return {"op": "pong", "t": self.pings.pop(0)} if self.pings else self.message()

    def status(self) -> dict[str, Any]:
        """Return a status about a subject."""
        names = ("DATA_SYNC", "DATA_RESYNC", "SUBSCRIBE_DENY", "TOKEN_UPDATED")
        return {
            "op": "status",
            "status": self.rng.choice(names),
            "subject": self.rng.choice(SUBJECTS + PATTERNS),
            "reason": "so",
        }

    def error(self) -> dict[str, Any]:
        """Return an error about something that was sent."""
        if not self.ids:
            return self.message()
        return {"op": "error", "code": "x", "reason": "no", "id": self.rng.choice(self.ids)}

    def trouble(self) -> dict[str, Any]:
        """Return what moves or ends a session, or begins one where none may begin."""
        rng = self.rng
        subjects = [rng.choice(SUBJECTS + PATTERNS)]
        servers = rng.choice(([], ["d:4"], ["a:1", "b:2"]))
        reset = {"op": "reset", "history": rng.choice(("h1", "h3")), "subjects": subjects}
        move = {"op": "move", "delay_ms": 100, "reason": "drain", "servers": servers}
        closed = {"op": "closed", "code": rng.choice(CODES), "reason": "end"}
        events = (reset, move, closed, self.connected())
        return rng.choices(events, weights=(30, 10, 10, 1))[0]

    def answer(self) -> dict[str, Any]:
        """Return the result of something that was published."""
        rng = self.rng
        if not self.ids:
            return self.message()
        told: dict[str, Any] = {"op": "status", "id": self.ids.pop(0), "subject": "/a/b"}
        told |= rng.choice(({}, {"closure": "c"}))
        return told | rng.choice(
            (
                {"status": "PUBLISH_OK", "epoch": 1, "seq": 7},
                {"status": "PUBLISH_OK", "epoch": 0, "seq": 0, "duplicate": True},
                {"status": "PUBLISH_FAILED", "certain": True, "reason": "no"},
                {"status": "PUBLISH_FAILED", "certain": False},
                {"status": "PUBLISH_FAILED", "certain": True, "expected": rng.randrange(1, 5)},
                {"status": "PUBLISH_DENIED", "reason": "not you"},
            )
        )

    def message(self) -> dict[str, Any]:
        """Return a message of some subject at some position."""
        rng = self.rng
        seq = rng.randrange(12)
        told: dict[str, Any] = {
            "op": "message",
            "subject": rng.choice(SUBJECTS),
            "type": rng.choice(TYPES),
            "epoch": rng.randrange(1, 3) if seq else 0,
            "seq": seq,
        }
        if not seq:
            told["qos"] = "STANDARD"
        if rng.random() < 0.4:
            told["match"] = rng.choice(PATTERNS)
        if rng.random() < 0.8:
            return told | {"content": "ü7"}
        return told | {"content_base64": "AP8="}


def _binary_message(told: dict[str, Any]) -> bytes:
    """Return the frames of a message as a server of the binary form sends them."""
    event = msgspec.convert(told, events.MessageEvent)
    content = event.content_base64 if event.content is None else event.content.encode()
    publication = Publication(event.subject, content or b"", event.content is not None)
    publication = msgspec.structs.replace(publication, qos=event.qos)
    delivery = events.Delivery(Entry(event.epoch, event.seq, publication), event.type, event.match)
    message = CODEC.delivery(delivery)
    return (CODEC.alias_frame(delivery.alias) if delivery.alias else b"") + message
