"""The timer wheel against a plain list of what is due when."""

from hypothesis import given
from hypothesis import strategies as st

from mdserver.server.timers import TICK, TimerWheel


def test_a_timer_is_never_early_and_at_most_a_tick_late() -> None:
    wheel = TimerWheel()
    wheel.set("a", 25 * TICK + 1)
    assert wheel.due(25 * TICK + 1) == []
    assert wheel.due(26 * TICK) == ["a"]
    assert wheel.due(27 * TICK) == []


def test_setting_again_moves_a_timer() -> None:
    wheel = TimerWheel()
    assert wheel.set("a", 50 * TICK)
    assert wheel.set("a", 10 * TICK)
    assert not wheel.set("b", 20 * TICK)
    assert wheel.next_at() == 10 * TICK
    wheel.set("a", 30 * TICK)
    assert wheel.due(20 * TICK) == ["b"]
    assert wheel.next_at() == 30 * TICK
    assert len(wheel) == 1


def test_cancelled_timers_are_forgotten() -> None:
    wheel = TimerWheel()
    wheel.set("a", TICK)
    wheel.cancel("a")
    wheel.cancel("never set")
    assert wheel.next_at() is None
    assert wheel.due(2 * TICK) == []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 100)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("due"), st.just(0), st.integers(0, 100)),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_agrees_with_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    wheel, model = TimerWheel(), dict[int, int]()
    now = 0
    for what, key, value in steps:
        if what == "set":
            wheel.set(key, (now + value) * TICK)
            model[key] = now + value
        elif what == "cancel":
            wheel.cancel(key)
            model.pop(key, None)
        else:
            now += value
            expected = {key for key, at in model.items() if at <= now}
            due = wheel.due(now * TICK)
            assert set(due) == expected
            assert [model[key] for key in due] == sorted(model[key] for key in due)
            model = {key: at for key, at in model.items() if at > now}
        assert len(wheel) == len(model)
        assert wheel.next_at() == (min(model.values()) * TICK if model else None)
