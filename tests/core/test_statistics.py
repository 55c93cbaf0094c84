"""What a broker says of itself stays as it was said."""

import attrs
import pytest

from mdserver.core.commands import Connect, Publish, Subscribe
from mdserver.core.session import CatchUpState, SessionState
from mdserver.core.settings import BrokerSettings
from mdserver.core.statistics import SubscriptionStatistics
from tests.core.one_seed import OneSeed


def started() -> OneSeed:
    seed = OneSeed(BrokerSettings())
    seed.open(1)
    seed.receive(1, [Connect(), Subscribe(subjects=["/a/b", "/c/*"])])
    return seed


def test_what_was_said_does_not_change_with_the_next_step() -> None:
    seed = started()
    before, of_session = seed.broker.statistics(), seed.broker.session_statistics(1)
    assert of_session is not None
    copied, session_copied = attrs.evolve(before), attrs.evolve(of_session)
    seed.open(2)
    seed.receive(1, [Publish(subject="/a/b", content="one"), Subscribe(subjects=["/d/e"])])
    of_subject = seed.broker.subject_statistics("/a/b")
    assert of_subject is not None
    subject_copied = attrs.evolve(of_subject)
    seed.receive(1, [Publish(subject="/a/b", content="two")])
    assert (before, of_session, of_subject) == (copied, session_copied, subject_copied)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        before.scheduled = 1  # type: ignore[misc]
    now = seed.broker.statistics()
    assert (before.sessions, now.sessions) == ((1,), (1, 2))
    assert (before.cache.subjects, now.cache.subjects) == ((), ("/a/b",))
    assert now.interest.named == ("/a/b", "/d/e")


def test_a_subject_is_shown_with_its_place_and_what_is_cached() -> None:
    seed = started()
    for content in ("one", "two"):
        seed.receive(1, [Publish(subject="/a/b", content=content, fields={"f": content})])
    subject = seed.broker.subject_statistics("/a/b")
    assert subject is not None
    assert (subject.subject, subject.epoch, subject.seq, subject.floor) == ("/a/b", 1, 2, 0)
    assert [entry.publication.content for entry in subject.entries] == [b"one", b"two"]
    assert subject.snapshot == subject.entries[1]
    assert subject.snapshot_bytes == len("two" + "f" + "two")
    assert seed.broker.subject_statistics("/q") is None


def test_a_session_is_shown_with_its_subscriptions() -> None:
    seed = started()
    session = seed.broker.session_statistics(1)
    assert session is not None
    assert (session.number, session.state) == (1, SessionState.CONNECTED)
    live = CatchUpState.LIVE
    assert session.subscription("/c/*") == SubscriptionStatistics("/c/*", live, 0, ())
    with pytest.raises(KeyError):
        session.subscription("/q")
    assert (session.busy, session.ahead, session.ended) == (False, (), ())
    seed.close(1, "gone")
    assert seed.broker.session_statistics(1) is None
