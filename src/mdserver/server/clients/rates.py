"""Optional limits on the rate of commands and bytes, per session and per address.

A client that exceeds a rate is not disconnected. The server reads on only when the rate allows it,
so TCP slows the client down. Bursts of up to a second's worth pass. (The rate of new connections is
one of the whole server: see `Admission`.)

A rate is a virtual clock, as in the generic cell rate algorithm (ITU-T I.371): `paid_until` is the
time at which all that was taken is paid for. It is one number, however much was taken.
"""

from collections.abc import Callable
from weakref import WeakValueDictionary

import trio

from mdserver.limits import NS_PER_S, RATED_ADDRESSES_KEPT
from mdserver.server.settings import RateLimits

_PIECE_S = 1.0


class Rate:
    """One rate. `paid_until` (ns) is when all that was taken is paid for.

    What is not used of the last `saved` nanoseconds is saved up, so a burst is bounded.
    """

    __slots__ = ("_each", "_saved", "paid_until")

    def __init__(self, per_s: int, saved: int = NS_PER_S) -> None:
        self._each = NS_PER_S / per_s if per_s else 0.0
        self._saved = saved
        self.paid_until = 0

    def take(self, amount: int, now: int) -> int:
        """Take an amount at `now` (ns); return the time (ns) until which to take no more."""
        if not self._each:
            return 0
        self.paid_until = max(self.paid_until, now - self._saved) + int(amount * self._each)
        return self.paid_until


class Pair:
    """The rates of commands and bytes of one session, or of one address."""

    __slots__ = ("__weakref__", "bytes", "commands")

    def __init__(self, commands: int, bytes_: int) -> None:
        self.commands = Rate(commands)
        self.bytes = Rate(bytes_)

    def take(self, commands: int, bytes_: int, now: int) -> int:
        """Take amounts at `now` (ns); return the time (ns) until which to take no more."""
        return max(self.commands.take(commands, now), self.bytes.take(bytes_, now))

    def idle(self, now: int) -> bool:
        """Return whether a new object would give the same answers, so that this one can go."""
        return max(self.commands.paid_until, self.bytes.paid_until) <= now - NS_PER_S


class Rates:
    """The rates of all addresses. They outlive connections, so reconnecting does not reset them.

    `_used` has those of open connections: an address whose connections are idle is forgotten in
    `_addresses`, but its next connection shares its rates with them all the same.
    """

    def __init__(self, limits: RateLimits, clock: Callable[[], int]) -> None:
        self._limits = limits
        self._clock = clock
        self._addresses: dict[str, Pair] = {}
        self._used: WeakValueDictionary[str, Pair] = WeakValueDictionary()

    def of(self, address: str) -> "Meter | None":
        """Return the meter of a new connection from this address, None if there is no limit."""
        if not self._limits.any:
            return None
        known = self._addresses
        pair = known.get(address)
        if pair is None:
            if len(known) >= RATED_ADDRESSES_KEPT:
                now = self._clock()
                self._addresses = known = {
                    address: pair for address, pair in known.items() if not pair.idle(now)
                }
            limits = self._limits
            pair = self._used.get(address)
            if pair is None:
                pair = Pair(limits.commands_per_address, limits.bytes_per_address)
                self._used[address] = pair
            known[address] = pair
        own = Pair(self._limits.commands, self._limits.bytes)
        return Meter(own, pair, self._clock)


class Meter:
    """Measures one connection by its own rates and by those of its address."""

    __slots__ = ("_address", "_clock", "_own", "_until")

    def __init__(self, own: Pair, address: Pair, clock: Callable[[], int]) -> None:
        self._own = own
        self._address = address
        self._clock = clock
        self._until = 0

    def take(self, commands: int = 0, bytes_: int = 0) -> None:
        """Count received commands and bytes."""
        now = self._clock()
        self._until = max(
            self._until,
            self._own.take(commands, bytes_, now),
            self._address.take(commands, bytes_, now),
        )

    async def wait(self, heard: Callable[[], None]) -> None:
        """Wait until more may be read. `heard` is called meanwhile: the client is not silent."""
        while (left := self._until - self._clock()) > 0:
            await trio.sleep(min(left / NS_PER_S, _PIECE_S))
            heard()
