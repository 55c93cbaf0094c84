"""The states of a subscription on its way to the live messages, one after the other."""

import pytest

from mdserver.core.cache import Cache
from mdserver.core.commands import PositionAfter, Publish, Subscribe
from mdserver.core.events import Delivery, Status
from mdserver.core.inputs import Opened
from mdserver.core.message import Entry, Position, Publication
from mdserver.core.outputs import Deliver, Output, Send
from mdserver.core.recovery import Ahead, Lost, Missed, forked, recover
from mdserver.core.session import CatchUpState, Session, Subscription
from mdserver.core.settings import BrokerSettings
from mdserver.core.statistics import SubscriptionStatistics
from tests.core.one_seed import OneSeed


def seed_with(subjects: list[str], **settings: int) -> OneSeed:
    """A broker that has a message of each subject, and a session 2 that has nothing."""
    seed = OneSeed(BrokerSettings(**settings))  # type: ignore[arg-type]
    for session in (1, 2):
        seed.open(session)
    seed.receive(1, [Publish(subject=subject, content="x") for subject in subjects])
    return seed


def subscription_of(seed: OneSeed, subject: str) -> SubscriptionStatistics:
    session = seed.broker.session_statistics(2)
    assert session is not None
    return session.subscription(subject)


def test_a_pattern_is_searched_then_brought_then_live() -> None:
    seed = seed_with([f"/a/{n}" for n in range(40)], work_at_once=30)
    seed.receive(2, [Subscribe(subjects=["/a/*"])])
    phases = [subscription_of(seed, "/a/*")]
    while phases[-1].catch_up_state is not CatchUpState.LIVE:
        seed.pass_time(seed.now + 1_000_000)
        phase = subscription_of(seed, "/a/*")
        if phases[-1].catch_up_state is not phase.catch_up_state:
            phases.append(phase)
    states = [phase.catch_up_state for phase in phases]
    assert states == [CatchUpState.SEARCHING, CatchUpState.PENDING, CatchUpState.LIVE]
    assert [phase.pending > 0 for phase in phases] == [False, True, False]


def test_a_subscription_says_how_far_it_is() -> None:
    subscription = Subscription(Session(Opened(2, "::1")), "/a/*", None, 0, 0)
    assert repr(subscription) == "<2 /a/*: live>"
    subscription.searching = True
    assert repr(subscription) == "<2 /a/*: searching>"
    subscription.searching, subscription.pending = False, {"/a/b": None, "/a/c": None}
    assert repr(subscription) == "<2 /a/*: pending, 2 pending>"


def test_a_subscription_with_a_position_ahead_waits_until_the_member_is_there() -> None:
    seed = seed_with(["/a/b"])
    positions = {"/a/b": PositionAfter("h1", 1, 2)}
    seed.receive(2, [Subscribe(subjects=["/a/b"], positions=positions)])
    waiting = subscription_of(seed, "/a/b")
    assert (waiting.catch_up_state, waiting.ahead) == (CatchUpState.AHEAD, ("/a/b",))
    out = seed.receive(1, [Publish(subject="/a/b", content="seen before")])
    assert [output for output in out if isinstance(output, Send) and output.session == 2] != []
    assert subscription_of(seed, "/a/b").catch_up_state is CatchUpState.LIVE


def test_a_position_is_missed_from_lost_or_ahead() -> None:
    cache = Cache(BrokerSettings(cached_messages_per_subject=2))
    state = cache.state("/a/b", 0)
    for number in (1, 2, 3):
        cache.apply(state, Entry(1, number, Publication("/a/b", b"x")), 0)
    entries = cache.entries(state, 0)

    def found(epoch: int, seq: int) -> object:
        return recover(state, entries, Position(epoch, seq))

    assert found(1, 3) == Missed([])
    assert found(1, 1) == Missed(list(entries))
    assert found(1, 0) == Lost(Position(1, 1), Position(1, 3))
    assert found(1, 4) == Ahead()
    assert found(2, 3) == Lost(Position(1, 1), Position(1, 3))  # another history's epoch
    assert recover(None, (), Position(1, 1)) == Ahead()
    assert recover(None, (), Position(0, 0)) == Missed(())


def test_a_position_ahead_in_an_older_epoch_is_never_reached() -> None:
    cache = Cache(BrokerSettings())
    state = cache.state("/a/b", 0)
    cache.apply(state, Entry(3, 1, Publication("/a/b", b"x")), 0)
    assert forked(state, Position(2, 5))
    assert not forked(state, Position(3, 5))
    assert recover(state, (), Position(2, 5)) == Lost(Position(3, 1), Position(3, 1))


def contents_of(out: list[Output]) -> list[tuple[str, int]]:
    """What session 2 received: the type of each message and its seq, or the name of a status."""
    return [
        (event.type.value, event.entry.seq)
        if isinstance(event, Delivery)
        else (event.status.value, 0)
        for event in (one.event for one in out if isinstance(one, Send) and one.session == 2)
        if isinstance(event, Delivery | Status)
    ]


@pytest.mark.parametrize("history", [0, 2])
def test_a_replay_waits_as_well_for_a_member_that_is_behind_the_position(history: int) -> None:
    """The snapshot or history that this member has is older than what the client has seen."""
    seed = seed_with(["/a/b"])
    positions = {"/a/b": PositionAfter("h1", 1, 2)}
    command = Subscribe(subjects=["/a/b"], positions=positions, replay=True, history=history)
    assert contents_of(seed.receive(2, [command])) == []
    out = seed.receive(1, [Publish(subject="/a/b", content="seen before")])
    again = [("HISTORICAL", 1), ("HISTORICAL", 2)] if history else [("SNAPSHOT", 2)]
    assert contents_of(out) == [("DATA_SYNC", 0), *again]
    out = seed.receive(1, [Publish(subject="/a/b", content="new")])
    assert [one.delivery.entry.seq for one in out if isinstance(one, Deliver)] == [3]
