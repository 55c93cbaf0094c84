"""What reads bytes of others, as functions of bytes: each raises nothing, whatever it is given.

An error that a parser may raise is caught here; any other is a fault. Beyond that a stream gives
the same in one piece and in two, and what was read can be written and read again.

`corpus(name)` has bytes that together reach every branch that the guided fuzzer has reached:
`seeds/NAME` holds them, one a line, in base64.
"""

import base64
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from mdserver.cluster import votes
from mdserver.cluster.kafka_records import KafkaRecord, Places, PoisonError, publication, record_of
from mdserver.codec.binary_form import BinaryClient, BinaryCodec
from mdserver.codec.frames import FrameReader
from mdserver.codec.http import HttpConnection, RequestRefusedError
from mdserver.codec.json_form import JsonClient, JsonCodec
from mdserver.codec.peer import MESSAGE, PART, Greeting, Handshake, MessageAssembler, Side, Terms
from mdserver.codec.websocket import Pinged, Ponged, WebSocket
from mdserver.config import load
from mdserver.errors import ConfigError, RemoteProtocolError
from mdserver.journal import wal_lines
from mdserver.server.workers import control

SEEDS = Path(__file__).parent / "seeds"
MESSAGE_BYTES_MAX = 200  # small, so that limits are reached
REQUESTS_MAX = 20
JSON, JSON_CLIENT = JsonCodec(), JsonClient()
BINARY = BinaryCodec()


def websocket(data: bytes) -> None:
    """Read frames of a client: whole, and divided at the place that the first byte says."""
    assert _divided(data, _websocket) == _websocket([data[1:]])


def _websocket(pieces: list[bytes]) -> list[Any]:
    socket = WebSocket(MESSAGE_BYTES_MAX)
    events: list[Any] = []
    for piece in pieces:
        events += socket.feed(piece)
        while socket.more and not socket.ended:
            events += socket.feed(b"")
    # Of empty pings and pongs that are read together one is told: their number says nothing.
    return [one for one in events if one not in (Ponged(b""), Pinged(b"\x8a\x00"))]


def http(data: bytes) -> None:
    """Read requests one after the other, and answer each."""
    assert _divided(data, _http) == _http([data[1:]])


def _http(pieces: list[bytes]) -> list[Any]:
    connection = HttpConnection(head_bytes_max=400, body_bytes_max=MESSAGE_BYTES_MAX)
    seen: list[Any] = []
    try:
        for piece in pieces:
            request = connection.receive(piece)
            while request is not None and len(seen) < REQUESTS_MAX:
                with suppress(RequestRefusedError):
                    seen.append((request.method, request.target, request.path, request.query))
                seen.append((request.headers, request.body, request.wants_websocket))
                # No server answers CONNECT with a success, which would make a tunnel of it.
                connection.respond(405 if request.method == "CONNECT" else 200, (), b"x")
                if not connection.keeps_open:
                    return seen
                request = connection.receive(b"")
    except RequestRefusedError as error:
        connection.refuse(error)
        seen.append("refused")  # which of two faults it names depends on what came first
    return seen


def framing(data: bytes) -> None:
    """Divide a stream into frames."""
    assert _divided(data, _framing) == _framing([data[1:]])


def _framing(pieces: list[bytes]) -> list[Any]:
    reader = FrameReader(frozenset(range(16)), MESSAGE_BYTES_MAX)
    frames: list[Any] = []
    try:
        for piece in pieces:
            frames += reader.feed(piece)
    except RemoteProtocolError:
        return ["refused"]
    return frames


def _divided(data: bytes, read: Callable[[list[bytes]], list[Any]]) -> list[Any]:
    at = data[0] if data else 0
    rest = data[1:]
    return read([rest[:at], rest[at:]])


def json(data: bytes) -> None:
    """Read commands, lines of commands, and events."""
    for read in (JSON.commands, JSON.lines, JSON_CLIENT.events):
        with suppress(RemoteProtocolError):
            read(data)


def messagepack(data: bytes) -> None:
    """Read commands and events in the binary form, and a stream of events."""
    for read in (BINARY.commands, BinaryClient().events, BinaryClient().stream):
        with suppress(RemoteProtocolError):
            read(data)


