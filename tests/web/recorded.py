"""Conversations of the Python client core, written down for the JavaScript core to repeat.

A conversation is one JSON object: how the core was made, the random numbers that it drew, and each
call with the outputs that it gave. Times are milliseconds. What is given here is compared by
`replay.mjs` output by output.
"""

import base64
import random
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import msgspec

from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.servers import ServerEndpoint
from mdserver.client.core.values import ClientSettings
from mdserver.codec.encoding import ClientCodec
from mdserver.codec.frames import read_frames
from mdserver.core import commands
from mdserver.core.events import MessageEvent
from mdserver.limits import NS_PER_MS


class RecordedRandom(random.Random):
    """Draws from another generator and keeps what it drew."""

    def __init__(self, source: random.Random) -> None:
        super().__init__(0)
        self.source = source
        self.draws: list[float] = []

    def random(self) -> float:
        """Return the next number from 0 up to 1."""
        drawn = self.source.random()
        self.draws.append(drawn)
        return drawn

    def randrange(self, start: int, *_: Any) -> int:  # type: ignore[override]
        """Return an integer below `start`, from one draw as the other core takes it."""
        return int(self.random() * start)


class RecordedCore(ClientCore):
    """A client core that keeps what it was told and what it said."""

    kept: list[dict[str, Any]]
    """All conversations; set by whoever records."""

    def __init__(
        self,
        servers: Iterable[str | ServerEndpoint],
        settings: ClientSettings,
        new_codec: Callable[[], ClientCodec],
        rng: random.Random,
    ) -> None:
        servers = [str(server) for server in servers]
        recorded = RecordedRandom(rng)
        super().__init__(servers, settings, new_codec, recorded)
        self._text = new_codec().text
        self.steps: list[dict[str, Any]] = []
        self.kept.append(
            {
                "servers": servers,
                "settings": _settings(settings),
                "encoding": "json" if self._text else "binary",
                "draws": recorded.draws,
                "steps": self.steps,
            }
        )

    def _kept(self, call: str, given: list[Any], outputs: list[out.Output]) -> list[out.Output]:
        told = [_output(output, text=self._text) for output in outputs]
        self.steps.append({"call": call, "given": given, "outputs": told})
        return outputs

    def connect(self, now: int) -> list[out.Output]:
        return self._kept("connect", [_ms(now)], super().connect(now))

    def disconnect(self, reason: str = "the client disconnected") -> list[out.Output]:
        return self._kept("disconnect", [reason], super().disconnect(reason))

    def give_up(self, reason: str) -> list[out.Output]:
        return self._kept("giveUp", [reason], super().give_up(reason))

    def set_token(self, token: str, now: int) -> list[out.Output]:
        return self._kept("setToken", [token, _ms(now)], super().set_token(token, now))

    def subscribe(
        self,
        subjects: Iterable[str],
        *,
        history: int = 0,
        conflation_ms: int = 0,
        replay: bool = False,
    ) -> list[out.Output]:
        how = {"history": history, "conflationMs": conflation_ms, "replay": replay}
        subjects = list(subjects)
        outputs = super().subscribe(
            subjects, history=history, conflation_ms=conflation_ms, replay=replay
        )
        return self._kept("subscribe", [subjects, how], outputs)

    def unsubscribe(self, subjects: Iterable[str]) -> list[out.Output]:
        subjects = list(subjects)
        return self._kept("unsubscribe", [subjects], super().unsubscribe(subjects))

    def pause(self) -> list[out.Output]:
        return self._kept("pause", [], super().pause())

    def resume(self) -> list[out.Output]:
        return self._kept("resume", [], super().resume())

    def hold(self, subjects: Iterable[str]) -> list[out.Output]:
        subjects = list(subjects)
        return self._kept("hold", [subjects], super().hold(subjects))

    def release(self, subjects: Iterable[str]) -> list[out.Output]:
        subjects = list(subjects)
        return self._kept("release", [subjects], super().release(subjects))

    def publish(self, request: commands.Publish) -> tuple[int, list[out.Output]]:
        number, outputs = super().publish(request)
        given = msgspec.to_builtins(request)
        self._kept("publish", [given], outputs)
        return number, outputs

    def report(self, receipts: Iterable[list[commands.Receipt]], mark: int) -> list[out.Output]:
        return self._kept("mark", [mark, {"caughtUp": False}], super().report(receipts, mark))

    def ask_caught_up(self, mark: int) -> list[out.Output]:
        return self._kept("mark", [mark, {"caughtUp": True}], super().ask_caught_up(mark))

    def opened(self, attempt: int, now: int) -> list[out.Output]:
        return self._kept("opened", [attempt, _ms(now)], super().opened(attempt, now))

    def received(self, attempt: int, payload: bytes, now: int) -> list[out.Output]:
        heard = payload.decode() if self._text else base64.b64encode(payload).decode()
        outputs = super().received(attempt, payload, now)
        return self._kept("received", [attempt, heard, _ms(now)], outputs)

    def closed(self, attempt: int, code: int, reason: str, now: int) -> list[out.Output]:
        outputs = super().closed(attempt, code, reason, now)
        return self._kept("closed", [attempt, code, reason, _ms(now)], outputs)

    def due(self, timer: str, now: int) -> list[out.Output]:
        return self._kept("due", [timer, _ms(now)], super().due(timer, now))


