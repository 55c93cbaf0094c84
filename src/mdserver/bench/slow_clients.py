"""Subscribers that never read, and for which messages wait in the server.

The kernel takes megabytes for a connection that nobody reads, so a server would notice nothing for
minutes. Before the measurement these clients are sent ballast, until the queues of both ends are
full and some of it waits in the server. How full they are is in /proc/net/tcp (proc(5)), so this
is known for servers on this computer.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import frozen

from mdserver.bench.connections import Connections
from mdserver.bench.encodings import Encoding
from mdserver.bench.pipelining import Pipeline, publish_all, publisher
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies
from mdserver.bench.target import ServersUnderTest, own_subject
from mdserver.bench.verify import Verifier
from mdserver.core.commands import Publish, Subscribe
from mdserver.limits import KB, MB

_RECEIVE_BYTES = 4 * KB
_BALLAST = "x" * (16 * KB)
_PART = 4  # messages of ballast between two looks at the queues
_BALLAST_BYTES_MAX = 16 * MB  # more than the kernel takes for both ends
_ELSEWHERE_BYTES = (
    512 * KB
)  # to servers on other computers: less than the default of BufferLimit.Send
_WAITING_BYTES_LEAST = 64 * KB
_LOOK_EVERY_S = 0.05
_LOOKS_MAX = 100


@frozen
class SlowClients:
    """The clients; `sent` is how many bytes of ballast each was to get."""

    connections: Connections
    local: bool
    sent: int

    def waiting(self) -> list[int] | None:
        """Return how many bytes wait in the server for each that is connected, at least.

        None for servers on other computers, of which that is not known.
        """
        if not self.local:
            return None
        queued = _queued()
        ports = (each.socket.getsockname()[1] for each in self.connections)
        return [self.sent - queued[port] for port in ports if port in queued]


@contextmanager
def slow_clients(
    target: ServersUnderTest, encoding: Encoding, count: int, subjects: Sequence[str]
) -> Iterator[SlowClients]:
    """Subscribe so many clients to these subjects and have something wait for each of them.

    Raises BenchError if nothing does.
    """
    ballast = own_subject()
    with ExitStack() as stack:
        never = stack.enter_context(
            Connections(
                target.addresses,
                encoding.client,
                Verifier(0),
                target.running.context(),
                receive_bytes=_RECEIVE_BYTES,
            )
        )
        wanted = [Subscribe(subjects=[*subjects, ballast])]
        never.open(count, target.opening(encoding, wanted))
        sender = publisher(stack, target, encoding)
        local = all(address.loopback for address in target.addresses)
        sent = 0
        while True:
            first = 1 + sent // len(_BALLAST)
            part = [Publish(subject=ballast, content=_BALLAST, id=first + n) for n in range(_PART)]
            publish_all([Pipeline(sender, part, _PART, _PART)], Latencies())
            sent += _PART * len(_BALLAST)
            clients = SlowClients(never, local, sent)
            waiting = _settled(clients)
            if sent >= _ELSEWHERE_BYTES if waiting is None else _enough(waiting):
                break
            if sent >= _BALLAST_BYTES_MAX:
                raise BenchError(f"nothing waits for clients that read nothing of {sent:,} bytes")
        yield clients


def _settled(clients: SlowClients) -> list[int] | None:
    """Return what waits when nothing moves any more: a result may come before the deliveries."""
    waiting = clients.waiting()
    for _ in range(_LOOKS_MAX):
        time.sleep(_LOOK_EVERY_S)
        before, waiting = waiting, clients.waiting()
        if waiting == before:
            break
    return waiting


def _enough(waiting: Sequence[int]) -> bool:
    """Whether something waits for each that the server has not cut off."""
    return all(each >= _WAITING_BYTES_LEAST for each in waiting)


def _queued() -> dict[int, int]:
    """Return for each client's port on loopback how many bytes the queues of both ends have.

    Each connection has two lines, one for each end. Those that the server has closed are left out.
    """
    established = "01"
    queues: dict[tuple[str, str], tuple[int, int]] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == established:
            sending, receiving = (int(part, 16) for part in fields[4].split(":"))
            queues[fields[1], fields[2]] = sending, receiving
    return {
        int(near.partition(":")[2], 16): receiving + queues[far, near][0]
        for (near, far), (_, receiving) in queues.items()
        if (far, near) in queues
    }
