"""The adapters speak the forms of other servers; `make bench-peers` tries them on real ones."""

import pytest
from click.testing import CliRunner

from mdserver.bench import wire
from mdserver.bench.adapters.adapter import AdapterCodec
from mdserver.bench.commands import bench
from mdserver.bench.encodings import ADAPTERS, Encoding
from mdserver.bench.opening import AdapterOpening
from mdserver.bench.processes import BenchError
from mdserver.bench.verify import ReceivedStream, Verifier, content
from mdserver.core.commands import Connect, Ping, Publish, Subscribe, WireCommand
from mdserver.core.events import Connected, MessageEvent, Pong
from mdserver.errors import RemoteProtocolError

SUBJECT = "/bench/a/1"
CONTENT = content(7, 16)

# What a client says: the first message, the subscription, a publication, the ping.
SAID = {
    "centrifugo": (
        b'{"id":1,"connect":{}}\n',
        b'{"id":2,"subscribe":{"channel":"bench.a.1"}}\n',
        b'{"id":3,"publish":{"channel":"bench.a.1","data":"000000000007xxxx"}}\n',
        b'{"id":4,"rpc":{"method":"fence"}}\n',
    ),
    "mqtt": (
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
        b"\x82\x0e\x00\x01\x00\x09bench/a/1\x00",
        b"\x30\x1b\x00\x09bench/a/1000000000007xxxx",
        b"\xc0\x00",
    ),
    "nats": (
        b'CONNECT {"verbose":false,"pedantic":false,"echo":false,"protocol":1}\r\n',
        b"SUB bench.a.1 1\r\n",
        b"PUB bench.a.1 16\r\n000000000007xxxx\r\n",
        b"PING\r\n",
    ),
    "socketio": (
        b"40",
        b'42["subscribe","/bench/a/1"]',
        b'42["publish","/bench/a/1","000000000007xxxx"]',
        b'421["fence"]',
    ),
    "websocket": (b"", b"", b"000000000007xxxx", b""),
}

# What a server says: that the client is connected, a message, the answer to the ping.
HEARD = {
    "centrifugo": (
        b'{"id":1,"connect":{"client":"c","ping":25,"pong":true}}',
        b'{"push":{"channel":"bench.a.1","pub":{"data":"000000000007xxxx"}}}',
        b'{"id":4,"error":{"code":108,"message":"not available"}}',
    ),
    "mqtt": (
        b"\x20\x02\x00\x00",
        b"\x30\x1b\x00\x09bench/a/1000000000007xxxx",
        b"\xd0\x00",
    ),
    "nats": (
        b'INFO {"server_id":"S"}\r\n',
        b"MSG bench.a.1 1 16\r\n000000000007xxxx\r\n",
        b"PONG\r\n",
    ),
    "socketio": (b'40{"sid":"s"}', b'42["message","000000000007xxxx"]', b"431[]"),
}

# The server's own ping, and what it is answered.
ASKED = {
    "centrifugo": (b"{}", b"{}"),
    "nats": (b"PING\r\n", b"PONG\r\n"),
    "socketio": (b"2", b"3"),
}

REFUSED = {
    "centrifugo": b'{"id":2,"error":{"code":103,"message":"permission denied"}}',
    "mqtt": b"\x90\x03\x00\x01\x80",
    "nats": b"-ERR 'Authorization Violation'\r\n",
    "socketio": b'44{"message":"not for you"}',
}


def codec_of(name: str) -> AdapterCodec:
    codec = ADAPTERS[name].client()
    assert isinstance(codec, AdapterCodec)
    return codec


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_a_client_says_what_the_server_understands(name: str) -> None:
    codec = codec_of(name)
    commands: list[WireCommand] = [
        Connect(),
        Subscribe(subjects=[SUBJECT]),
        Publish(subject=SUBJECT, content=CONTENT),
        Ping(),
    ]
    assert tuple(map(codec.command, commands)) == SAID[name]


@pytest.mark.parametrize("name", sorted({*ADAPTERS} - {"websocket"}))
def test_a_token_goes_with_the_first_message(name: str) -> None:
    assert b"secret" in codec_of(name).command(Connect(token="secret"))


