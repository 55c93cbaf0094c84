"""Decoders of operators: what they make of values, and that their faults harm one record each."""

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mdserver.cluster.kafka_records import KafkaRecord
from mdserver.errors import ConfigError
from mdserver.limits import KAFKA_DECODERS_STUCK_MAX, NS_PER_S
from mdserver.server.kafka.decoding import Decoded, Decoding, decoder_settings
from tests.kafka.conftest import Members
from tests.kafka.talking import PATIENCE_S, client, contents, new_topic, produce, take
from tests.kafka.test_properties import files
from tests.live import wait_for_line
from tests.live_kafka import LiveKafka

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PATIENT_NS = PATIENCE_S * NS_PER_S
SCHEMA = '{"type": "object", "properties": {"speed": {"type": "number"}}, "required": ["speed"]}'


class Decoder:
    """Does what a value says; `go` ends the calls that hang."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def decode(  # noqa: PLR0911 - a line for each fault
        self, topic: str, key: bytes | None, value: bytes, headers: dict[str, bytes]
    ) -> Any:
        match value:
            case b"raise":
                raise ValueError("not\nthis")
            case b"exit":
                sys.exit(3)
            case b"hang":
                self.go.wait()
            case b"number":
                return 5
            case b"content":
                return Decoded(5)  # type: ignore[arg-type]
            case b"field":
                return Decoded("", {"a": 5})  # type: ignore[dict-item]
            case b"own":
                return Decoded("", {"md-id": "1"})
            case b"surrogate":
                return Decoded("\ud800")
            case b"as it is":
                return None
            case b"bytes":
                return Decoded(b"text")
        return Decoded(f"{topic} {key!r} {value!r} {headers}", {"a": "decoded"})


def decoding(decoder: Decoder, deadline: int = PATIENT_NS) -> Decoding:
    return Decoding(decoder_settings(decoder, deadline), threading.Event())


def record(value: bytes | None) -> KafkaRecord:
    return KafkaRecord("t", 0, 5, 7, b"k", value, [("a", b"1"), ("b", None)])


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    made = Decoder()
    try:
        yield made
    finally:
        made.go.set()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"raise", "the decoder raised ValueError: not\\nthis"),
        (b"exit", "the decoder raised SystemExit: 3"),
        (b"number", "the decoder returned a int in place of a Decoded"),
        (b"content", "the decoder returned content that is a int, not a str or bytes"),
        (b"field", "the decoder returned fields that are no texts"),
        (b"own", "the decoder returned the field md-id: "),
        (b"surrogate", "the decoder returned text that cannot be written as UTF-8"),
    ],
)
def test_what_makes_no_content_is_poison(decoder: Decoder, value: bytes, reason: str) -> None:
    found = decoding(decoder).decoded([record(b"1"), record(value), record(b"2")])
    assert found is not None
    assert [one.poison is None for one in found] == [True, False, True]
    assert str(found[1].poison).startswith(reason)


def test_what_a_decoder_returns_is_content_and_fields(decoder: Decoder) -> None:
    values = (b"1", b"as it is", b"bytes", None)
    found = decoding(decoder).decoded([record(value) for value in values])
    assert found is not None
    text = b"t b'k' b'1' {'a': b'1', 'b': b''}"
    assert [(one.value, one.text, one.fields) for one in found] == [
        (text, True, {"a": "decoded"}),
        (b"as it is", None, None),
        (b"text", False, {}),
        (None, None, None),
    ]


@pytest.mark.slow
def test_a_call_that_hangs_harms_its_record_alone(decoder: Decoder) -> None:
    with_deadline = decoding(decoder, 3 * NS_PER_S)
    found = with_deadline.decoded([record(b"1"), record(b"hang"), record(b"2")])
    assert found is not None
    assert [one.poison for one in found] == [None, "the decoder took longer than 3 s", None]
    [after] = with_deadline.decoded([record(b"3")]) or []
    assert after.poison is None


def test_calls_that_hang_are_bounded_until_one_returns(decoder: Decoder) -> None:
    hurried = decoding(decoder, NS_PER_S // 100)
    found = hurried.decoded([record(b"hang")] * (KAFKA_DECODERS_STUCK_MAX + 2))
    assert found is not None
    told = [str(one.poison) for one in found]
    assert told[:-2] == ["the decoder took longer than 0.01 s"] * KAFKA_DECODERS_STUCK_MAX
    assert told[-2:] == [f"{KAFKA_DECODERS_STUCK_MAX} calls of the decoder have not returned"] * 2
    decoder.go.set()
    for turn in hurried._stuck:
        assert turn.ended.wait(PATIENCE_S)
    hurried._deadline_s = PATIENCE_S
    [after] = hurried.decoded([record(b"as it is")]) or []
    assert after.poison is None


def test_the_end_of_the_server_does_not_wait_for_a_call(decoder: Decoder) -> None:
    stopping = threading.Event()
    stopping.set()
    assert (
        Decoding(decoder_settings(decoder, PATIENT_NS), stopping).decoded([record(b"hang")]) is None
    )


def test_a_coroutine_function_is_refused() -> None:
    class Later:
        async def decode(self, *_: object) -> None: ...

    with pytest.raises(ConfigError, match=r"write `def decode`, not `async def`"):
        decoder_settings(Later(), NS_PER_S)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere:It", "ModuleNotFoundError: No module named 'nowhere'"),
        ("json:It", "has no attribute 'It'"),
        ("json:decoder", "'module' object is not callable"),
        ("json:JSONEncoder", "it has no decode"),
        ("json", "expected `package.module:Class`"),
        ("", "it needs ClusterEngine = kafka"),
    ],
)
def test_check_config_says_what_is_wrong_with_a_class(tmp_path: Path, name: str, told: str) -> None:
    engine = files(tmp_path) if name else ["Listen=127.0.0.1:0"]
    settings = [*engine, f"Kafka.Decoder.Class={name or 'json:JSONDecoder'}"]
    words = [word for one in settings for word in ("--set", one)]
    command = [sys.executable, "-m", "mdserver.cli.main", "check-config", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "Kafka.Decoder.Class" in line
    assert told in line


# The example


def framed(number: int, text: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + text


class Registry(BaseHTTPRequestHandler):
    """A schema registry with one schema of JSON, and one of Avro."""

    def do_GET(self) -> None:
        known = {"7": {"schemaType": "JSON", "schema": SCHEMA}, "8": {"schema": '"string"'}}
        found = known.get(self.path.rpartition("/")[2])
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(msgspec.json.encode(found))

    def log_message(self, *_: object) -> None: ...


@contextmanager
def schemas(where: str, folder: Path) -> Iterator[str]:
    """Keep the schema in a folder or in a registry; return what SCHEMAS is to be."""
    if where == "folder":
        (folder / "7.json").write_text(SCHEMA)
        yield str(folder)
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.pipeline
@pytest.mark.slow
@pytest.mark.parametrize("where", ["folder", "registry"])
async def test_the_example_shows_framed_json(
    kafka: LiveKafka,
    members: Members,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    topic = new_topic(kafka)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES), prepend=os.pathsep)
    with schemas(where, tmp_path) as source:
        monkeypatch.setenv("SCHEMAS", source)
        parameter = "Kafka.Decoder.Class=json_schema_decoder:JsonSchemaDecoder"
        with members.start(kafka, f"topics={topic}", parameter) as here:
            async with client(here) as it, it.subscribe(f"/{topic}/k") as subscription:
                await it.connected()
                await it.publish(f"/{topic}/k", "of a client")
                await take(subscription, 1)  # from here on it is subscribed
                await produce(
                    kafka,
                    topic,
                    ("k", framed(7, b'{"speed": 80}')),
                    ("k", framed(7, b'{"speed": "fast"}')),
                    ("k", framed(8, b'"text"')),
                    ("k", framed(9, b"{}")),
                    ("k", framed(7, b'{"speed": NaN}')),
                    ("k", b"plain"),
                )
                messages = await take(subscription, 2)
            assert contents(messages) == ['{"speed": 80}', "plain"]
            assert [message.fields for message in messages] == [{"schema": "7"}, {}]
            wait_for_line(here.log, "NaN is no JSON")
            log = here.log.read_text(encoding="utf-8")
    assert log.count('"poison record"') == 4
    assert "$.speed: 'fast' is not of type 'number'" in log
    if where == "registry":
        assert "schema 8: it is of the type AVRO, not JSON" in log
        assert "schema 9: HTTP Error 404" in log


UNRULY = """
import threading

