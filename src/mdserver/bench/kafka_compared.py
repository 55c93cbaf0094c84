"""One member whose log is Kafka, and a server with a consumer for each connection, in turns.

Each has its connections, then a producer appends records at a rate, and each connection is to get
all of them. Both are read by the same client. Needs a broker that runs, and the library
`websockets`; topics of the measurement's own are created and deleted.
"""

import asyncio
import contextlib
import http.client
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from attrs import Factory, define, frozen
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from websockets.asyncio.client import ClientConnection, connect

from mdserver.bench import processes
from mdserver.bench.encodings import Encoding
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies, Row

CALL_TIMEOUT_S = 30.0
OPEN_TIMEOUT_S = 120.0
LAST_TIMEOUT_S = 20.0
SETTLE_S = 2.0
OPENING_AT_ONCE = 20
POLL_S = 0.05
PARTITIONS = 4
SUBJECTS = 100
ESTABLISHED = "01"


@frozen
class KafkaLoad:
    """`rate` records a second of `content_bytes`, for each of these numbers of connections."""

    encoding: Encoding
    kafka: str
    connections: Sequence[int] = (10, 50, 200)
    rate: float = 100.0
    seconds: float = 10.0
    content_bytes: int = 128
    settings: Sequence[str] = ()
    broker_pid: int | None = None


@define
class RecordsTaken:
    """What all connections got: how many records, and how long after they were produced.

    `count` has each record once for each connection; `repeated` has what came again.
    """

    count: int = 0
    repeated: int = 0
    latencies: Latencies = Factory(Latencies)

    def take(self, value: str, seen: set[int]) -> None:
        """Take the value of a record: its number and the time at which it was produced (ns).

        `seen` has the numbers that the connection got before.
        """
        text, produced, _ = value.split(" ", 2)
        number = int(text)
        if number in seen:
            self.repeated += 1
        elif number:
            seen.add(number)
            self.count += 1
            self.latencies.add(time.perf_counter_ns() - int(produced), 1)


def measure(load: KafkaLoad, progress: Callable[[str], None]) -> list[Row]:
    """Return two rows for each number of connections; raise BenchError if a server ends early."""
    sides = (("one member", _member, _subscribed), ("a consumer each", _consumers, _greeted))
    rows = []
    with processes.running_on(processes.cores()[1]):
        for count in load.connections:
            for name, server, greeting in sides:
                progress(f"{count} connections, {name}")
                with _topic(load.kafka) as topic, server(load, topic) as (process, port):
                    row = asyncio.run(_run(load, topic, count, process.pid, port, greeting))
                row.mode = f"{name}, {row.mode}"
                rows.append(row)
    return rows


@contextlib.contextmanager
def _topic(servers: str) -> Iterator[str]:
    """Create a topic that is empty, and delete it at the end of the block."""
    admin = AdminClient({"bootstrap.servers": servers})
    name = f"bench-{secrets.token_hex(4)}"
    for made in admin.create_topics([NewTopic(name, PARTITIONS)]).values():
        made.result(CALL_TIMEOUT_S)
    try:
        yield name
    finally:
        for gone in admin.delete_topics([name]).values():
            gone.result(CALL_TIMEOUT_S)


@contextlib.contextmanager
def _member(load: KafkaLoad, topic: str) -> Iterator[tuple[Any, int]]:
    with tempfile.TemporaryDirectory(prefix="mdserver-kafka-") as name:
        folder = Path(name)
        (folder / "consumer.properties").write_text(
            f"bootstrap.servers={load.kafka}\ntopics={topic}\n", encoding="utf-8"
        )
        (folder / "producer.properties").write_text(
            f"bootstrap.servers={load.kafka}\n", encoding="utf-8"
        )
        settings = (
            "ClusterEngine=kafka",
            f"ClusterPassword={secrets.token_hex(16)}",
            f"Kafka.ConsumerProperties={folder}/consumer.properties",
            f"Kafka.ProducerProperties={folder}/producer.properties",
            *load.settings,
        )
        with processes.server(settings) as (process, port):
            _wait_until_ready(port)
            yield process, port


def _wait_until_ready(port: int) -> None:
    """Wait until a member has read its topics; before that it refuses clients."""
    deadline = time.monotonic() + OPEN_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", "/health/ready")
            if connection.getresponse().status == http.client.OK:
                return
        time.sleep(POLL_S)
    raise BenchError(f"the member was not ready within {OPEN_TIMEOUT_S:g} s")


@contextlib.contextmanager
def _consumers(load: KafkaLoad, topic: str) -> Iterator[tuple[Any, int]]:
    command = [sys.executable, "-m", "mdserver.bench.kafka_consumers", load.kafka, topic]
    with processes.started(command) as process:
        yield process, int(processes.line(process).removeprefix("ready "))


