"""The server that members are compared with: every connection gets all records, by its consumer."""

import sys

import pytest
from websockets.sync.client import connect

from mdserver.bench import processes
from tests.kafka.talking import PATIENCE_S, new_topic
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]


def test_each_connection_gets_each_record(kafka: LiveKafka) -> None:
    topic = new_topic(kafka)
    command = [sys.executable, "-m", "mdserver.bench.kafka_consumers", kafka.servers, topic]
    with processes.started(command) as server:
        url = f"ws://127.0.0.1:{processes.line(server).removeprefix('ready ')}"
        with connect(url) as one, connect(url) as other:
            for socket in (one, other):
                assert socket.recv(PATIENCE_S) == "hello"
            kafka.produce(topic, [("key", b"first"), ("key", b"second")])
            for socket in (one, other):
                assert [socket.recv(PATIENCE_S) for _ in range(2)] == ["first", "second"]
