"""Publications that were produced and have no result yet, by ticket and by number.

A ticket names the record in the report of its delivery. A publication with a number is found by
that as well: when it is repeated while it waits, and when its record was read.

The producer keeps a record until it reports on it, which may be long after its publisher was
answered that nobody knows. So number and bytes are bounded of what has no report yet.
"""

from collections.abc import Iterator

import msgspec

from mdserver.cluster.kafka_progress import Partition
from mdserver.cluster.kafka_repeats import Line
from mdserver.core.proposal import Origin
from mdserver.limits import KAFKA_PENDING_BYTES_MAX, KAFKA_PENDING_MAX


class Waiting(msgspec.Struct, gc=False):
    """A publication without a result: who waits for it, since when, its size, and its number.

    Without a number `line` is None.
    """

    partition: Partition
    origins: list[Origin]
    since: int
    size: int
    line: Line | None
    number: int


class WaitingPublications:
    """All that wait, oldest first."""

    def __init__(self) -> None:
        self._next_ticket = 1
        self._waiting: dict[int, Waiting] = {}
        self._unreported: dict[int, int] = {}
        """Tickets of records that the producer keeps -> their sizes."""
        self._bytes = 0
        self._numbered: dict[tuple[Line, int], int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def full(self) -> str | None:
        """Return why no further publication may wait; None if one may."""
        if max(len(self._waiting), len(self._unreported)) >= KAFKA_PENDING_MAX:
            return "too many publications wait for Kafka here"
        if self._bytes >= KAFKA_PENDING_BYTES_MAX:
            return "too many bytes wait for Kafka here"
        return None

    @property
    def next_ticket(self) -> int:
        """Return the ticket that the next publication gets from `add`."""
        return self._next_ticket

    def add(self, waiting: Waiting) -> None:
        """Have a publication wait, under the next ticket."""
        ticket = self._next_ticket
        self._next_ticket += 1
        self._waiting[ticket] = waiting
        self._unreported[ticket] = waiting.size
        self._bytes += waiting.size
        if waiting.line is not None:
            self._numbered[waiting.line, waiting.number] = ticket

    def reported(self, ticket: int) -> None:
        """Note that the producer keeps the record of a ticket no longer."""
        self._bytes -= self._unreported.pop(ticket, 0)

    def find(self, ticket: int) -> Waiting | None:
        """Return the publication of a ticket, if it still waits."""
        return self._waiting.get(ticket)

    def of_number(self, line: Line, number: int) -> Waiting | None:
        """Return the publication with a number, if it waits here."""
        ticket = self._numbered.get((line, number))
        return None if ticket is None else self._waiting[ticket]

    def pop_number(self, line: Line, number: int) -> Waiting | None:
        """Remove the publication with a number, if it waits here, and return it."""
        ticket = self._numbered.get((line, number))
        return None if ticket is None else self.pop(ticket)

    def pop(self, ticket: int) -> Waiting:
        """Remove a publication that waits, and return it."""
        waiting = self._waiting.pop(ticket)
        if waiting.line is not None:
            del self._numbered[waiting.line, waiting.number]
        return waiting

    def overdue(self, before: int) -> Iterator[Waiting]:
        """Remove the publications that wait since a time or longer, and yield them."""
        while self._waiting:
            ticket, waiting = next(iter(self._waiting.items()))
            if waiting.since > before:
                return
            yield self.pop(ticket)

    def clear(self) -> list[Waiting]:
        """Remove all publications, and return them."""
        found = list(self._waiting.values())
        self._waiting.clear()
        self._numbered.clear()
        return found
