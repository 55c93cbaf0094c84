"""The time from a record in Kafka to the one that a stateless rule makes of it.

The rule runs in Spark's real-time mode. Needs a broker that is running; topics of this
measurement's own are created and deleted.
"""

import logging
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from attrs import define
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mdserver.bench import processes
from mdserver.bench.derive import CARS, FIRST_TIMEOUT_S, LAST_TIMEOUT_S, RULES, Course, DeriveLoad
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Row
from mdserver.core.message import Entry, Publication
from mdserver.journal.rows import message_row

SILENT = logging.getLogger("librdkafka")
CALL_TIMEOUT_S = 30.0
POLL_S = 0.05


@define
class StoppedCourse(Course):
    """A course whose receiver is a thread, which ends when it is `over`."""

    over: bool = False


def measure(load: DeriveLoad, servers: str, progress: Callable[[str], None]) -> Row:
    """Return one row; raise BenchError if the job does not start or ends early."""
    name = f"bench-{secrets.token_hex(4)}"
    source, target = f"{name}.messages", f"{name}.derived"
    SILENT.setLevel(logging.CRITICAL)
    admin = AdminClient({"bootstrap.servers": servers}, logger=SILENT)
    topics = [source, target, f"{target}.quarantine"]
    for made in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
        made.result(CALL_TIMEOUT_S)
    try:
        with tempfile.TemporaryDirectory(prefix="mdserver-derive-") as folder:
            (Path(folder) / "rules.yaml").write_text(RULES, encoding="utf-8")
            job = [sys.executable, "-m", "mdserver.cli.main", "pipeline", "derive"]
            job += ["--rules", f"{folder}/rules.yaml", "--tables", f"{folder}/tables"]
            job += ["--kafka", servers, "--topics", source, "--real-time", target]
            with processes.started(job, on=set(processes.ALLOWED)):
                course = _run(load, servers, source, target, progress)
    finally:
        for gone in admin.delete_topics(topics).values():
            gone.result(CALL_TIMEOUT_S)
    return course.row(load, "real-time, ")


def _run(
    load: DeriveLoad, servers: str, source: str, target: str, progress: Callable[[str], None]
) -> Course:
    course = StoppedCourse()
    receiving = threading.Thread(target=_receive, args=(servers, target, course), daemon=True)
    receiving.start()
    settings = {"bootstrap.servers": servers, "acks": "all", "linger.ms": 0}
    producer = Producer(settings, logger=SILENT)
    try:
        progress("waiting for Spark")
        _produce(producer, source, course, 1, speaks=True)
        _wait(course, FIRST_TIMEOUT_S)
        if not course.came:
            raise BenchError(f"the job derived nothing within {FIRST_TIMEOUT_S:g} s")
        progress(f"warming up for {load.warm_up:g} s")
        number = _produce_all(producer, source, load, course, 2, load.warm_up)
        course.measured_from = number
        progress(f"{load.rate:,} records a second for {load.seconds:g} s")
        _produce_all(producer, source, load, course, number, load.seconds)
        producer.flush(CALL_TIMEOUT_S)
        _wait(course, LAST_TIMEOUT_S)
    finally:
        course.over = True
        receiving.join()
    return course


def _wait(course: Course, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while len(course.came) < len(course.published) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _produce(producer: Producer, topic: str, course: Course, number: int, *, speaks: bool) -> None:
    content = str(number if speaks else -number)
    subject = f"/vehicles/car{number % CARS}/speed"
    now = time.time_ns()
    publication = Publication(subject, content.encode(), time=now)
    line = msgspec.json.encode(message_row(Entry(1, number, publication), 0, "bench", "bench", now))
    if speaks:
        course.published[number] = time.perf_counter()
    producer.produce(topic, line, subject.encode())
    producer.poll(0)


def _produce_all(
    producer: Producer, topic: str, load: DeriveLoad, course: Course, number: int, seconds: float
) -> int:
    """Produce at the rate for this long; return the next number."""
    begun, first = time.perf_counter(), number
    while number < first + load.rate * seconds:
        time.sleep(max(0.0, begun + (number - first) / load.rate - time.perf_counter()))
        _produce(producer, topic, course, number, speaks=number % load.every == 0)
        number += 1
    return number


def _receive(servers: str, topic: str, course: StoppedCourse) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
        },
        logger=SILENT,
    )
    consumer.subscribe([topic])
    while not course.over:
        record = consumer.poll(POLL_S)
        now = time.perf_counter()
        if record is None or record.error() is not None:
            continue
        course.arrived(int(record.value() or b"0"), now)
    consumer.close()
