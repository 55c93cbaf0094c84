"""Subscriptions from their command to their end, where a scenario does not look."""

import pytest

from mdserver.core.commands import Connect, PositionAfter, RenewToken, Subscribe, Unsubscribe
from mdserver.core.entitlement import Policy
from mdserver.core.events import Error, Reset, Status, StatusName
from mdserver.core.inputs import Authorized, Grants
from mdserver.core.outputs import Authorize, Log, Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.limits import SUBSCRIPTIONS_ENDED_MAX
from tests.core.one_seed import OneSeed


def events(out: list[Output]) -> list[object]:
    return [output.event for output in out if isinstance(output, Send)]


def started(**settings: object) -> OneSeed:
    seed = OneSeed(BrokerSettings(**settings))  # type: ignore[arg-type]
    seed.open(1)
    seed.receive(1, [Connect()])
    return seed


@pytest.mark.parametrize("wrong", [{"history": -1}, {"conflation_ms": -1}])
def test_a_negative_wish_is_an_error_of_the_whole_command(wrong: dict[str, int]) -> None:
    seed = started()
    (error,) = events(seed.receive(1, [Subscribe(subjects=["/a/b"], id=3, **wrong)]))
    assert isinstance(error, Error)
    assert (error.code, error.id) == ("invalid-value", 3)
    assert seed.broker.counts().subscriptions == 0


def test_each_subject_of_a_command_is_answered_by_itself() -> None:
    seed = started(subscriptions_per_session_max=2)
    found = events(seed.receive(1, [Subscribe(subjects=["/a/b", "a", "/a/*", "/a/c"], id=1)]))
    assert [type(event) for event in found] == [Error, Status]
    assert isinstance(found[1], Status)
    assert (found[1].status, found[1].subject) == (StatusName.SUBSCRIBE_DENY, "/a/c")
    assert seed.broker.counts().subscriptions == 2


def test_a_position_of_another_history_brings_a_reset_of_that_subject_only() -> None:
    seed = started()
    positions = {"/a/b": PositionAfter("other", 1, 5), "/a/c": PositionAfter("h1", 0, 0)}
    found = events(seed.receive(1, [Subscribe(subjects=["/a/b", "/a/c"], positions=positions)]))
    assert [event for event in found if isinstance(event, Reset)] == [
        Reset(history="h1", subjects=["/a/b"])
    ]


def test_a_new_token_ends_what_its_rights_do_not_cover() -> None:
    seed = OneSeed(BrokerSettings(policy=Policy.ASK))
    seed.open(1)
    (ask,) = seed.receive(1, [Connect(token="t")])
    assert isinstance(ask, Authorize)
    seed.decide(Authorized(ask.request, Grants(subscribe=("/**",))))
    seed.receive(1, [Subscribe(subjects=["/a/b", "/b/c", "/a/**"])])

    def renewed(rights: Grants | None) -> list[str | None]:
        """Return the subjects that the client is told of after a token with other rights."""
        (ask,) = seed.receive(1, [RenewToken(token="u")])
        assert isinstance(ask, Authorize)
        updated, *denied = events(seed.decide(Authorized(ask.request, rights)))
        assert isinstance(updated, Status)
        assert updated.status is StatusName.TOKEN_UPDATED
        return [event.subject for event in denied if isinstance(event, Status)]

    assert renewed(None) == []
    assert renewed(Grants(subscribe=())) == ["/a/b", "/b/c", "/a/**"]
    assert seed.broker.counts().subscriptions == 0


def test_subscriptions_that_ended_are_remembered_for_receipts_the_latest_ones() -> None:
    seed = started(receipts=True)
    for number in range(SUBSCRIPTIONS_ENDED_MAX + 5):
        seed.receive(1, [Subscribe(subjects=[f"/a/{number}"])])
        seed.receive(1, [Unsubscribe(subjects=[f"/a/{number}"])])
    session = seed.broker.session_statistics(1)
    assert session is not None
    ended = session.ended
    assert len(ended) == SUBSCRIPTIONS_ENDED_MAX
    assert "/a/4" not in ended
    assert f"/a/{SUBSCRIPTIONS_ENDED_MAX + 4}" in ended


def test_presence_says_who_joins_and_leaves_once() -> None:
    seed = started(presence=True)
    out = seed.receive(1, [Subscribe(subjects=["/a/b"]), Subscribe(subjects=["/a/b"])])
    out += seed.receive(1, [Unsubscribe(subjects=["/a/b", "/a/c"])])
    assert [output.name for output in out if isinstance(output, Log)] == ["join", "leave"]
