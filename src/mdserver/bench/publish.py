"""Publishing: one connection, many acknowledged publications on the way at once."""

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import islice

from attrs import frozen

from mdserver.bench import processes
from mdserver.bench.connections import Connection, Connections
from mdserver.bench.encodings import Encoding
from mdserver.bench.opening import WebSocketOpening, sent
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies, Row
from mdserver.bench.verify import Verifier, content
from mdserver.bench.wire import Upgrade
from mdserver.core.commands import Publish
from mdserver.core.events import Status, StatusName

SUBJECT = "/bench/publish"
ANSWER_TIMEOUT_S = 10.0
_READ_BYTES = 256 * 1024


@frozen
class Load:
    """What is measured: `count` publications, at most `window` of them without their result.

    `batch` publications go with one system call; each is a WebSocket message of its own in the
    first row, and all of them are one WebSocket message in the second.
    """

    encoding: Encoding
    content_bytes: int = 128
    count: int = 100_000
    window: int = 1000
    batch: int = 50
    settings: Sequence[str] = ()


def measure(load: Load, progress: Callable[[str], None]) -> list[Row]:
    """One row for a WebSocket message each, one for `batch` publications a message.

    BenchError if a publication is refused, or is not answered in order.
    """
    with processes.running_on(processes.cores()[1]):
        return [_measured(load, join, progress) for join in (False, True)]


def publisher(stack: ExitStack, port: int, encoding: Encoding) -> Connection:
    """A connection that publishes, open as long as the stack."""
    upgrade = Upgrade(f"127.0.0.1:{port}", encoding.subprotocol)
    connections = stack.enter_context(Connections(port, encoding.client, Verifier(0)))
    connections.open(1, WebSocketOpening(upgrade))
    (connection,) = connections
    return connection


def publish_all(
    connection: Connection, publications: Iterable[Publish], load: Load, join: bool
) -> Latencies:
    """Publish and wait for every result; `id` counts from 1.

    BenchError if one is refused or out of order, or none comes for 10 s.
    """
    pending = iter(publications)
    latencies = Latencies()
    under_way: deque[tuple[int, int]] = deque()  # the last id of each batch, and when it was sent
    answered = published = 0
    unsent = b""
    exhausted = False
    poll = select.poll()
    stream = connection.stream
    verifier = Verifier(0)
    while not exhausted or answered < published:
        while not unsent and not exhausted and published - answered <= load.window - load.batch:
            batch = list(islice(pending, load.batch))
            exhausted = len(batch) < load.batch
            if batch:
                published += len(batch)
                unsent = sent(stream.codec, batch, join)
                under_way.append((published, time.perf_counter_ns()))
                unsent = unsent[_send(connection, unsent) :]
        if answered == published:
            continue
        poll.register(connection.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
        events = poll.poll(ANSWER_TIMEOUT_S * 1000)
        if not events:
            raise BenchError(f"publication {answered + 1} got no result within 10 s")
        if events[0][1] & select.POLLOUT:
            unsent = unsent[_send(connection, unsent) :]
        if events[0][1] & ~select.POLLOUT:
            verifier.received(stream, connection.socket.recv(_READ_BYTES) or _gone())
            answered = _answers(connection, answered)
            now = time.perf_counter_ns()
            while under_way and under_way[0][0] <= answered:
                latencies.add(now - under_way.popleft()[1], load.batch)
    return latencies


def _measured(load: Load, join: bool, progress: Callable[[str], None]) -> Row:
    with processes.server(load.settings) as (process, port), ExitStack() as stack:
        connection = publisher(stack, port, load.encoding)
        mode = f"{load.batch} a WebSocket message" if join else "a WebSocket message each"
        progress(f"{load.count:,} publications, {mode}")
        publications = (
            Publish(subject=SUBJECT, content=content(number, load.content_bytes), id=number)
            for number in range(1, load.count + 1)
        )
        cpu_s = processes.cpu_s(process.pid)
        begun = time.perf_counter()
        latencies = publish_all(connection, publications, load, join)
        seconds = time.perf_counter() - begun
        cpu_s = processes.cpu_s(process.pid) - cpu_s
    row = Row(
        bench="publish",
        mode=mode,
        encoding=load.encoding.name,
        connections=1,
        content_bytes=load.content_bytes,
        count=load.count,
        seconds=seconds,
        per_s=load.count / seconds,
        per_cpu_s=load.count / cpu_s if cpu_s else None,
    )
    latencies.fill(row)
    return row


def _answers(connection: Connection, answered: int) -> int:
    """The newest id with a result, given the newest before these events."""
    for event in connection.stream.others:
        if not isinstance(event, Status) or event.status is not StatusName.PUBLISH_OK:
            raise BenchError(f"a publication was answered {event}")
        if event.id != answered + 1:
            raise BenchError(f"the result of {event.id} came where {answered + 1} was due")
        answered += 1
    connection.stream.others.clear()
    return answered


def _send(connection: Connection, payload: bytes) -> int:
    try:
        return connection.socket.send(payload)
    except BlockingIOError:
        return 0


def _gone() -> bytes:
    raise BenchError("the server disconnected the publisher")
