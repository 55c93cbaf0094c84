"""When to reconnect, and when to notify the application of failures.

A client first retries quickly a few times, because most losses are short. After that quick phase
the delays follow one of two policies: they grow exponentially up to a maximum, or stay constant.
Before the maximum, growing delays are random, so that many clients that lost the same server do not
come back at the same moment. `machine` asks this module for each delay; time is an argument.
"""

import enum
import random
from collections import deque

from attrs import frozen

from mdserver.limits import CLIENT_STABLE_S, NS_PER_S, RECONNECT_RATE_WINDOW_S


class ReconnectPolicy(enum.Enum):
    """The policy that follows the quick phase."""

    TRUNCATED_EXPONENTIAL_BACKOFF = "TRUNCATED_EXPONENTIAL_BACKOFF"
    CONSTANT_WINDOW_BACKOFF = "CONSTANT_WINDOW_BACKOFF"


@frozen
class ReconnectSettings:
    """The reconnect parameters of the client API, durations in seconds; by default `browser()`.

    `quick_max_retries`: retries of the quick phase. `quick_initial_delay_s`: its unit; the nth
    retry comes after a random time between n - 1 and n units. `policy`: what follows.
    `time_interval_s`: the constant delay, or the unit of the exponential one. `max_delay_s`: the
    longest exponential delay. `notify_after_failed_attempts`: failures before SERVER_DOWN is
    notified, a lost connection included; 1 notifies each loss at once. `notify_rate_threshold`: the
    number of reconnects in three minutes beyond which RECONNECT_RATE_EXCEEDED is notified.
    """

    quick_max_retries: int = 3
    quick_initial_delay_s: float = 5.0
    policy: ReconnectPolicy = ReconnectPolicy.TRUNCATED_EXPONENTIAL_BACKOFF
    time_interval_s: float = 20.0
    max_delay_s: float = 360.0
    notify_after_failed_attempts: int = 1
    notify_rate_threshold: int = 15

    @classmethod
    def service(cls) -> "ReconnectSettings":
        """Return settings for a service, of which there are few: the first retry is within 0.1 s.

        Later delays grow to 5 s at most.
        """
        return cls(
            quick_initial_delay_s=0.1,
            time_interval_s=0.25,
            max_delay_s=5.0,
            notify_rate_threshold=60,
        )

    @classmethod
    def browser(cls) -> "ReconnectSettings":
        """Return settings for very many clients of one server, which must not come all at once."""
        return cls()


class Schedule:
    """Counts failures and turns them into delays (integer nanoseconds)."""

    def __init__(self, settings: ReconnectSettings) -> None:
        self.settings = settings
        self.retries = 0
        self.failures = 0
        self._hops = 0
        self._since = 0
        self._reconnects: deque[int] = deque(maxlen=settings.notify_rate_threshold + 1)

    def follow(self, settings: ReconnectSettings) -> None:
        """Use other settings; what was counted so far stays."""
        self.settings = settings
        self._reconnects = deque(self._reconnects, maxlen=settings.notify_rate_threshold + 1)

    def succeeded(self, now: int) -> None:
        """Note that a session is established."""
        self.failures = 0
        self._since = now

    def lost(self, now: int) -> None:
        """Note that a session ended; the quick phase starts over if the session was stable.

        Otherwise the quick phase goes on, with at least one retry left. A server that accepts
        connections only to drop them is thus not flooded, and a client on a bad link does not get
        the longest delays.
        """
        if now - self._since >= CLIENT_STABLE_S * NS_PER_S:
            self.retries = 0
            self._hops = 0
        else:
            self.retries = max(0, min(self.retries, self.settings.quick_max_retries - 1))

    def hop(self, servers: int) -> bool:
        """Return whether a client that was sent away may connect elsewhere at once.

        It may once for each server, until a connection is stable again.
        """
        self._hops += 1
        return self._hops <= servers

    def failed(self) -> bool:
        """Count a failed attempt or a loss; return whether it is the one to notify."""
        self.failures += 1
        return self.failures == self.settings.notify_after_failed_attempts

    def next_delay(self, rng: random.Random) -> int:
        """Count a retry; return the time (ns) to wait before it."""
        self.retries += 1
        settings = self.settings
        if self.retries <= settings.quick_max_retries:
            initial = settings.quick_initial_delay_s
            delay_s = initial * self.retries - rng.uniform(0, initial)
        elif settings.policy is ReconnectPolicy.CONSTANT_WINDOW_BACKOFF:
            delay_s = settings.time_interval_s
        else:
            delay_s = self._exponential(self.retries - settings.quick_max_retries, rng)
        return int(delay_s * NS_PER_S)

    def _exponential(self, retries: int, rng: random.Random) -> float:
        """Return a delay in seconds; `retries` counts from 1 after the quick phase."""
        interval, longest = self.settings.time_interval_s, self.settings.max_delay_s
        # 64 doublings exceed any sensible maximum; without a bound the float would overflow.
        doubled = interval * 2.0 ** min(retries, 64)
        return min(doubled - rng.uniform(0, min(interval * retries, doubled)), longest)

    def reconnecting(self, now: int) -> bool:
        """Count a reconnect; return whether the rate exceeds the threshold.

        The count then starts anew, so that a connection that keeps flapping is notified repeatedly,
        but not with each reconnect.
        """
        self._reconnects.append(now)
        full = len(self._reconnects) == self._reconnects.maxlen
        if full and now - self._reconnects[0] <= RECONNECT_RATE_WINDOW_S * NS_PER_S:
            self._reconnects.clear()
            return True
        return False
