"""Interest beside the scenarios: many patterns in one session, and what is kept ready."""

import pytest

from mdserver.core import interest as interest_module
from mdserver.core.inputs import Opened
from mdserver.core.interest import Interest
from mdserver.core.session import Session, SessionEvent, Subscription
from mdserver.core.subjects import parse_interest
from mdserver.errors import LocalProtocolError


def subscribe(interest: Interest, session: Session, subject: str) -> Subscription:
    subscription = Subscription(session, subject, parse_interest(subject), 0, 0)
    session.subscriptions[subject] = subscription
    interest.add(subscription)
    return subscription


def test_many_patterns_of_a_session_give_the_same_choice_as_few() -> None:
    interest, session, other = Interest(), Session(Opened(1, "::1")), Session(Opened(2, "::1"))
    wanted = subscribe(interest, session, "/a/*")
    subscribe(interest, session, "/**")
    subscribe(interest, other, "/a/b/*")
    assert interest.chosen(session, "/a/b") is wanted
    for number in range(20):
        subscribe(interest, session, f"/other/{number}/*")
    assert interest.chosen(session, "/a/b") is wanted
    assert interest.chosen(session, "/a/b/c") is session.subscriptions["/**"]
    assert interest.chosen(other, "/a/c") is None
    interest.remove(session.subscriptions["/**"])
    assert interest.chosen(session, "/a/b/c") is None


def test_only_so_many_audiences_are_kept_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interest_module, "AUDIENCES_MAX", 10)
    interest, session = Interest(), Session(Opened(1, "::1"))
    subscribe(interest, session, "/a/3")
    for number in range(100):
        expected = [(None, [1])] if number == 3 else []
        assert interest.audience(f"/a/{number}").direct == expected
        assert interest.statistics().audiences <= 10


def test_the_list_of_an_audience_is_the_same_until_something_changes() -> None:
    interest, session = Interest(), Session(Opened(1, "::1"))
    subscribe(interest, session, "/a/b")
    first = interest.audience("/a/b").direct[0][1]
    assert interest.audience("/a/b").direct[0][1] is first
    subscribe(interest, Session(Opened(2, "::1")), "/a/b")
    assert interest.audience("/a/b").direct[0][1] == [1, 2]
    assert first == [1]


def test_a_session_that_ended_cannot_be_admitted() -> None:
    session = Session(Opened(1, "::1"))
    session.transition(SessionEvent.END)
    with pytest.raises(LocalProtocolError, match=r"ADMIT in SessionState\.ENDED"):
        session.transition(SessionEvent.ADMIT)