def configuration(data: bytes) -> None:
    """Read a configuration file; mistakes are told by one error."""
    file = _folder() / "mdserver.conf"
    file.write_bytes(data)
    with suppress(ConfigError):
        load(file)


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="mdserver-fuzz-"))


def peer(data: bytes) -> None:
    """Read what another member sends: its part of the handshake, or messages, by the first byte."""
    terms = Terms(8, ["a:1", "b:1"], "Guaranteed")
    with suppress(RemoteProtocolError):
        if data[:1] < b"\x80":
            side = Side.LISTENER if data[:1] < b"\x40" else Side.DIALER
            handshake = Handshake(side, Greeting("a:1", b"a" * 32), terms, "password")
            handshake.begin()
            handshake.feed(data[1:])
        else:
            MessageAssembler().take(FrameReader(frozenset((MESSAGE, PART))).feed(data[1:]))


def vote_file(data: bytes) -> None:
    """Read a vote record; what could be read can be written and read again."""
    with suppress(votes.DamagedError):
        votes.started(data, "a:1", "cluster", 2)
        record = votes.read(data)
        assert votes.read(record.encode()) == record


def journal(data: bytes) -> None:
    """Read lines of a write-ahead log; the first byte says whether checksums are made to fit."""
    assembly = wal_lines.WalAssembly()
    for line in data[1:].split(b"\n"):
        with suppress(ValueError):
            fits = data[:1] < b"\x80"
            entry = wal_lines.entry_of(wal_lines._line(line) if fits else line)
            if not isinstance(entry, wal_lines.Chained):
                assembly.take(entry)
    assert assembly.entries is not None


def worker_control(data: bytes) -> None:
    """Divide what a worker sends into messages, and read them."""
    assert _divided(data, _worker_control) == _worker_control([data[1:]])


def _worker_control(pieces: list[bytes]) -> list[Any]:
    buffer = bytearray()
    messages: list[Any] = []
    with suppress(control.ControlError):
        for piece in pieces:
            buffer += piece
            while (found := control.taken(buffer)) is not None:
                messages.append(control.decoded(found))
    return messages


def kafka_record(data: bytes) -> None:
    """Read a record of Kafka; what could be read can be written and read again.

    NUL divides key, value, and the names and values of headers.
    """
    key, value, *rest = [*data[1:].split(b"\0"), b""][:40]
    names = [name.decode(errors="replace") for name in rest[::2]]
    headers = list(zip(names, rest[1::2], strict=False))
    given = KafkaRecord("topic", 0, 0, 1_000_000, key, value or None, headers)
    stray = data[:1] >= b"\x80"
    with suppress(PoisonError):
        place = Places({"topic": 3}, "murmur2", 8).of("topic", key or None)
        read = publication(given, place, MESSAGE_BYTES_MAX, stray=stray)
        made = record_of(1, place, read)
        again = KafkaRecord(
            "topic", made.partition, 0, 1_000_000, made.key, made.value, made.headers
        )
        assert publication(again, place, MESSAGE_BYTES_MAX, stray=False) == read


PARSERS: dict[str, Callable[[bytes], None]] = {
    "websocket": websocket,
    "http": http,
    "framing": framing,
    "json": json,
    "messagepack": messagepack,
    "configuration": configuration,
    "peer": peer,
    "vote-file": vote_file,
    "journal": journal,
    "worker-control": worker_control,
    "kafka-record": kafka_record,
}


def corpus(name: str) -> list[bytes]:
    """Return what is kept for a parser."""
    lines = (SEEDS / name).read_text(encoding="ascii").splitlines()
    return [base64.b64decode(line, validate=True) for line in lines]


def keep(name: str, inputs: list[bytes]) -> None:
    """Write down what is kept for a parser, in an order that depends on nothing else."""
    SEEDS.mkdir(exist_ok=True)
    lines = [base64.b64encode(one).decode() + "\n" for one in sorted(inputs, key=_place)]
    (SEEDS / name).write_text("".join(lines), encoding="ascii")


def _place(one: bytes) -> tuple[int, bytes]:
    return len(one), one
