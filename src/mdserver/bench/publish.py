"""Publishing: one connection, many acknowledged publications on the way at once."""

import select
import time
from collections import Counter
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
from mdserver.core.commands import CommandId, Publish
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

    BenchError if a publication is refused.
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
    """Publish and wait for every result; each publication has an `id` of its own, a number.

    BenchError if one is refused or answered twice, or nothing comes for 10 s.
    """
    pending = iter(publications)
    latencies = Latencies()
    waiting: dict[CommandId, int] = {}  # id of a publication, and when it was sent
    unsent = b""
    exhausted = False
    poll = select.poll()
    while waiting or not exhausted:
        while not unsent and not exhausted and len(waiting) <= load.window - load.batch:
            batch = list(islice(pending, load.batch))
            exhausted = len(batch) < load.batch
            if batch:
                now = time.perf_counter_ns()
                waiting.update((publication.id, now) for publication in batch)
                unsent = sent(connection.stream.codec, batch, join)
                unsent = unsent[_send(connection, unsent) :]
        if not waiting:
            break
        poll.register(connection.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
        events = poll.poll(ANSWER_TIMEOUT_S * 1000)
        if not events:
            raise BenchError(f"{len(waiting)} publications got no result within 10 s")
        if events[0][1] & select.POLLOUT:
            unsent = unsent[_send(connection, unsent) :]
        if events[0][1] & ~select.POLLOUT:
            _take_results(connection, waiting, latencies)
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


def _take_results(
    connection: Connection, waiting: dict[CommandId, int], latencies: Latencies
) -> None:
    received = connection.socket.recv(_READ_BYTES)
    if not received:
        raise BenchError("the server disconnected the publisher")
    stream = connection.stream
    Verifier(0).received(stream, received)
    together: Counter[int] = Counter()
    for event in stream.others:
        if not isinstance(event, Status) or event.status is not StatusName.PUBLISH_OK:
            raise BenchError(f"a publication was answered {event}")
        since = waiting.pop(event.id, None)
        if since is None:
            raise BenchError(f"the result of publication {event.id} came twice or unasked")
        together[since] += 1
    stream.others.clear()
    now = time.perf_counter_ns()
    for since, count in together.items():
        latencies.add(now - since, count)


def _send(connection: Connection, payload: bytes) -> int:
    try:
        return connection.socket.send(payload)
    except BlockingIOError:
        return 0
