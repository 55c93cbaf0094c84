"""When to reconnect: a quick phase, then one of two policies; and when to tell of trouble."""

import enum
import random
from collections import deque

from attrs import frozen

from mdserver.limits import CLIENT_STABLE_S, NS_PER_S, RECONNECT_RATE_WINDOW_S


class ReconnectPolicy(enum.Enum):
    """What comes after the quick phase."""

    TRUNCATED_EXPONENTIAL_BACKOFF = "TRUNCATED_EXPONENTIAL_BACKOFF"
    CONSTANT_WINDOW_BACKOFF = "CONSTANT_WINDOW_BACKOFF"


@frozen
class ReconnectSettings:
    """The reconnect parameters of the client API, durations in seconds; by default `browser()`.

    `notify_after_failed_attempts` counts a lost connection as a failed attempt: with 1 each loss
    is told at once. `notify_rate_threshold` is the number of reconnects within three minutes
    beyond which RECONNECT_RATE_EXCEEDED is told.
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
        """Return what suits a service, of which there are few: back within 0.1 s, then 5 s."""
        return cls(
            quick_initial_delay_s=0.1,
            time_interval_s=0.25,
            max_delay_s=5.0,
            notify_rate_threshold=60,
        )

    @classmethod
    def browser(cls) -> "ReconnectSettings":
        """Return what suits very many clients of one server, which must not come all at once."""
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
        """Go on by other settings; what was counted stays."""
        self.settings = settings
        self._reconnects = deque(self._reconnects, maxlen=settings.notify_rate_threshold + 1)

    def succeeded(self, now: int) -> None:
        """A connection stands."""
        self.failures = 0
        self._since = now

    def lost(self, now: int) -> None:
        """The connection ended; the quick phase begins anew if it had lasted a while.

        Else it goes on from where it was, to its end at most: a server that takes connections only
        to drop them is not hammered, and a bad link not given up.
        """
        if now - self._since >= CLIENT_STABLE_S * NS_PER_S:
            self.retries = 0
            self._hops = 0
        else:
            self.retries = max(0, min(self.retries, self.settings.quick_max_retries - 1))

    def hop(self, servers: int) -> bool:
        """Whether a client that was sent away may go elsewhere at once: once for each server."""
        self._hops += 1
        return self._hops <= servers

    def failed(self) -> bool:
        """Count a failed attempt or a loss; True when it is the one to be told of."""
        self.failures += 1
        return self.failures == self.settings.notify_after_failed_attempts

    def next_delay(self, rng: random.Random) -> int:
        """How long to wait before the next attempt, which is counted as a retry."""
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
        """`retries` counts from 1 after the quick phase."""
        interval, longest = self.settings.time_interval_s, self.settings.max_delay_s
        # Beyond 64 doublings any positive interval is past any sensible maximum, and floats end.
        doubled = interval * 2.0 ** min(retries, 64)
        return min(doubled - rng.uniform(0, min(interval * retries, doubled)), longest)

    def reconnecting(self, now: int) -> bool:
        """Note a reconnect; True when it takes the rate beyond the threshold.

        The count then starts anew, so that an endless flapping is told again and again, but not
        with each reconnect.
        """
        self._reconnects.append(now)
        full = len(self._reconnects) == self._reconnects.maxlen
        if full and now - self._reconnects[0] <= RECONNECT_RATE_WINDOW_S * NS_PER_S:
            self._reconnects.clear()
            return True
        return False
