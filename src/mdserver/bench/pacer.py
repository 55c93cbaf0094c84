"""A publisher that keeps to a timetable, whatever the server does (an open loop)."""

import select
import zlib
from collections import deque
from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from mdserver.bench.connections import LoadConnection
from mdserver.bench.opening import sent
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies
from mdserver.bench.stamps import now_ns, stamped
from mdserver.bench.verify import Verifier
from mdserver.core.commands import Publish
from mdserver.core.events import Status, StatusName
from mdserver.limits import KB, NS_PER_S

TEND_EVERY_S = 0.05
RESULT_TIMEOUT_S = 30.0
RETRY_AFTER_S = 0.05
_BATCH = 200  # publications that are encoded before results are read again
_READ_BYTES = 256 * KB


@frozen
class Timetable:
    """When each publication is to be sent: `burst` together, `rate` a second on average."""

    start_ns: int
    rate: float
    burst: int
    seconds: float

    @property
    def count(self) -> int:
        """How many publications there are."""
        return max(1, int(self.rate * self.seconds / self.burst)) * self.burst

    def at_ns(self, number: int) -> int:
        """Return when publication `number`, counted from 0, is to be sent."""
        return self.start_ns + int(number // self.burst * self.burst * NS_PER_S / self.rate)

    def due(self, now: int) -> int:
        """Return how many publications are to be sent by now."""
        if now < self.start_ns:
            return 0
        bursts = int((now - self.start_ns) * self.rate / (self.burst * NS_PER_S)) + 1
        return min(self.count, bursts * self.burst)


@define
class _Lane:
    """The publications to one subject group that have no result, in the order of their numbers."""

    number: int = 0
    waiting: deque[tuple[int, Publish]] = field(factory=deque)
    again_at_ns: int | None = None


class Pacer:
    """Publishes to the subjects in turn; `published` counts the publications to each.

    With `exact` publications have numbers, and those that fail are sent again: for clusters whose
    members end during the measurement. The connection must have named a publisher for that.
    """

    def __init__(
        self,
        connection: LoadConnection,
        subjects: Sequence[str],
        content_bytes: int,
        exact: bool = False,
    ) -> None:
        self.results = Latencies()
        self.failed = 0
        self._connection = connection
        self.subjects = subjects
        self._content_bytes = content_bytes
        self._count = 0
        self._first = 0  # of this timetable
        self._intended: dict[int, int] = {}  # of publications without a result, by their id
        self._unsent = b""
        self._exact = exact
        said = connection.stream.connected
        groups = said.groups if said is not None else 1
        self._group_of = [zlib.crc32(subject.encode()) % groups for subject in subjects]
        self._lanes: dict[int, _Lane] = {group: _Lane() for group in self._group_of}
        self._lane_of_id: dict[int, _Lane] = {}

    @property
    def published(self) -> tuple[int, ...]:
        """How many publications each subject got."""
        whole, more = divmod(self._count, len(self.subjects))
        return tuple(whole + (at < more) for at in range(len(self.subjects)))

    @property
    def waiting(self) -> int:
        """How many publications have no result."""
        return len(self._intended)

    def run(self, timetable: Timetable, tend: Callable[[int], bool]) -> None:
        """Publish by the timetable, then wait for all results.

        `tend` is called about every 50 ms with the time, and returns whether to end before the
        timetable does. Raises BenchError if a publication is refused, or gets no result for 30 s.
        """
        tend_at_ns = 0
        heard_ns = now_ns()
        self._first = self._count
        count = self._count + timetable.count
        while self._count < count or self._intended:
            now = now_ns()
            if now >= tend_at_ns:
                if tend(now):
                    count = self._count
                tend_at_ns = now + int(TEND_EVERY_S * NS_PER_S)
            due = min(count, self._first + timetable.due(now))
            if self._flush() and self._count < due:
                self._publish(timetable, min(due, self._count + _BATCH))
            self._repeat(now)
            next_ns = tend_at_ns
            if self._count < count:
                next_ns = timetable.at_ns(self._count - self._first)
            known = self.results.count
            heard = self._receive(min(next_ns, tend_at_ns))
            # When all is published only results count, since failures are repeated without end.
            got = heard and (self._count < count or self.results.count > known)
            if got or not self._intended:
                heard_ns = now_ns()
            elif now_ns() - heard_ns > RESULT_TIMEOUT_S * NS_PER_S:
                raise BenchError(f"a publication got no result within {RESULT_TIMEOUT_S:g} s")

    def listen(self, until_ns: int) -> None:
        """Publish nothing until this time, but answer the server's pings.

        Raises BenchError or RemoteProtocolError if the connection ends.
        """
        while now_ns() < until_ns:
            self._receive(until_ns)

    def _publish(self, timetable: Timetable, until: int) -> None:
        commands = []
        for number in range(self._count, until):
            index = number % len(self.subjects)
            intended_ns = timetable.at_ns(number - self._first)
            lane = self._lanes[self._group_of[index]]
            lane.number += 1
            command = Publish(
                subject=self.subjects[index],
                content=stamped(1 + number // len(self.subjects), intended_ns, self._content_bytes),
                id=number,
                number=lane.number if self._exact else None,
            )
            self._intended[number] = intended_ns
            if self._exact:
                lane.waiting.append((number, command))
                self._lane_of_id[number] = lane
                if lane.again_at_ns is not None:
                    continue  # it goes with those before it
            commands.append(command)
        self._count = until
        if commands:
            self._unsent += sent(self._connection.stream.codec, commands, join=False)
            self._flush()

    def _repeat(self, now: int) -> None:
        """Send what failed, and all that comes after it in its group, again."""
        if not self._exact:
            return
        for lane in self._lanes.values():
            if lane.again_at_ns is not None and lane.again_at_ns <= now:
                lane.again_at_ns = None
                commands = [command for _, command in lane.waiting]
                if commands:
                    codec = self._connection.stream.codec
                    self._unsent += sent(codec, commands, join=False)

    def _flush(self) -> bool:
        """Send what the socket takes; return whether that was everything."""
        if self._unsent:
            try:
                self._unsent = self._unsent[self._connection.socket.send(self._unsent) :]
            except BlockingIOError:
                return False
            except ConnectionError as error:
                raise BenchError(f"the publisher's connection ended: {error}") from error
        return not self._unsent

    def _receive(self, until_ns: int) -> bool:
        """Wait for results until this time; return whether there were any."""
        connection = self._connection
        fd = connection.socket.fileno()
        timeout_s = max(0.0, (until_ns - now_ns()) / NS_PER_S)
        # select, because it waits for fractions of a millisecond, unlike poll.
        readable, _, _ = select.select([fd], [fd] if self._unsent else [], [], timeout_s)
        if not readable:
            return False
        try:
            received = connection.socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionError as error:
            raise BenchError(f"the publisher's connection ended: {error}") from error
        if not received:
            raise BenchError("the server disconnected the publisher")
        stream = connection.stream
        Verifier(0).received(stream, received)
        now = now_ns()
        for event in stream.others:
            if isinstance(event, Status):
                self._result(event, now)
            else:
                raise BenchError(f"a publication was answered {event}")
        stream.others.clear()
        return True

    def _result(self, event: Status, now: int) -> None:
        assert isinstance(event.id, int)
        if event.status is StatusName.PUBLISH_OK:
            intended_ns = self._intended.pop(event.id, None)
            if intended_ns is None:
                return  # it was sent twice, and this is the second result
            self.results.add(now - intended_ns, 1)
            lane = self._lane_of_id.pop(event.id, None)
            if lane is not None:
                lane.waiting = deque(each for each in lane.waiting if each[0] != event.id)
        elif event.status is StatusName.PUBLISH_FAILED and self._exact:
            self.failed += 1
            lane = self._lane_of_id.get(event.id)
            if lane is not None and lane.again_at_ns is None:
                lane.again_at_ns = now + int(RETRY_AFTER_S * NS_PER_S)
        else:
            raise BenchError(f"a publication was answered {event.status.value}: {event.reason}")
