"""Detects a server that hangs: its connections stay open, but nothing comes through them.

A server that has been silent for `CLIENT_SILENCE_S` is sent a ping. If nothing comes within
`CLIENT_PONG_S` after the ping, the connection is given up. Anything counts as an answer, also a
part of a message: a large one takes long on a slow link, and the pong comes after it. Both times
are shortened at random, so that many clients of one server do not ping at the same moment, and
neither exceeds the keep-alive interval of the session.

    from        what `look` finds                                   to
    listening   something came lately                               listening; look again later
    listening   the server was silent for too long (SILENT)         asked: a ping is sent
    asked       something came since the ping                       listening
    asked       nothing came, and the timer is on time (LOST)       the connection is given up
    asked       nothing came, but the timer is late (SILENT)        asked: another ping is sent
"""

import enum
import random

from mdserver.limits import CLIENT_LATE_S, CLIENT_PONG_S, CLIENT_SILENCE_S, NS_PER_MS, NS_PER_S


class ServerLook(enum.Enum):
    """The state of the server, as `Liveness.look` found it."""

    ALIVE = "alive"
    SILENT = "silent"
    LOST = "lost"


class Liveness:
    """The signs of life of one server. All times are in nanoseconds.

    `next_look` is the time at which `look` has to be called next.
    """

    def __init__(self, rng: random.Random) -> None:
        self.next_look = 0
        self._rng = rng
        self._keepalive = 0
        self._heard = 0  # when the last message of the transport came
        self._asked: int | None = None  # when the ping was sent whose pong is awaited
        self._silence = 0  # how long the server may be silent before it is pinged

    def heard(self, now: int) -> None:
        """Note that the server sent something."""
        self._heard = now

    def start(self, keepalive_ms: int, now: int) -> None:
        """Begin with a session that has this keep-alive interval."""
        self._keepalive = keepalive_ms * NS_PER_MS
        self._asked = None
        self._look_again(now)

    def look(self, now: int) -> ServerLook:
        """Return the state of the server.

        After SILENT the caller sends a ping and calls `pinged`. After LOST it closes the
        connection.
        """
        late = now - self.next_look > CLIENT_LATE_S * NS_PER_S
        if self._asked is not None and self._heard > self._asked:
            self._asked = None
        if self._asked is not None and not late:
            return ServerLook.LOST
        # If the timer itself is late, this process was stopped or overloaded, and may not have read
        # an answer that has arrived. So ask again before giving the server up.
        if self._asked is not None or now - self._heard >= self._silence:
            return ServerLook.SILENT
        self._look_again(now)
        return ServerLook.ALIVE

    def pinged(self, now: int) -> None:
        """Wait for an answer to the ping that was just sent."""
        self._asked = now
        self.next_look = now + self._shortened(CLIENT_PONG_S)

    def _look_again(self, now: int) -> None:
        """Schedule the next look for the time at which the silence would be too long."""
        self._silence = self._shortened(CLIENT_SILENCE_S)
        self.next_look = max(now, self._heard + self._silence)

    def _shortened(self, longest_s: float) -> int:
        """Return a random time, at most the shorter of `longest_s` and the keep-alive interval."""
        return int(min(longest_s * NS_PER_S, self._keepalive) * self._rng.uniform(0.75, 1))
