"""Clients that note no single positions are told places when, and only when, those say enough."""

import msgspec

from mdserver.core.commands import AnyCommand, Ping, Publish, Subscribe
from mdserver.core.events import Mark
from mdserver.core.message import Entry, Publication
from mdserver.core.outputs import Deliver, Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.limits import NS_PER_MS
from tests.core.one_seed import OneSeed

PING = Ping(t=msgspec.Raw(b"1"))


def said(outputs: list[Output], session: int = 1) -> list[object]:
    """The marks of a session and the contents that it gets, in their order."""
    found: list[object] = []
    for output in outputs:
        if isinstance(output, Deliver) and session in output.sessions:
            found.append(output.delivery.entry.publication.content.decode())
        elif isinstance(output, Send) and output.session == session:
            event = output.event
            if isinstance(event, Mark):
                found.append(event)
    return found


def following(*commands: AnyCommand, groups: int = 1) -> OneSeed:
    """A member with a stream of server-sent events, which is told places, and a publisher."""
    seed = OneSeed(BrokerSettings(groups=groups))
    seed.open(1, transport="sse")
    seed.open(2)
    seed.receive(1, commands)
    seed.settle()
    return seed


def publish(seed: OneSeed, subject: str, content: str) -> list[Output]:
    return seed.receive(2, [Publish(subject=subject, content=content)])


def test_a_session_of_patterns_is_told_places_once_it_asks() -> None:
    seed = following(Subscribe(subjects=["/a/**"]))
    assert said(publish(seed, "/a/b", "one")) == ["one"]
    assert said(seed.receive(1, [PING])) == [Mark((1,), ordered=True)]
    assert said(seed.receive(1, [PING])) == [], "places follow from the messages themselves"
    assert said(publish(seed, "/a/c", "two")) == ["two"]


def test_a_session_of_single_subjects_has_positions_instead() -> None:
    seed = following(Subscribe(subjects=["/a/b"]))
    assert said(seed.receive(1, [PING])) == []


def test_places_count_for_each_group_apart() -> None:
    seed = following(Subscribe(subjects=["/a/**"]), groups=4)
    for number in range(20):
        publish(seed, f"/a/{number}", "x")
    (mark,) = said(seed.receive(1, [PING]))
    assert isinstance(mark, Mark)
    assert mark.places is not None
    assert (len(mark.places), sum(mark.places)) == (4, 20)


def test_what_is_held_back_by_conflation_is_beyond_the_place_that_is_told() -> None:
    seed = following(Subscribe(subjects=["/a/**"], conflation_ms=100))
    publish(seed, "/a/b", "one")
    publish(seed, "/a/b", "held")
    assert said(seed.receive(1, [PING])) == [], "nothing is told while something is held"
    outputs = said(seed.pass_time(seed.now + 200 * NS_PER_MS))
    assert outputs == ["held", Mark((2,), ordered=False)]


def test_what_comes_out_of_order_ends_what_a_mark_says_until_the_next() -> None:
    """A log that was taken over from another member is brought in another order than its places."""
    seed = following(Subscribe(subjects=["/a/**"]))
    publish(seed, "/a/b", "one")
    seed.receive(1, [PING])
    other = OneSeed(BrokerSettings(groups=1))
    for number in range(3):
        other.commit([Entry(1, number + 1, Publication("/a/b", b"%d" % number), number + 1)])
    out: list[Output] = []
    seed.broker.import_group(0, other.broker.export_group(0), 3, seed.now, out)
    marks = [mark for mark in said(out + seed.settle()) if isinstance(mark, Mark)]
    assert marks[0] == Mark(None)
    assert marks[-1] == Mark((3,), ordered=True)


def test_a_session_that_ended_is_told_nothing_more() -> None:
    seed = following(Subscribe(subjects=["/a/**"]))
    seed.receive(1, [PING])
    seed.close(1, "gone")
    assert said(publish(seed, "/a/b", "one") + seed.settle()) == []
