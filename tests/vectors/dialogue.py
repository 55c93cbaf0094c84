"""Plays the dialogues of dialogues.json: what is sent, and what must come back.

The player knows nothing of how a client reaches a server; it is given a function that opens a
connection. README.md beside this describes the file for players in other languages.
"""

import base64
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from mdserver.codec.binary_form import COMMAND, BinaryClient
from mdserver.codec.frames import frame
from mdserver.codec.json_form import JsonClient
from mdserver.core.events import Pong

DIALOGUES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "dialogues.json").read_text(encoding="utf-8")
)
ENCODINGS = ("json", "binary")
_FILL = re.compile(r"\{(.)\*(\d+)\}")


class Connection(Protocol):
    """One WebSocket connection, of which the player sees whole messages."""

    async def send(self, payload: bytes) -> None:
        """Send one message, text or binary as the encoding wants."""

    async def receive(self) -> bytes | int:
        """The next message, or the close code."""

    async def close(self, code: int) -> None:
        """Close the connection."""


Opener = Callable[[str], Awaitable[Connection]]


def cases() -> list[tuple[str, str]]:
    """Name and encoding of every dialogue that can be played."""
    return [
        (dialogue["name"], encoding)
        for dialogue in DIALOGUES
        for encoding in dialogue.get("encodings", ENCODINGS)
    ]


async def play(name: str, encoding: str, run: str, open_connection: Opener) -> int:
    """Play one dialogue; AssertionError where the server's part is another. Gives its events.

    `run` is a segment that makes subjects and publishers new; `open_connection(encoding)` opens.
    """
    (dialogue,) = (one for one in DIALOGUES if one["name"] == name)
    speakers: dict[str, Speaker] = {}
    known: dict[str, Any] = {}
    events = 0
    for number, step in enumerate(dialogue["steps"]):
        client = step["client"]
        if client not in speakers:
            speakers[client] = Speaker(await open_connection(encoding), encoding)
        speaker = speakers[client]
        if "send" in step:
            await speaker.say(substituted(step["send"], run, known))
        elif "send_text" in step:
            await speaker.connection.send(step["send_text"].encode())
        elif "send_hex" in step:
            await speaker.connection.send(bytes.fromhex(step["send_hex"]))
        elif "expect" in step:
            event = await speaker.hear()
            events += 1
            where = f"{name}, {encoding}, step {number}: {step['expect']} expected, got {event}"
            assert isinstance(event, dict), where
            for key, expected in step["expect"].items():
                assert matches(event.get(key), substituted(expected, run, {}), known), where
        elif "closed" in step:
            closed = await speaker.hear()
            assert closed == step["closed"], f"{name}, {encoding}, step {number}: got {closed}"
        else:
            await speaker.connection.close(step["close"])
            del speakers[client]
    for speaker in speakers.values():
        if not speaker.closed:
            await speaker.connection.close(1000)
    return events


class Speaker:
    """One client of a dialogue."""

    def __init__(self, connection: Connection, encoding: str) -> None:
        self.connection = connection
        self.closed = False
        self._text = encoding == "json"
        self._codec = JsonClient() if self._text else BinaryClient()
        self._heard: list[dict[str, Any]] = []

    async def say(self, commands: Any) -> None:
        """Send one command, or a list of them as a batch."""
        if self._text:
            await self.connection.send(json.dumps(commands).encode())
            return
        batch = commands if isinstance(commands, list) else [commands]
        await self.connection.send(
            b"".join(frame(COMMAND, msgspec.msgpack.encode(with_bytes(one))) for one in batch)
        )

    async def hear(self) -> dict[str, Any] | int:
        """The next event as an object with the keys of the JSON form, or the close code."""
        while not self._heard:
            payload = await self.connection.receive()
            if isinstance(payload, int):
                self.closed = True
                return payload
            self._heard += [self._plain(event) for event in self._codec.events(payload)]
        return self._heard.pop(0)

    def _plain(self, event: Any) -> dict[str, Any]:
        if isinstance(event, Pong):
            module = msgspec.json if self._text else msgspec.msgpack
            told = msgspec.to_builtins(event.positions)
            return {"op": "pong", "t": module.decode(event.t), "positions": told}
        return dict(json.loads(msgspec.json.encode(event)))


def with_bytes(command: dict[str, Any]) -> dict[str, Any]:
    """A command as the binary form wants it: bytes in place of base64."""
    if "content_base64" in command:
        return command | {"content_base64": base64.b64decode(command["content_base64"])}
    return command


def substituted(value: Any, run: str, known: dict[str, Any]) -> Any:
    """The value with `{run}` and `{x*N}` spelled out, and what is known in place of `?name`."""
    if isinstance(value, str):
        if value in known:
            return known[value]
        spelled = value.replace("{run}", run)
        return _FILL.sub(lambda found: found[1] * int(found[2]), spelled)
    if isinstance(value, list):
        return [substituted(one, run, known) for one in value]
    if isinstance(value, dict):
        return {
            substituted(key, run, {}): substituted(one, run, known) for key, one in value.items()
        }
    return value


def matches(value: Any, expected: Any, known: dict[str, Any]) -> bool:
    """Whether a value is the expected one; `?name` takes any value first, the same later."""
    if isinstance(expected, str) and expected.startswith("?"):
        return value is not None and bool(known.setdefault(expected, value) == value)
    return bool(value == expected and isinstance(value, bool) == isinstance(expected, bool))