@pytest.mark.parametrize("name", sorted(HEARD))
def test_what_a_server_says_becomes_events(name: str) -> None:
    codec = codec_of(name)
    connected, message, pong = (event for heard in HEARD[name] for event in codec.events(heard))
    assert isinstance(connected, Connected)
    assert isinstance(message, MessageEvent)
    assert (message.seq, message.content) == (7, CONTENT)
    assert isinstance(pong, Pong)


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_what_no_such_server_says_is_an_error(name: str) -> None:
    with pytest.raises(RemoteProtocolError):
        codec_of(name).events(b"\xf0\x02ff\r\n")


@pytest.mark.parametrize("name", sorted({*ADAPTERS} - {"websocket"}))
def test_a_message_of_somebody_else_is_an_error(name: str) -> None:
    message = HEARD[name][1].replace(CONTENT.encode(), b"none of ours it's")
    message = message.replace(b" 16\r", b" 17\r").replace(b"\x30\x1b", b"\x30\x1c")
    with pytest.raises(RemoteProtocolError, match="has no number"):
        codec_of(name).events(message)


@pytest.mark.parametrize("name", sorted(ASKED))
def test_the_ping_of_a_server_is_answered_by_every_client(name: str) -> None:
    ping, answer = ASKED[name]
    verifier = Verifier(16)
    opcode = wire.OPCODE_TEXT if codec_of(name).text else wire.OPCODE_BINARY
    for number in (1, 2):
        sent: list[bytes] = []
        stream = ReceivedStream(number, codec_of(name), sent.append)
        verifier.received(stream, wire.server_frame(ping, opcode))
        assert sent == [wire.masked(answer, opcode, b"mask")]


def opened(name: str, answers: list[bytes]) -> list[bytes]:
    """Open a connection to a server that says this; return what the client sent it in turn."""
    encoding: Encoding = ADAPTERS[name]
    upgrade = wire.Upgrade("127.0.0.1:1", encoding.subprotocol, encoding.path)
    verifier = Verifier(16)
    stream = ReceivedStream(0, encoding.client(), lambda _: None)
    talk = AdapterOpening(upgrade, Connect(), [Subscribe(subjects=[SUBJECT])])(stream, verifier)
    opcode = wire.OPCODE_TEXT if codec_of(name).text else wire.OPCODE_BINARY
    said = [next(talk)]
    upgraded = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: %s\r\n\r\n"
    try:
        said.append(talk.send(upgraded % upgrade._accept))
        for answer in answers:
            said.append(talk.send(wire.server_frame(answer, opcode)))  # noqa: PERF401 - it may end
    except StopIteration:
        return said
    raise AssertionError("it waits for more")


@pytest.mark.parametrize("name", sorted(HEARD))
def test_a_client_is_there_when_its_ping_is_answered(name: str) -> None:
    connected, _, pong = HEARD[name]
    said = opened(name, [connected, pong])
    assert f"GET {ADAPTERS[name].path} HTTP/1.1\r\n".encode() in said[0]
    commands: list[WireCommand] = [Subscribe(subjects=[SUBJECT]), Ping()]
    codec = codec_of(name)
    if codec.greets:
        assert said[1:] == [codec.wire([Connect()]), codec.wire(commands)]
    else:
        assert said[1:] == [codec.wire([Connect(), *commands]), b""]


def test_a_plain_client_pings_with_a_control_frame() -> None:
    codec = codec_of("websocket")
    assert codec.wire([Connect(), Subscribe(subjects=[SUBJECT]), Ping()]) == wire.masked(
        b"", wire.OPCODE_PING, b"mask"
    )
    stream = ReceivedStream(0, codec, lambda _: None)
    Verifier(16).received(stream, wire.server_frame(b"", wire.OPCODE_PONG))
    assert [type(event) for event in stream.others] == [Pong]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_a_server_refuses_ends_the_measurement(name: str) -> None:
    with pytest.raises(BenchError, match="the server answered"):
        opened(name, [HEARD[name][0], REFUSED[name]])


def test_an_adapter_is_for_servers_that_run_already() -> None:
    done = CliRunner().invoke(bench, ["fanout", "--adapter", "nats"])
    assert done.exit_code == 2
    assert "--adapter is for servers that --server names" in done.output


def test_a_server_without_subjects_is_no_choice_for_many_of_them() -> None:
    done = CliRunner().invoke(bench, ["subjects", "--adapter", "websocket"])
    assert done.exit_code == 2
    assert "'websocket' is not one of" in done.output