async def _subscribed(port: int, topic: str) -> ClientConnection:
    """Return a connection to a member that has subscribed to the whole topic."""
    socket = await connect(f"ws://127.0.0.1:{port}/ws", compression=None, max_size=None)
    await socket.send(msgspec.json.encode([{"op": "connect"}]).decode())
    await socket.send(
        msgspec.json.encode([{"op": "subscribe", "subjects": [f"/{topic}/*"]}]).decode()
    )
    return socket


async def _greeted(port: int, _: str) -> ClientConnection:
    """Return a connection to the server of consumers."""
    socket = await connect(f"ws://127.0.0.1:{port}/", compression=None, max_size=None)
    await socket.recv()
    return socket


async def _run(
    load: KafkaLoad,
    topic: str,
    count: int,
    pid: int,
    port: int,
    greeting: Callable[[int, str], Any],
) -> Row:
    """Measure one server with so many connections."""
    producer = Producer({"bootstrap.servers": load.kafka, "linger.ms": 0})
    before_kib = processes.resident_kib(pid)
    received = RecordsTaken()
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            sockets: list[ClientConnection] = []
            while len(sockets) < count:
                some = range(min(OPENING_AT_ONCE, count - len(sockets)))
                sockets += await asyncio.gather(*(greeting(port, topic) for _ in some))
            readers, ready = [], []
            for socket in sockets:
                first = asyncio.Event()
                ready.append(first)
                readers.append(asyncio.create_task(_read(socket, received, first)))
            # A consumer begins at the end that it finds: warming up goes on until each has records.
            while not all(each.is_set() for each in ready):
                _produce(producer, load, topic, 0)
                await asyncio.sleep(1 / load.rate)
            await asyncio.sleep(SETTLE_S)
    except TimeoutError:
        raise BenchError(f"{count} connections got nothing within {OPEN_TIMEOUT_S:g} s") from None
    cpu, broker_cpu, began = processes.cpu_s(pid), _cpu(load.broker_pid), time.perf_counter()
    numbers = range(1, int(load.rate * load.seconds) + 1)
    appending = threading.Thread(target=_append, args=(producer, load, topic, numbers))
    appending.start()
    await asyncio.to_thread(appending.join)
    wanted = len(numbers) * count
    deadline = time.perf_counter() + LAST_TIMEOUT_S
    # An event would be set by each delivery.
    while received.count < wanted and time.perf_counter() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    seconds = time.perf_counter() - began
    used = processes.cpu_s(pid) - cpu
    to_kafka = _connections_to(pid, load.kafka)
    mode = f"{to_kafka} connections to Kafka"
    if load.broker_pid is not None:
        mode += f", broker {100 * (_cpu(load.broker_pid) - broker_cpu) / seconds:.0f} %"
    resident_kib = processes.resident_kib(pid)
    row = Row(
        bench="kafka",
        mode=mode,
        encoding="json",  # whatever was asked for: the other server has nothing else
        connections=count,
        content_bytes=load.content_bytes,
        count=received.count,
        seconds=seconds,
        per_s=received.count / seconds,
        per_cpu_s=received.count / max(used, 0.01),
        intended_per_s=load.rate,
        resident_kib=resident_kib,
        kib_each=(resident_kib - before_kib) / count,
        lost=wanted - received.count,
        repeated=received.repeated,
    )
    received.latencies.fill(row)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*(socket.close() for socket in sockets), return_exceptions=True)
    return row


async def _read(socket: ClientConnection, received: RecordsTaken, first: asyncio.Event) -> None:
    """Take what comes: values of records, or messages of a member."""
    seen: set[int] = set()
    while True:
        text = await socket.recv(decode=True)
        if text[:1] not in "[{":
            first.set()
            received.take(text, seen)
            continue
        told = msgspec.json.decode(text)
        for each in told if isinstance(told, list) else [told]:
            if each.get("op") == "message":
                first.set()
                received.take(each["content"], seen)


def _append(producer: Producer, load: KafkaLoad, topic: str, numbers: range) -> None:
    """Produce records at the rate."""
    began = time.perf_counter()
    for number in numbers:
        time.sleep(max(0.0, began + number / load.rate - time.perf_counter()))
        _produce(producer, load, topic, number)
    producer.flush(CALL_TIMEOUT_S)


def _produce(producer: Producer, load: KafkaLoad, topic: str, number: int) -> None:
    value = f"{number} {time.perf_counter_ns()} ".ljust(load.content_bytes, ".")
    producer.produce(topic, value, f"key{number % SUBJECTS}")
    producer.poll(0)


def _cpu(pid: int | None) -> float:
    return 0.0 if pid is None else processes.cpu_s(pid)


def _connections_to(pid: int, servers: str) -> int:
    """Return how many connections a process has to the ports of these servers (proc(5))."""
    ports = {f"{int(each.rpartition(':')[2]):04X}" for each in servers.split(",")}
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(str(descriptor.readlink()))
    count = 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            to, state, inode = fields[2].rpartition(":")[2], fields[3], fields[9]
            count += to in ports and state == ESTABLISHED and f"socket:[{inode}]" in own
    return count
