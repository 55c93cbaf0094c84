"""Publishing with many publications in flight, on one connection or several."""

import select
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import islice

from mdserver.bench.connections import Connections, LoadConnection
from mdserver.bench.encodings import Encoding
from mdserver.bench.opening import sent
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies
from mdserver.bench.target import ServersUnderTest
from mdserver.bench.verify import Verifier
from mdserver.core.commands import CommandId, Publish, WireCommand
from mdserver.core.events import Status, StatusName

ANSWER_TIMEOUT_S = 10.0
_READ_BYTES = 256 * 1024


class Pipeline:
    """One publisher: at most `window` publications without a result, `batch` in a system call.

    Each publication has an `id` of its own. With `join` a batch is one WebSocket message; without
    it each publication is one.
    """

    def __init__(
        self, connection: LoadConnection, publications: Iterable[Publish], window: int, batch: int
    ) -> None:
        self.connection = connection
        self.window = window
        self.batch = batch
        self.join = True
        self._pending = iter(publications)
        self._waiting: dict[CommandId, int] = {}  # when each one was sent
        self._unsent = b""
        self._exhausted = False

    @property
    def done(self) -> bool:
        """Whether every publication has its result."""
        return self._exhausted and not self._waiting

    @property
    def events(self) -> int:
        """The events to poll the socket for."""
        return select.POLLIN | (select.POLLOUT if self._unsent else 0)

    def send(self) -> None:
        """Send what the socket takes and the window allows."""
        while not self._blocked():
            if self._exhausted or len(self._waiting) > self.window - self.batch:
                return
            batch = list(islice(self._pending, self.batch))
            self._exhausted = len(batch) < self.batch
            if batch:
                now = time.perf_counter_ns()
                self._waiting.update((publication.id, now) for publication in batch)
                self._unsent = sent(self.connection.stream.codec, batch, self.join)

    def receive(self, latencies: Latencies) -> None:
        """Take results.

        Raises BenchError for a refusal, and for a result that came twice or unasked.
        """
        received = self.connection.socket.recv(_READ_BYTES)
        if not received:
            raise BenchError("the server disconnected the publisher")
        stream = self.connection.stream
        Verifier(0).received(stream, received)
        together: Counter[int] = Counter()
        for event in stream.others:
            if not isinstance(event, Status) or event.status is not StatusName.PUBLISH_OK:
                raise BenchError(f"a publication was answered {event}")
            since = self._waiting.pop(event.id, None)
            if since is None:
                raise BenchError(f"the result of publication {event.id} came twice or unasked")
            together[since] += 1
        stream.others.clear()
        now = time.perf_counter_ns()
        for since, count in together.items():
            latencies.add(now - since, count)

    def _blocked(self) -> bool:
        if self._unsent:
            try:
                self._unsent = self._unsent[self.connection.socket.send(self._unsent) :]
            except BlockingIOError:
                return True
        return bool(self._unsent)


def publisher(
    stack: ExitStack,
    target: ServersUnderTest,
    encoding: Encoding,
    commands: Sequence[WireCommand] = (),
) -> LoadConnection:
    """Open a connection to the first server that publishes; it is closed with the stack."""
    first = target.addresses[:1]
    connections = stack.enter_context(
        Connections(first, encoding.client, Verifier(0), target.running.context())
    )
    connections.open(1, target.opening(encoding, commands))
    (connection,) = connections
    return connection


def publish_all(pipelines: Sequence[Pipeline], latencies: Latencies) -> None:
    """Publish everything and wait for all results, whose latencies are added to `latencies`.

    Raises BenchError if a publication is refused or answered twice, or if nothing comes for 10 s.
    """
    poll = select.poll()
    of_fd = {pipeline.connection.socket.fileno(): pipeline for pipeline in pipelines}
    for pipeline in pipelines:
        pipeline.send()
    while waiting := {fd: pipeline for fd, pipeline in of_fd.items() if not pipeline.done}:
        for fd, pipeline in waiting.items():
            poll.register(fd, pipeline.events)
        events = poll.poll(ANSWER_TIMEOUT_S * 1000)
        if not events:
            raise BenchError("a publication got no result within 10 s")
        for fd, happened in events:
            if happened & ~select.POLLOUT:
                of_fd[fd].receive(latencies)
            of_fd[fd].send()
