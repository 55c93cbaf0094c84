"""Which engine is in force, and what operators are told of it; a fan-out with each of them."""

import json
import socket
from pathlib import Path

import pytest
import trio

from mdserver.cli.main import exit_status
from mdserver.config import FanoutEngine
from mdserver.server.clients import fanout
from mdserver.server.clients.fanout import Sent, open_fanout
from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from tests.live import live_server, wait_for_line
from tests.server.layers import Layer
from tests.server.native import usable
from tests.server.raw import TEXT, RawClient, frame, upgraded
from tests.server.serving import port_of, serving


def forbidden(entries: int) -> object:
    raise PermissionError(1, "Operation not permitted")


def test_the_fastest_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    usable(FanoutEngine.SEND)
    monkeypatch.setattr(fanout._sends, "Ring", forbidden)
    sentence = "io_uring cannot be used: Operation not permitted."
    for wanted in (FanoutEngine.AUTO, FanoutEngine.IO_URING):
        found = open_fanout(wanted)
        assert (found.engine, found.reason) == (FanoutEngine.SEND, sentence)
    assert open_fanout(FanoutEngine.SEND).reason is None


def test_one_that_opens_and_cannot_send_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    usable(FanoutEngine.SEND)

    def failing(wires: list[bytes], socks: list[socket.socket]) -> Sent:
        return [], [], [(0, 38)]

    monkeypatch.setattr(fanout._sends, "send", failing)
    found = open_fanout(FanoutEngine.SEND)
    assert (found.engine, found.send) == (FanoutEngine.PYTHON, None)
    assert found.reason == "send cannot be used: its trial failed."


def test_without_native_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fanout, "INSTALLED", False)
    assert open_fanout(FanoutEngine.PYTHON).reason is None
    assert exit_status(["check-config", "--set", "FanoutEngine=io_uring"]) == 0
    said = capsys.readouterr()
    assert "warning: FanoutEngine = io_uring: python is used instead. There is no nat" in said.err
    (line,) = [line for line in said.out.splitlines() if line.startswith("FanoutEngine")]
    assert line.endswith("; python is in force")
    assert exit_status(["check-config", "--format", "json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["FanoutEngine"]["effective"] == "python"
    assert "FanoutEngine" not in said.err  # nobody asked for more


@pytest.mark.slow
def test_a_server_says_which_engine_is_in_force(
    tmp_path: Path, fanout_engine: FanoutEngine
) -> None:
    options = ("--set", "Listen=127.0.0.1:0", "--set", f"FanoutEngine={fanout_engine.value}")
    with live_server(tmp_path, *options) as server:
        assert wait_for_line(server.log, '"ready"')["fanout"] == fanout_engine.value


async def test_a_fan_out_with_pings_and_a_reset_between(
    fanout_engine: FanoutEngine, layer: Layer
) -> None:
    """All get everything in order, with the answers to their pings, but for one that is cut.

    With TLS every third subscriber is a plain one, beside the encrypted ones.
    """
    async with serving(layer.settings(ServerSettings(fanout_engine=fanout_engine))) as server:
        async with trio.open_nursery() as nursery, upgraded(port_of(server)) as publisher:
            seen: list[list[int]] = []
            for number in range(12):
                ready = trio.Event()
                over = layer if number % 3 != 1 else Layer()
                nursery.start_soon(subscriber, server, over, number, seen, ready)
                await ready.wait()
            for number in range(100):
                command = {"op": "publish", "subject": "/a/b", "content": str(number)}
                await publisher.send(frame(TEXT, json.dumps(command).encode()))
        assert sorted(map(len, seen)) == [10, *[100] * 11]
        assert all(each == list(range(len(each))) for each in seen)


async def subscriber(
    server: Server, layer: Layer, number: int, seen: list[list[int]], ready: trio.Event
) -> None:
    """Read 100 messages, with a ping each time; subscriber 3 ends with a reset after ten."""
    contents: list[int] = []
    most = 10 if number == 3 else 100
    async with upgraded(layer.port(server), tls=layer.context) as client:
        await client.send(frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}'))
        await client.frame()
        ready.set()
        while len(contents) < most:
            contents += await numbers(client)
        contents = contents[:most]
        if number == 3:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.socket.close()
    seen.append(contents)


async def numbers(client: RawClient) -> list[int]:
    """Send a ping, and return the contents of what comes next."""
    await client.send(frame(9, b"?"))
    opcode, payload = await client.frame()
    if opcode != TEXT:
        assert (opcode, payload) == (10, b"?")
        return []
    events = json.loads(payload)
    events = events if isinstance(events, list) else [events]
    return [int(event["content"]) for event in events if event["op"] == "message"]
