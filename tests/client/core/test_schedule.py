import random

import pytest

from mdserver.client.core.schedule import ReconnectPolicy, ReconnectSettings, Schedule

S = 1_000_000_000


class Fixed(random.Random):
    """Gives always the same part of a range."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self.part = part

    def random(self) -> float:
        return self.part


def delays(settings: ReconnectSettings, part: float, count: int) -> list[float]:
    schedule = Schedule(settings)
    return [schedule.next_delay(Fixed(part)) / S for _ in range(count)]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        # initial * retries - random(0, initial), then min(interval * 2^n - random(0, interval * n))
        (0.0, [5, 10, 15, 40, 80, 160, 320, 360, 360]),
        (0.5, [2.5, 7.5, 12.5, 30, 60, 130, 280, 360, 360]),
    ],
)
def test_quick_phase_and_truncated_exponential_backoff(part: float, expected: list[float]) -> None:
    assert delays(ReconnectSettings(), part, len(expected)) == expected


def test_constant_window_backoff() -> None:
    settings = ReconnectSettings(
        policy=ReconnectPolicy.CONSTANT_WINDOW_BACKOFF,
        quick_max_retries=1,
        quick_initial_delay_s=1,
        time_interval_s=7,
    )
    assert delays(settings, 0.25, 4) == [0.75, 7, 7, 7]


def test_delays_stay_within_bounds_for_ever() -> None:
    settings = ReconnectSettings(time_interval_s=0.001, max_delay_s=3600)
    schedule = Schedule(settings)
    for _ in range(5000):
        assert 0 <= schedule.next_delay(random.Random(1)) <= 3600 * S


def test_a_connection_that_lasted_begins_with_the_quick_phase_again() -> None:
    schedule = Schedule(ReconnectSettings())
    for _ in range(8):
        schedule.next_delay(Fixed(0))
    schedule.succeeded(100 * S)
    schedule.lost(109 * S)
    assert schedule.next_delay(Fixed(0)) == 15 * S, "the end of the quick phase"
    schedule.succeeded(200 * S)
    schedule.lost(210 * S)
    assert schedule.next_delay(Fixed(0)) == 5 * S


def test_each_server_may_send_away_once_without_a_delay() -> None:
    schedule = Schedule(ReconnectSettings())
    assert [schedule.hop(servers=2) for _ in range(4)] == [True, True, False, False]
    schedule.succeeded(0)
    schedule.lost(10 * S)
    assert schedule.hop(servers=2)


def test_the_failure_to_tell_of_is_told_once() -> None:
    schedule = Schedule(ReconnectSettings(notify_after_failed_attempts=3))
    assert [schedule.failed() for _ in range(5)] == [False, False, True, False, False]
    schedule.succeeded(0)
    assert [schedule.failed() for _ in range(3)] == [False, False, True]


def test_a_rate_of_reconnects_beyond_the_threshold_is_told() -> None:
    schedule = Schedule(ReconnectSettings(notify_rate_threshold=15))
    told = [schedule.reconnecting(second * S) for second in range(0, 160, 10)]
    assert told == [False] * 15 + [True]
    slow = Schedule(ReconnectSettings(notify_rate_threshold=15))
    assert not any(slow.reconnecting(second * S) for second in range(0, 1300, 13))
