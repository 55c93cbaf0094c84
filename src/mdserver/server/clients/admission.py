"""Counts connections, and bounds them: in all, of each address, by the limit of open files."""

import resource

import trio

DESCRIPTORS_KEPT_BACK = 128


class Admission:
    """Counts the connections, in all and of each address."""

    def __init__(self, connections_max: int, connections_per_address_max: int) -> None:
        self._connections_max = connections_max
        self._per_address_max = connections_per_address_max
        self._of_address: dict[str, int] = {}
        self._empty: trio.Event | None = None
        self.total = 0
        self.entered = 0

    def enter(self, address: str | None) -> str | None:
        """Count a connection; the reason where there may be no more.

        Without an address it is that of a proxy, and counts for one with `move`.
        """
        if self.total >= self._connections_max:
            return f"There are {self.total} connections, which is all that is allowed."
        if address is not None and (refusal := self._take(address)) is not None:
            return refusal
        self.total += 1
        self.entered += 1
        return None

    def move(self, old: str | None, new: str) -> str | None:
        """Count a connection for another address; the reason if that one may have no more."""
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
        """Count a connection that had entered no more: it has ended."""
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
    """Return how many connections the process can have: its limit of open files, raised.

    Some descriptors are kept back for listeners, logs, files and the links to other members.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (soft, resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return max(soft - DESCRIPTORS_KEPT_BACK, 1)


def lowered(connections_max: int) -> int | None:
    """Return how many connections there can be if the limit of open files allows fewer."""
    possible = descriptors_for_connections()
    return possible if possible < connections_max else None