def _ms(time_ns: int) -> float:
    return time_ns / NS_PER_MS


def _settings(settings: ClientSettings) -> dict[str, Any]:
    reconnect = settings.reconnect
    told = {
        "client": settings.client,
        "publisher": settings.publisher,
        "publisherKey": settings.publisher_key,
        "token": settings.token,
        "externalToken": settings.external_token,
        "keepaliveMs": settings.keepalive_ms,
        "encryption": settings.encryption,
        "openTimeoutMs": settings.open_timeout_s * 1000,
        "publicationsMax": settings.publications_max,
        "reconnect": {
            "quickMaxRetries": reconnect.quick_max_retries,
            "quickInitialDelayMs": reconnect.quick_initial_delay_s * 1000,
            "policy": reconnect.policy.value,
            "timeIntervalMs": reconnect.time_interval_s * 1000,
            "maxDelayMs": reconnect.max_delay_s * 1000,
            "notifyAfterFailedAttempts": reconnect.notify_after_failed_attempts,
            "notifyRateThreshold": reconnect.notify_rate_threshold,
        },
    }
    return {name: value for name, value in told.items() if value is not None}


def _output(output: out.Output, *, text: bool) -> dict[str, Any]:
    """Return an output as the JavaScript core would give it."""
    if isinstance(output, out.Transmit):
        command = command_of(output.frame, text=text)
        return {"kind": "transmit", "attempt": output.attempt, "command": command}
    return {"kind": _KINDS[type(output)]} | _TOLD[type(output)](output)


def _whole(output: Any) -> dict[str, Any]:
    return attrs.asdict(output, recurse=False)


_KINDS: dict[type, str] = {
    out.OpenTransport: "open",
    out.CloseTransport: "close",
    out.SetTimer: "timer",
    out.CancelTimer: "cancel",
    out.DeliverMessages: "deliver",
    out.Notify: "notify",
    out.Published: "published",
    out.Subscribed: "subscribed",
    out.Reported: "reported",
    out.Refused: "refused",
    out.Connected: "connected",
    out.Stopped: "stopped",
}
# What is wrong with the bytes of a server is said in other words by each codec: the reasons of
# `close` and `stopped` are left out.
_TOLD: dict[type, Callable[[Any], dict[str, Any]]] = {
    out.OpenTransport: lambda output: _whole(output) | {"server": str(output.server)},
    out.CloseTransport: lambda output: {"attempt": output.attempt, "code": output.code},
    out.SetTimer: lambda output: {"timer": output.timer, "at": _ms(output.at)},
    out.CancelTimer: _whole,
    out.DeliverMessages: lambda output: {
        "messages": [_message(message) for message in output.messages],
        "repeated": output.repeated,
    },
    out.Notify: lambda output: {
        "notice": _without_none(msgspec.to_builtins(_plain(output.notice)))
    },
    out.Published: lambda output: {"result": _without_none(_plain(output.result))},
    out.Subscribed: lambda output: {"subjects": list(output.subjects)},
    out.Reported: _whole,
    out.Refused: lambda output: {"subjects": list(output.subjects), "reason": output.reason},
    out.Connected: lambda output: {"session": output.event.session},
    out.Stopped: lambda output: {"code": output.code},
}


def command_of(sent: bytes, *, text: bool) -> Any:
    """Return the command in a frame, as plain values."""
    if text:
        return msgspec.json.decode(sent)
    ((_, payload),) = read_frames(sent, frozenset((1,)))
    return msgspec.to_builtins(msgspec.msgpack.decode(payload))


def _message(message: MessageEvent) -> dict[str, Any]:
    return msgspec.to_builtins(message)  # type: ignore[no-any-return]


def _plain(value: Any) -> dict[str, Any]:
    told = attrs.asdict(value, recurse=False)
    told["status"] = value.status.name
    return told


def _without_none(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None}
