"""The codec holds to the vectors that clients in other languages are written against."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mdserver.codec.binary_form import BINARY, BinaryClient
from mdserver.codec.json_form import JSON, JsonClient
from mdserver.core.commands import Malformed, WireCommand
from mdserver.core.events import MessageEvent, WireEvent
from mdserver.errors import RemoteProtocolError

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "encodings.json").read_text(encoding="utf-8")
)


def named(kind: str) -> Any:
    return pytest.mark.parametrize("vector", VECTORS[kind], ids=lambda vector: vector["name"])


@named("commands")
def test_commands(vector: dict[str, Any]) -> None:
    command = msgspec.convert(vector["value"], WireCommand)
    binary = bytes.fromhex(vector["binary"])
    assert JSON.commands(vector["json"].encode()) == [command]
    assert BINARY.commands(binary) == [command]
    assert json.loads(JsonClient().command(command)) == json.loads(vector["json"])
    assert BinaryClient().command(command) == binary


@named("events")
def test_events(vector: dict[str, Any]) -> None:
    event = msgspec.convert(vector["value"], WireEvent)
    binary = bytes.fromhex(vector["binary"])
    assert JsonClient().events(vector["json"].encode()) == [event]
    assert BinaryClient().events(binary) == [event]
    assert json.loads(JSON.event(event)) == json.loads(vector["json"])
    assert BINARY.event(event) == binary


@named("messages")
def test_messages(vector: dict[str, Any]) -> None:
    events = [msgspec.convert(event, MessageEvent) for event in vector["events"]]
    assert BinaryClient().events(bytes.fromhex(vector["binary"])) == events
    if "json" in vector:
        assert JsonClient().events(vector["json"].encode()) == events


@named("malformed_commands")
def test_malformed_commands(vector: dict[str, Any]) -> None:
    if "json" in vector:
        codec, sent = JSON.commands, vector["json"].encode()
    else:
        codec, sent = BINARY.commands, bytes.fromhex(vector["binary"])
    if "close" in vector:
        with pytest.raises(RemoteProtocolError) as caught:
            codec(sent)
        assert caught.value.code == vector["close"]
    else:
        (command,) = codec(sent)
        assert isinstance(command, Malformed)
        assert (command.code, command.id) == (vector["error"], vector.get("id"))


@named("malformed_events")
def test_malformed_events(vector: dict[str, Any]) -> None:
    client = JsonClient() if "json" in vector else BinaryClient()
    sent = vector["json"].encode() if "json" in vector else bytes.fromhex(vector["binary"])
    with pytest.raises(RemoteProtocolError):
        client.events(sent)
