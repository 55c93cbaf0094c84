"""Bounds connections: in total, per address, by the limit of open files, and new ones a second."""

import resource

import trio

from mdserver.limits import CONNECTS_SAVED_NS, NS_PER_S
from mdserver.server.clients.rates import Rate

DESCRIPTORS_KEPT_BACK = 128


class Admission:
    """The number of connections, in total and of each address, with their limits.

    `total` is how many are open now, `entered` how many were let in since the start.
    """

    def __init__(
        self, connections_max: int, connections_per_address_max: int, connects_per_s: int = 0
    ) -> None:
        self._connections_max = connections_max
        self._per_address_max = connections_per_address_max
        self._rate = Rate(connects_per_s, CONNECTS_SAVED_NS)
        self._of_address: dict[str, int] = {}
        self._empty: trio.Event | None = None
        self.total = 0
        self.entered = 0

    def delay_s(self, now: int) -> float:
        """Return how many seconds from `now` (ns) on the next connection has to wait."""
        return (self._rate.paid_until - now) / NS_PER_S if self._rate.paid_until else 0.0

    def pace(self, now: int) -> None:
        """Take a connection that was let in at `now` (ns) for the rate."""
        self._rate.take(1, now)

    def enter(self, address: str | None) -> str | None:
        """Count a new connection and return None, or return the reason why it is refused.

        `address` is None for a connection of a proxy: it counts only in total until `move` gives it
        the address of a client.
        """
        if self.total >= self._connections_max:
            return f"There are {self.total} connections, which is all that is allowed."
        if address is not None and (refusal := self._take(address)) is not None:
            return refusal
        self.total += 1
        self.entered += 1
        return None

    def move(self, old: str | None, new: str) -> str | None:
        """Count a connection for another address, or return the reason why that is refused."""
        if old == new:
            return None
        refusal = self._take(new)
        if refusal is None and old is not None:
            self._give_back(old)
        return refusal

    def _take(self, address: str) -> str | None:
        here = self._of_address.get(address, 0)
        if here >= self._per_address_max:
            return f"There are {here} connections of your address, which is all that is allowed."
        self._of_address[address] = here + 1
        return None

    def _give_back(self, address: str) -> None:
        rest = self._of_address[address] - 1
        if rest:
            self._of_address[address] = rest
        else:
            del self._of_address[address]

    def leave(self, address: str | None) -> None:
        """Remove a connection that had entered from the counts: it has ended."""
        self.total -= 1
        if address is not None:
            self._give_back(address)
        if not self.total and self._empty is not None:
            self._empty.set()

    async def emptied(self) -> None:
        """Wait until there is no connection."""
        if self.total:
            self._empty = trio.Event()
            await self._empty.wait()


def descriptors_for_connections() -> int:
    """Raise the limit of open files as far as allowed; return how many connections that permits.

    Some descriptors are kept back for listeners, logs, files and the links to other members.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (soft, resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return max(soft - DESCRIPTORS_KEPT_BACK, 1)


def lowered(connections_max: int, processes: int = 1) -> int | None:
    """Return how many connections the limit of open files permits, None if it permits enough.

    The limit is that of each process; `processes` share the connections.
    """
    possible = processes * descriptors_for_connections()
    return possible if possible < connections_max else None
