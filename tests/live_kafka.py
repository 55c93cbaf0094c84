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
from typing import Any

from attrs import define, field
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mdserver.bench.processes import free_ports

JVM = Path(__file__).parents[1] / "jvm"
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For tests: they are over before the JVM's second compiler has gained what it costs."""
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
class KafkaClient:
    """What tests do at brokers; `settings` are those that a client needs beside the addresses."""

    servers: str
    settings: Mapping[str, str] = field(factory=dict, kw_only=True)
    admin: AdminClient = field(init=False)

    def __attrs_post_init__(self) -> None:
        patient = {"socket.connection.setup.timeout.ms": 30_000}
        self.admin = AdminClient(self._properties() | patient, logger=SILENT)

    def _properties(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.servers, **self.settings}

    def create(self, topic: str, partitions: int = 2, replicas: int = 1) -> None:
        """Make a topic, and wait until a broker serves all its partitions.

        One of that name that is still being deleted is waited for.
        """
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while True:
            made = self.admin.create_topics([NewTopic(topic, partitions, replicas)])[topic]
            try:
                made.result(CALL_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS" or time.monotonic() > deadline:
                    raise
                time.sleep(CREATE_AGAIN_S)
            else:
                break
        # The controller answers before the brokers have heard of the topic.
        while not self._is_served(topic, partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no broker serves {topic} after {CALL_TIMEOUT_S} s")
            time.sleep(CREATE_AGAIN_S)

    def _is_served(self, topic: str, partitions: int) -> bool:
        known = self.admin.list_topics(timeout=CALL_TIMEOUT_S).topics.get(topic)
        if known is None or known.error is not None:
            return False
        return [part.leader >= 0 for part in known.partitions.values()] == [True] * partitions

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
                **self._properties(),
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


@define
class LiveKafka(KafkaClient):
    """A running broker."""

    process: subprocess.Popen[bytes]
    folder: Path

    def kill(self) -> None:
        """Kill the broker, as a crash does."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """Start the killed broker on its log, and wait until it answers."""
        self.process = _launch(self.folder)
        assert _wait_ready(self)


@define
class LiveKafkaCluster(KafkaClient):
    """Three brokers, each a controller too; `brokers` are numbered from 1 on."""

    brokers: dict[int, LiveKafka]

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the number of the broker that leads a partition now; None if none does."""
        try:
            seen = self.admin.list_topics(topic, timeout=2)
        except KafkaException:  # the broker that was asked has just been killed
            return None
        found = int(seen.topics[topic].partitions[partition].leader)
        return found if found in self.brokers else None


@contextmanager
def live_kafka(
    folder: Path, more: str = "", settings: Mapping[str, str] | None = None
) -> Iterator[LiveKafka]:
    """Runs a broker until the end of the `with` block; KafkaMissingError without its jars.

    `more` are lines of server.properties, and `settings` those of its clients.
    """
    _look_for_jars()
    for attempt in range(1, ATTEMPTS + 1):
        running = _start(folder / f"kafka-{attempt}", more, settings or {})
        try:
            # Another process may have taken a port meanwhile; then it is tried with others.
            if _wait_ready(running) or attempt == ATTEMPTS:
                yield running
                return
        finally:
            running.kill()


@contextmanager
def live_kafka_cluster(folder: Path) -> Iterator[LiveKafkaCluster]:
    """Runs three brokers until the end of the `with` block; KafkaMissingError without the jars.

    Topics with three replicas are written at two of them before a publication is acknowledged.
    """
    _look_for_jars()
    names = range(1, 4)
    ports = iter(free_ports(2 * len(names)))
    given = {name: (next(ports), next(ports)) for name in names}
    voters = ",".join(f"{name}@127.0.0.1:{given[name][1]}" for name in names)
    brokers: dict[int, LiveKafka] = {}
    cluster = _identifier()
    try:
        for name, (broker, controller) in given.items():
            more = (
                f"node.id={name}\ncontroller.quorum.voters={voters}\n"
                "default.replication.factor=3\nmin.insync.replicas=2\n"
                "transaction.state.log.replication.factor=3\n"
                "transaction.state.log.min.isr=2\nreplica.lag.time.max.ms=3000\n"
            )
            at = folder / f"broker-{name}"
            _format(at, (broker, controller), cluster, more, "controller.quorum.bootstrap")
            brokers[name] = LiveKafka(f"127.0.0.1:{broker}", _launch(at), at)
        running = LiveKafkaCluster(",".join(one.servers for one in brokers.values()), brokers)
        for one in brokers.values():
            assert _wait_ready(one, len(names))
        yield running
    finally:
        for one in brokers.values():
            one.kill()


def _look_for_jars() -> None:
    if not list((JARS / "broker").glob("kafka_*.jar")):
        raise KafkaMissingError("no jars of a Kafka broker in build/jvm: run `make jars`")


def _start(folder: Path, more: str, settings: Mapping[str, str]) -> LiveKafka:
    broker, controller = free_ports(2)
    _format(folder, (broker, controller), _identifier(), more)
    return LiveKafka(f"127.0.0.1:{broker}", _launch(folder), folder, settings=settings)


def _identifier() -> str:
    # An identifier must not begin with a dash.
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def _format(
    folder: Path, ports: tuple[int, int], cluster: str, more: str, without: str = ""
) -> None:
    """Make the folder of a broker; lines of the properties `without` are left out."""
    folder.mkdir()
    text = (JVM / "server.properties").read_text(encoding="utf-8")
    if without:
        text = "\n".join(line for line in text.splitlines() if not line.startswith(without))
    filled = _filled(f"{text}\n{more}", {"@BROKER@": ports[0], "@CONTROLLER@": ports[1]})
    (folder / "server.properties").write_text(filled, encoding="utf-8")
    alone = [] if without else ["--standalone"]
    formatting = ["format", "-t", cluster, *alone, "-c", "server.properties"]
    with (folder / "kafka.log").open("ab") as log:
        subprocess.run(
            [*_program(), "kafka.tools.StorageTool", *formatting],
            cwd=folder,
            stdout=log,
            stderr=log,
            timeout=START_TIMEOUT_S,
            check=True,
        )


def java() -> str:
    """Return the program that runs Java."""
    home = os.environ.get("JAVA_HOME")
    return "java" if home is None else str(Path(home) / "bin" / "java")


def _program() -> list[str]:
    return [java(), *QUICK_JVM, "-Xmx256m", "-cp", f"{JARS}/broker/*"]


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


def _wait_ready(broker: LiveKafka, brokers: int = 1) -> bool:
    """Wait until so many brokers are known; False if the broker ended instead."""
    deadline = time.monotonic() + START_TIMEOUT_S
    admin = AdminClient({"bootstrap.servers": broker.servers, **broker.settings}, logger=SILENT)
    while broker.process.poll() is None:
        try:
            if len(admin.list_topics(timeout=1).brokers) >= brokers:
                return True
        except KafkaException:
            pass
        assert time.monotonic() < deadline, f"no answer from Kafka, see {broker.folder}/kafka.log"
    return False
