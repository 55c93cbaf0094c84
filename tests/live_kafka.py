"""A real Kafka broker in a process of its own: one node, KRaft, loopback, jars from `make jars`."""

import base64
import logging
import os
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mdserver.bench.processes import free_ports

JVM = Path(__file__).parents[1] / "jvm"
JARS = JVM.parent / "build" / "jvm"
START_TIMEOUT_S = 120
CALL_TIMEOUT_S = 60
ATTEMPTS = 3
CREATE_AGAIN_S = 0.1
SILENT = logging.getLogger("librdkafka")
SILENT.setLevel(logging.CRITICAL)  # it complains of every connection while a broker starts


class KafkaMissingError(Exception):
    """The jars of the broker, or Java, are not there; the message says what makes them."""


@define
class LiveKafka:
    """A running broker."""

    process: subprocess.Popen[bytes]
    servers: str
    folder: Path
    admin: AdminClient = field(init=False)

    def __attrs_post_init__(self) -> None:
        settings = {"bootstrap.servers": self.servers, "socket.connection.setup.timeout.ms": 30_000}
        self.admin = AdminClient(settings, logger=SILENT)

    def kill(self) -> None:
        """Kill the broker, as a crash does."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """Start the killed broker on its log, and wait until it answers."""
        self.process = _launch(self.folder)
        assert _wait_ready(self.process, self.servers, self.folder)

    def create(self, topic: str, partitions: int = 2) -> None:
        """Make a topic; one of that name that is still being deleted is waited for."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while True:
            made = self.admin.create_topics([NewTopic(topic, partitions)])[topic]
            try:
                made.result(CALL_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS" or time.monotonic() > deadline:
                    raise
                time.sleep(CREATE_AGAIN_S)
            else:
                return

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(CALL_TIMEOUT_S)

    def drop_before(self, topic: str, partition: int, offset: int) -> None:
        """Let the partition begin at this offset, as retention does in time."""
        place = TopicPartition(topic, partition, offset)
        self.admin.delete_records([place])[place].result(CALL_TIMEOUT_S)

    def produce(self, topic: str, records: Iterable[tuple[str, bytes | None]]) -> None:
        """Append records (key, value) and wait until all are acknowledged, in order for each key.

        Keys go to the partitions that a Java producer would choose.
        """
        refused: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "partitioner": "murmur2_random",
            },
            logger=SILENT,
        )

        def told(error: object, _: object) -> None:
            if error is not None:
                refused.append(error)

        for key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key.encode(), on_delivery=told)
                    break
                except BufferError:
                    producer.poll(1)
            producer.poll(0)
        assert producer.flush(CALL_TIMEOUT_S) == 0
        assert not refused


@contextmanager
def live_kafka(folder: Path) -> Iterator[LiveKafka]:
    """Runs a broker until the end of the `with` block; KafkaMissingError without its jars."""
    if not list((JARS / "broker").glob("kafka_*.jar")):
        raise KafkaMissingError("no jars of a Kafka broker in build/jvm: run `make jars`")
    for attempt in range(1, ATTEMPTS + 1):
        running = _start(folder / f"kafka-{attempt}")
        try:
            # Another process may have taken a port meanwhile; then it is tried with others.
            if _wait_ready(running.process, running.servers, folder) or attempt == ATTEMPTS:
                yield running
                return
        finally:
            running.kill()


def _start(folder: Path) -> LiveKafka:
    folder.mkdir()
    ports = dict(zip(("@BROKER@", "@CONTROLLER@"), free_ports(2), strict=True))
    text = (JVM / "server.properties").read_text(encoding="utf-8")
    (folder / "server.properties").write_text(_filled(text, ports), encoding="utf-8")
    # An identifier must not begin with a dash.
    cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    formatting = ["format", "-t", cluster, "--standalone", "-c", "server.properties"]
    with (folder / "kafka.log").open("ab") as log:
        subprocess.run(
            [*_program(), "kafka.tools.StorageTool", *formatting],
            cwd=folder,
            stdout=log,
            stderr=log,
            timeout=START_TIMEOUT_S,
            check=True,
        )
    return LiveKafka(_launch(folder), f"127.0.0.1:{ports['@BROKER@']}", folder)


def _program() -> list[str]:
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [str(java), *quick, "-Xmx256m", "-cp", f"{JARS}/broker/*"]


def _launch(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "kafka.log").open("ab") as log:
        return subprocess.Popen(
            [*_program(), "kafka.Kafka", "server.properties"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _filled(text: str, values: Mapping[str, object]) -> str:
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def _wait_ready(process: subprocess.Popen[bytes], servers: str, folder: Path) -> bool:
    """Wait for the first answer; False if the broker ended instead."""
    deadline = time.monotonic() + START_TIMEOUT_S
    admin = AdminClient({"bootstrap.servers": servers}, logger=SILENT)
    while process.poll() is None:
        try:
            if admin.list_topics(timeout=1).brokers:
                return True
        except KafkaException:
            if time.monotonic() > deadline:
                raise AssertionError(f"no answer from Kafka, see kafka.log in {folder}") from None
    return False
