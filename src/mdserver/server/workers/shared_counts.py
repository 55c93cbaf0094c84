"""The connections of all workers, counted in memory that they share, without locks.

Each worker writes only its own row, and reads those of all. A limit holds all the same: a worker
counts a connection first, and then looks whether the sum is within the limit. If it is not, it
takes the count back and refuses the connection. Two workers that do this at the same time may both
refuse the last place, and never both take it. The server clears the row of a worker that ended.

There may be millions of addresses, so these are counted by hash: in `WORKER_ADDRESS_HASHES` buckets
each, the least of which counts. It may count connections of other addresses too, never fewer than
there are (a count-min sketch; Cormode and Muthukrishnan, 2005). The hashes have a random key, so
nobody can choose addresses that fall together.
"""

import hashlib
import mmap
import os

from mdserver.limits import WORKER_ADDRESS_BITS, WORKER_ADDRESS_HASHES
from mdserver.server.clients.admission import Admission

BUCKETS = 1 << WORKER_ADDRESS_BITS
ROW = 1 + WORKER_ADDRESS_HASHES * BUCKETS
"""The numbers of one worker: how many connections it has, then the buckets of each hash."""
NUMBER_BYTES = 4


class SharedCounts:
    """The rows of `slots` workers in the memory behind `descriptor`."""

    def __init__(self, descriptor: int, slots: int, key: bytes) -> None:
        self._memory = mmap.mmap(descriptor, slots * ROW * NUMBER_BYTES)
        self._numbers = memoryview(self._memory).cast("I")
        self._rows = range(0, slots * ROW, ROW)
        self._key = key

    def add(self, slot: int, change: int) -> int:
        """Change the number of connections of a worker; return that of all."""
        numbers = self._numbers
        numbers[slot * ROW] += change
        return sum([numbers[row] for row in self._rows])

    def add_address(self, slot: int, address: str, change: int) -> int:
        """Change the number of connections of an address at a worker; return that at all."""
        numbers, own = self._numbers, slot * ROW
        counts = []
        for place in self._places(address):
            numbers[own + place] += change
            counts.append(sum([numbers[row + place] for row in self._rows]))
        return min(counts)

    def _places(self, address: str) -> list[int]:
        """Return the place of an address in a row, for each hash."""
        digest = hashlib.blake2b(
            address.encode(), digest_size=4 * WORKER_ADDRESS_HASHES, key=self._key
        ).digest()
        return [
            1 + index * BUCKETS + int.from_bytes(digest[4 * index : 4 * index + 4], "big") % BUCKETS
            for index in range(WORKER_ADDRESS_HASHES)
        ]

    @property
    def total(self) -> int:
        """The number of connections at all workers."""
        return sum([self._numbers[row] for row in self._rows])

    def clear(self, slot: int) -> None:
        """Forget the connections of a worker, which has ended."""
        start = slot * ROW * NUMBER_BYTES
        self._memory[start : start + ROW * NUMBER_BYTES] = bytes(ROW * NUMBER_BYTES)

    def close(self) -> None:
        """Give the memory back."""
        self._numbers.release()
        self._memory.close()


def shared_memory(slots: int) -> int:
    """Return the descriptor of memory for the counts of that many workers, all of them 0."""
    descriptor = os.memfd_create("mdserver connections")
    os.ftruncate(descriptor, slots * ROW * NUMBER_BYTES)
    return descriptor


class SharedAdmission(Admission):
    """The admission of one worker, whose limits hold for all workers.

    `connections_max` is the limit of all; `connections_here_max` and `connects_here_per_s` are
    those of this process.
    """

    def __init__(
        self,
        counts: SharedCounts,
        slot: int,
        connections_max: int,
        connections_here_max: int,
        connections_per_address_max: int,
        connects_here_per_s: int = 0,
    ) -> None:
        super().__init__(connections_here_max, connections_per_address_max, connects_here_per_s)
        self._counts = counts
        self._slot = slot
        self._all_max = connections_max

    def enter(self, address: str | None) -> str | None:
        """Count a new connection and return None, or return the reason why it is refused."""
        everywhere = self._counts.add(self._slot, 1)
        if everywhere > self._all_max:
            self._counts.add(self._slot, -1)
            return f"There are {everywhere - 1} connections, which is all that is allowed."
        refusal = super().enter(address)
        if refusal is not None:
            self._counts.add(self._slot, -1)
        return refusal

    def leave(self, address: str | None) -> None:
        """Remove a connection that had entered from the counts: it has ended."""
        self._counts.add(self._slot, -1)
        super().leave(address)

    def _take(self, address: str) -> str | None:
        everywhere = self._counts.add_address(self._slot, address, 1)
        if everywhere > self._per_address_max:
            self._counts.add_address(self._slot, address, -1)
            return (
                f"There are {everywhere - 1} connections of your address, which is all that is "
                "allowed."
            )
        return super()._take(address)

    def _give_back(self, address: str) -> None:
        self._counts.add_address(self._slot, address, -1)
        super()._give_back(address)