from mdserver.server.kafka.decoding import Decoded


class Unruly:
    def decode(self, topic, key, value, headers):
        if value == b"raise":
            raise RuntimeError("no")
        if value == b"hang":
            threading.Event().wait()
        return 5 if value == b"nonsense" else Decoded(value.decode().upper())
"""


@pytest.mark.pipeline
@pytest.mark.slow
async def test_a_decoder_that_fails_never_stops_a_member(
    kafka: LiveKafka, members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka, 1)
    (tmp_path / "unruly_decoder.py").write_text(UNRULY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    parameters = "Kafka.Decoder.Class=unruly_decoder:Unruly", "Kafka.Decoder.Deadline=5s"
    with members.start(kafka, f"topics={topic}", *parameters) as here:
        async with client(here) as it, it.subscribe(f"/{topic}/k") as subscription:
            await it.connected()
            first = await it.publish(f"/{topic}/k", "first")
            await take(subscription, 1)  # from here on it is subscribed
            bad = [("k", one) for one in (b"raise", b"nonsense", b"hang")]
            await produce(kafka, topic, *bad, ("k", b"last"))
            [message] = await take(subscription, 1)
            assert message.content == "LAST"
            assert message.position is not None
            assert message.position.seq == first.seq + len(bad) + 1
        line = wait_for_line(here.log, "the decoder took longer than 5 s")
        assert (line["topic"], line["partition"], line["level"]) == (topic, 0, "warning")
