"""Rates of a session and of an address: what is taken now says when more may be."""

from mdserver.limits import NS_PER_S, RATED_ADDRESSES_KEPT
from mdserver.server.clients.rates import Rate, Rates
from mdserver.server.settings import RateLimits


class Clock:
    def __init__(self) -> None:
        self.now = 100 * NS_PER_S

    def __call__(self) -> int:
        return self.now


def test_a_second_that_was_not_used_may_be_used_at_once() -> None:
    rate = Rate(10)
    now = 100 * NS_PER_S
    assert rate.take(10, now) == now
    assert rate.take(10, now) == now + NS_PER_S
    assert rate.take(5, now + 10 * NS_PER_S) < now + 10 * NS_PER_S


def test_a_rate_of_zero_lets_everything_through() -> None:
    assert Rate(0).take(10**9, 5) == 0


def test_without_limits_nothing_is_measured() -> None:
    assert Rates(RateLimits(), Clock()).of("192.0.2.1") is None


def waits(meter: object, clock: Clock) -> float:
    return max(0, meter._until - clock.now) / NS_PER_S  # type: ignore[attr-defined]


def test_connections_of_an_address_share_its_rate_also_after_they_went() -> None:
    clock = Clock()
    rates = Rates(RateLimits(commands_per_address=10), clock)
    for expected in (0, 1, 2):
        meter = rates.of("192.0.2.1")
        assert meter is not None
        meter.take(10)
        assert waits(meter, clock) == expected
    other = rates.of("192.0.2.2")
    assert other is not None
    other.take(10)
    assert waits(other, clock) == 0


def test_bytes_and_commands_are_two_rates() -> None:
    clock = Clock()
    meter = Rates(RateLimits(commands=10, bytes=1000), clock).of("192.0.2.1")
    assert meter is not None
    meter.take(commands=10, bytes_=3000)
    assert waits(meter, clock) == 2


def test_addresses_that_are_idle_are_forgotten() -> None:
    clock = Clock()
    rates = Rates(RateLimits(bytes_per_address=10), clock)
    for number in range(RATED_ADDRESSES_KEPT):
        rates.of(f"a{number}")
    clock.now += 10 * NS_PER_S
    busy = rates.of("a0")
    assert busy is not None
    busy.take(bytes_=100)
    rates.of("one more")
    assert set(rates._addresses) == {"a0", "one more"}


def test_an_address_that_is_forgotten_while_it_is_connected_has_no_second_rate() -> None:
    clock = Clock()
    rates = Rates(RateLimits(commands_per_address=10), clock)
    first = rates.of("192.0.2.1")
    assert first is not None
    for number in range(RATED_ADDRESSES_KEPT):
        rates.of(f"a{number}")
    second = rates.of("192.0.2.1")
    assert second is not None
    first.take(20)
    second.take(10)
    assert waits(second, clock) == 2
