"""Windows of conflation: their ends, what stands for them, and how much of it a step sends."""

from mdserver.core.conflation import TIMER, Conflation, Window, floored
from mdserver.core.events import Delivery
from mdserver.core.inputs import Opened
from mdserver.core.message import Entry, MessageType, Publication, Qos
from mdserver.core.outputs import CancelTimer, Deliver, Output, SetTimer
from mdserver.core.session import Session, Subscription
from mdserver.limits import NS_PER_MS

PERIOD = 500 * NS_PER_MS


def subscription(session: int = 1, start: int = 0) -> Subscription:
    return Subscription(Session(Opened(session, "127.0.0.1")), "/a/*", None, PERIOD, start)


def delivery(subject: str, seq: int, content: bytes = b"x", **more: object) -> Delivery:
    publication = Publication(subject, content, **more)  # type: ignore[arg-type]
    return Delivery(Entry(1 if seq else 0, seq, publication), MessageType.UPDATE)


def test_a_wish_is_rounded_down_to_steps_and_off_below_one() -> None:
    assert [floored(wish) // NS_PER_MS for wish in (0, 99, 100, 199, 1000)] == [
        0,
        0,
        100,
        100,
        1000,
    ]


def test_windows_are_counted_from_the_subscription_and_end_together() -> None:
    conflation, out = Conflation(), list[Output]()
    one = subscription(start=30 * NS_PER_MS)
    conflation.add(one, delivery("/a/b", 1), 700 * NS_PER_MS, out)
    conflation.add(one, delivery("/a/c", 1), 900 * NS_PER_MS, out)
    conflation.add(one, delivery("/a/b", 2), 950 * NS_PER_MS, out)
    assert out == [SetTimer(TIMER, 1030 * NS_PER_MS)]
    out.clear()
    conflation.due(1030 * NS_PER_MS, out)
    sent = [(o.delivery.entry.publication.subject, o.delivery.entry.seq) for o in out[:2]]  # type: ignore[union-attr]
    assert sent == [("/a/b", 2), ("/a/c", 1)]
    assert out[2:] == [CancelTimer(TIMER)]


def test_a_window_with_one_message_sends_it_as_it_is() -> None:
    only = delivery("/a/b", 1)
    assert Window(only).delivery(None) is only


def test_fields_are_united_and_the_position_is_that_of_the_last_numbered_message() -> None:
    window = Window(delivery("/a/b", 4, fields={"a": "1", "b": "1"}))
    window.add(delivery("/a/b", 5, fields={"b": "2"}).entry)
    window.add(delivery("/a/b", 0, b"last", qos=Qos.STANDARD).entry)
    entry = window.delivery("/a/*").entry
    assert (entry.epoch, entry.seq, entry.publication.content) == (1, 5, b"last")
    assert entry.publication.fields == {"a": "1", "b": "2"}
    assert entry.publication.qos is Qos.GUARANTEED


def test_a_step_sends_so_much_and_the_rest_follows_soon() -> None:
    conflation, out = Conflation(at_once=3), list[Output]()
    one = subscription()
    for number in range(8):
        conflation.add(one, delivery(f"/a/{number}", 1), 0, out)
    out.clear()
    now, sent = PERIOD, []
    for _ in range(3):
        conflation.due(now, out)
        deliveries = [o for o in out if isinstance(o, Deliver)]
        assert len(deliveries) <= 3
        sent += [o.delivery.entry.publication.subject for o in deliveries]
        (timer,) = [o for o in out if not isinstance(o, Deliver)]
        if isinstance(timer, SetTimer):
            assert now < timer.at <= now + 2 * NS_PER_MS
            now = timer.at
        out.clear()
    assert sorted(sent) == [f"/a/{number}" for number in range(8)]


def test_subscriptions_that_ended_leave_nothing_behind() -> None:
    conflation, out = Conflation(), list[Output]()
    for session in range(500):
        one = subscription(session)
        conflation.add(one, delivery("/a/b", 1), 0, out)
        conflation.drop(one)
    assert conflation.scheduled < 100
    out.clear()
    conflation.due(PERIOD, out)
    assert not [o for o in out if isinstance(o, Deliver)]
