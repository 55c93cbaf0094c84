"""The topic in which a bridge keeps what was copied, and the command without Kafka."""

import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
)

from mdserver.bridge.ledger import KEPT_SMALL, BridgeError, Ledger
from tests.kafka.talking import PATIENCE_S, new_topic
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.slow]
WHILE_S = 3


@pytest.mark.pipeline
def test_rows_behind_an_open_transaction_are_waited_for(kafka: LiveKafka) -> None:
    topic = f"states-{new_topic(kafka, 1)}"
    properties = {"bootstrap.servers": kafka.servers}
    first = Ledger(properties, "a", topic)
    assert first.load() == {}
    first.commit((), {"x": 1})
    other: Any = Producer({**properties, "transactional.id": f"other-{topic}"})
    other.init_transactions(PATIENCE_S)
    other.begin_transaction()
    other.produce(topic, b"9", b"other x", 0)
    assert other.flush(PATIENCE_S) == 0
    first.commit((), {"x": 2})
    found: list[dict[str, Any]] = []
    later = Ledger(properties, "a", topic)
    thread = threading.Thread(target=lambda: found.append(later.load()))
    thread.start()
    try:
        thread.join(WHILE_S)
        assert not found, "what is behind the open transaction cannot be read yet"
    finally:
        other.abort_transaction(PATIENCE_S)
        thread.join(PATIENCE_S)
    assert found == [{"x": 2}]
    with pytest.raises(BridgeError, match="another bridge with the name a was started"):
        first.commit((), {"x": 3})


@pytest.mark.pipeline
@pytest.mark.parametrize(("partitions", "said"), [(3, "it has 3 partitions"), (1, "compacted")])
def test_a_state_topic_that_cannot_keep_rows_is_refused(
    kafka: LiveKafka, partitions: int, said: str
) -> None:
    topic = new_topic(kafka, partitions)
    with pytest.raises(BridgeError, match=said):
        Ledger({"bootstrap.servers": kafka.servers}, "a", topic).load()


@pytest.mark.pipeline
def test_a_state_topic_that_is_made_stays_small(kafka: LiveKafka) -> None:
    topic = f"states-{new_topic(kafka, 1)}"
    Ledger({"bootstrap.servers": kafka.servers}, "a", topic).load()
    resource = ConfigResource("topic", topic)
    found = kafka.admin.describe_configs([resource])[resource].result(PATIENCE_S)
    expected = {"cleanup.policy": "compact", **KEPT_SMALL}
    assert {name: found[name].value for name in expected} == expected


@pytest.mark.pipeline
def test_settings_that_brokers_refuse_are_left_out(
    kafka: LiveKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some providers do, which have bounds of their own."""
    monkeypatch.setattr("mdserver.bridge.ledger.KEPT_SMALL", {"segment.bytes": "1"})
    topic = f"states-{new_topic(kafka, 1)}"
    assert Ledger({"bootstrap.servers": kafka.servers}, "a", topic).load() == {}


@pytest.mark.pipeline
def test_a_broker_that_is_too_slow_is_told_as_such(
    kafka: LiveKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer about topics comes in no time at all."""
    topic = f"states-{new_topic(kafka, 1)}"
    ledger = Ledger({"bootstrap.servers": kafka.servers}, "a", topic)
    real = Ledger._make_topic

    def hurried(self: Ledger, admin: AdminClient) -> None:
        monkeypatch.setattr("mdserver.bridge.ledger.KAFKA_CALL_TIMEOUT_S", 0)
        real(self, admin)

    monkeypatch.setattr(Ledger, "_make_topic", hurried)
    with pytest.raises(BridgeError, match=rf"\A{topic}: Kafka does not answer\Z"):
        ledger.load()


def bridge(folder: Path, servers: str, *words: str, more: str = "") -> "subprocess.Popen[str]":
    file = folder / "kafka.properties"
    file.write_text(f"bootstrap.servers={servers}\n{more}")
    command = [sys.executable, "-m", "mdserver.cli.main", "bridge", "kafka"]
    command += ["--properties", str(file), "--to-subjects", "t=/t/{key}", "--to-topics", "/o/**=o"]
    return subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True)


def test_a_bridge_is_ended_by_an_interrupt_while_kafka_says_nothing(tmp_path: Path) -> None:
    with ExitStack() as held, socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        with bridge(tmp_path, f"127.0.0.1:{silent.getsockname()[1]}") as process:
            try:
                # The producers of both directions connect first, and then who asks for topics.
                for _ in range(3):
                    held.enter_context(silent.accept()[0])
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
    assert process.returncode in (1, 130), said
    assert "Traceback" not in said


def test_a_bridge_without_kafka_ends_with_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with bridge(tmp_path, f"127.0.0.1:{port}") as process:
        try:
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert len(said.splitlines()) == 1, said
    assert "mdserver-bridges: " in said


def test_a_name_with_a_space_is_refused(tmp_path: Path) -> None:
    with bridge(tmp_path, "127.0.0.1:1", "--name", "a b") as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "--name 'a b': expected a name without spaces or control characters" in said


def test_a_property_that_nothing_knows_is_named_in_one_sentence(tmp_path: Path) -> None:
    with bridge(tmp_path, "127.0.0.1:1", more="no.such.property=1\n") as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert len(said.splitlines()) == 1, said
    assert "--properties: " in said
    assert "no.such.property" in said
