"""The states of a subscription on its way to the live messages, one after the other."""

from mdserver.core.commands import PositionAfter, Publish, Subscribe
from mdserver.core.message import Entry, Position
from mdserver.core.outputs import Send
from mdserver.core.recovery import Ahead, Lost, Missed, forked, recover
from mdserver.core.session import CatchUpState, Subscription
from mdserver.core.settings import BrokerSettings
from tests.core.one_seed import OneSeed


def seed_with(subjects: list[str], **settings: int) -> OneSeed:
    """A broker that has a message of each subject, and a session 2 that has nothing."""
    seed = OneSeed(BrokerSettings(**settings))  # type: ignore[arg-type]
    for session in (1, 2):
        seed.open(session)
    seed.receive(1, [Publish(subject=subject, content="x") for subject in subjects])
    return seed


def subscription_of(seed: OneSeed, subject: str) -> Subscription:
    return seed.broker._sessions[2].subscriptions[subject]


def test_a_pattern_is_searched_then_brought_then_live() -> None:
    seed = seed_with([f"/a/{n}" for n in range(40)], work_at_once=30)
    seed.receive(2, [Subscribe(subjects=["/a/*"])])
    subscription = subscription_of(seed, "/a/*")
    states = [subscription.catch_up_state]
    texts = [repr(subscription)]
    while subscription.catch_up_state is not CatchUpState.LIVE:
        seed.pass_time(seed.now + 1_000_000)
        if states[-1] is not subscription.catch_up_state:
            states.append(subscription.catch_up_state)
            texts.append(repr(subscription))
    assert states == [CatchUpState.SEARCHING, CatchUpState.PENDING, CatchUpState.LIVE]
    assert texts[0] == "<2 /a/*: searching>"
    assert texts[1].startswith("<2 /a/*: pending, ")
    assert texts[2] == "<2 /a/*: live>"


def test_a_subscription_with_a_position_ahead_waits_until_the_member_is_there() -> None:
    seed = seed_with(["/a/b"])
    positions = {"/a/b": PositionAfter("h1", 1, 2)}
    seed.receive(2, [Subscribe(subjects=["/a/b"], positions=positions)])
    subscription = subscription_of(seed, "/a/b")
    assert repr(subscription) == "<2 /a/b: ahead, 1 ahead>"
    out = seed.receive(1, [Publish(subject="/a/b", content="seen before")])
    assert [output for output in out if isinstance(output, Send) and output.session == 2] != []
    assert subscription.catch_up_state is CatchUpState.LIVE


def test_a_position_is_missed_from_lost_or_ahead() -> None:
    seed = seed_with(["/a/b", "/a/b", "/a/b"], cached_messages_per_subject=2)
    cache = seed.broker._cache
    state = cache.find("/a/b")
    assert state is not None
    entries = cache.entries(state, seed.now)

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
    seed = seed_with([])
    publication = seed_with(["/a/b"]).broker._cache.find("/a/b")
    assert publication is not None
    entry = next(iter(seed_with(["/a/b"]).broker._cache.entries(publication, 0)), None)
    assert isinstance(entry, Entry)
    seed.commit([Entry(3, 1, entry.publication)])
    state = seed.broker._cache.find("/a/b")
    assert state is not None
    assert forked(state, Position(2, 5))
    assert not forked(state, Position(3, 5))
    assert recover(state, (), Position(2, 5)) == Lost(Position(3, 1), Position(3, 1))
