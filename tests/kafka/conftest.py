"""One broker for all tests of members whose log is Kafka, and members as users run them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live import LiveServer, live_server
from tests.live_kafka import KafkaClient, KafkaMissingError, LiveKafka, live_kafka

PASSWORD = "0123456789abcdef"


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKafka]:
    """A broker; each test has topics of its own."""
    with needed(), live_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@contextmanager
def needed() -> Iterator[None]:
    """Skips a test that needs a broker where there is none, and fails it in CI."""
    try:
        yield
    except KafkaMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(f"KAFKA TESTS CANNOT RUN: {error}")
        pytest.skip(f"KAFKA TESTS SKIPPED: {error}")


class Members:
    """Starts members that know nothing of each other but the broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    @contextmanager
    def start(
        self, kafka: KafkaClient, topics: str, *more: str, shared: str = ""
    ) -> Iterator[LiveServer]:
        """Run a member; `topics` are lines of its consumer.properties, `shared` of both files."""
        self._count += 1
        folder = self._folder / f"member-{self._count}"
        folder.mkdir()
        servers = f"bootstrap.servers={kafka.servers}\n{shared}"
        (folder / "consumer.properties").write_text(f"{servers}{topics}\n")
        (folder / "producer.properties").write_text(servers)
        parameters = (
            "Listen=127.0.0.1:0",
            "Entitlement=None",
            "ClusterEngine=kafka",
            f"ClusterPassword={PASSWORD}",
            f"Kafka.ConsumerProperties={folder}/consumer.properties",
            f"Kafka.ProducerProperties={folder}/producer.properties",
            *more,
        )
        with live_server(folder, *(part for one in parameters for part in ("--set", one))) as it:
            yield it


@pytest.fixture
def members(tmp_path: Path) -> Members:
    """What starts members."""
    return Members(tmp_path)
