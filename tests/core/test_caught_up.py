"""A ping with `caught_up` is answered after what subscriptions bring first."""

from msgspec import Raw

from mdserver.core.commands import Connect, Ping, Publish, Subscribe
from mdserver.core.events import Delivery, Error, Pong
from mdserver.core.outputs import Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.limits import PINGS_WAITING_MAX
from tests.core.one_seed import OneSeed

ASK = Ping(t=Raw(b"7"), caught_up=True)


def with_messages(subjects: int) -> OneSeed:
    """Return a broker that brings ten messages a step, with sessions 1 and 2."""
    seed = OneSeed(BrokerSettings(brought_at_once=10))
    for session in (1, 2):
        seed.open(session)
        seed.receive(session, [Connect()])
    seed.receive(2, [Publish(subject=f"/a/{n}", content="x") for n in range(subjects)])
    return seed


def sent(out: list[Output]) -> list[object]:
    return [output.event for output in out if isinstance(output, Send)]


def test_the_answer_comes_after_the_last_snapshot() -> None:
    seed = with_messages(35)
    out = seed.receive(1, [ASK, Subscribe(subjects=["/a/*"]), ASK, Ping(t=Raw(b"8"))])
    first, *brought, plain = sent(out)
    assert (first, plain) == (Pong(t=Raw(b"7")), Pong(t=Raw(b"8")))
    brought += sent(seed.settle())
    assert [type(event) for event in brought] == [Delivery] * 35 + [Pong]


def test_the_answer_waits_for_a_client_that_takes_nothing() -> None:
    seed = with_messages(35)
    out = seed.receive(1, [Subscribe(subjects=["/a/*"]), ASK])
    out += seed.writability(1, writable=False) + seed.settle()
    assert Pong(t=Raw(b"7")) not in sent(out)
    out += seed.writability(1, writable=True) + seed.settle()
    assert [type(event) for event in sent(out)] == [Delivery] * 35 + [Pong]


def test_only_so_many_of_them_wait() -> None:
    seed = with_messages(35)
    pings = [Ping(id=n, caught_up=True) for n in range(PINGS_WAITING_MAX + 1)]
    *_, last = sent(seed.receive(1, [Subscribe(subjects=["/a/*"]), *pings]))
    assert isinstance(last, Error)
    assert (last.code, last.id) == ("too-many-pings", PINGS_WAITING_MAX)
    answers = [event for event in sent(seed.settle()) if isinstance(event, Pong)]
    assert len(answers) == PINGS_WAITING_MAX
