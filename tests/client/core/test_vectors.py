"""The client makes of the published vectors what they say it should."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.json_form import JsonClient
from mdserver.core.events import MessageEvent

FILE = Path(__file__).parents[2] / "vectors" / "encodings.json"
VECTORS: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))


def named(kind: str) -> Any:
    return pytest.mark.parametrize("vector", VECTORS[kind], ids=lambda vector: vector["name"])


def payloads(vector: dict[str, Any]) -> list[tuple[Any, bytes]]:
    forms = [(BinaryClient, bytes.fromhex(vector["binary"]))] if "binary" in vector else []
    return forms + ([(JsonClient, vector["json"].encode())] if "json" in vector else [])


@named("messages")
def test_messages_come_out(stage: Any, vector: dict[str, Any]) -> None:
    expected = [msgspec.convert(event, MessageEvent) for event in vector["events"]]
    for codec, payload in payloads(vector):
        it = stage(codec=codec)
        it.take(it.core.subscribe(["/**"]))
        it.connect()
        it.take(it.core.received(it.attempt, payload, it.now))
        assert [(m.subject, m.content, m.content_base64) for m in it.messages] == [
            (m.subject, m.content, m.content_base64) for m in expected
        ]
        assert it.stopped is None


@named("events")
def test_events_break_nothing(stage: Any, vector: dict[str, Any]) -> None:
    for codec, payload in payloads(vector):
        it = stage(codec=codec)
        it.connect()
        it.take(it.core.received(it.attempt, payload, it.now))
        again = vector["value"]["op"] == "connected"
        assert (it.stopped is not None) is again, "only a second `connected` is a mistake"


@named("malformed_events")
def test_what_a_client_must_not_accept_ends_the_connection(
    stage: Any, vector: dict[str, Any]
) -> None:
    for codec, payload in payloads(vector):
        it = stage(codec=codec)
        it.connect()
        it.take(it.core.received(it.attempt, payload, it.now))
        assert it.stopped is not None
