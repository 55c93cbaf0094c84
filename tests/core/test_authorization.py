"""Commands that wait for a verdict, and the life of a token."""

import random

from mdserver.core.authorization import unexpired
from mdserver.core.broker import Broker
from mdserver.core.commands import (
    Connect,
    Ping,
    Publish,
    RenewToken,
    Subscribe,
)
from mdserver.core.entitlement import Policy
from mdserver.core.events import Error, Status, StatusName
from mdserver.core.inputs import Authorized, Denied, Grants, Opened
from mdserver.core.outputs import Authorize, Disconnect, Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.core.statistics import AuthorizationStatistics
from mdserver.limits import HELD_COMMANDS_MAX, NS_PER_S, RECHECKS_AT_ONCE
from tests.core.one_seed import OneSeed


def test_only_so_many_commands_wait_for_verdicts() -> None:
    broker = Broker(BrokerSettings(policy=Policy.ASK), "h1", random.Random(1))
    out: list[Output] = []
    broker.opened(Opened(1, "127.0.0.1"), 0, out)
    broker.received(1, [Connect(token="t")], 0, out)
    broker.received(1, [Ping()] * (HELD_COMMANDS_MAX - 1), 0, out)
    assert [type(output) for output in out] == [Authorize]
    out.clear()
    broker.received(1, [Ping(id=7), Publish(subject="/a/b", content="x", closure="c")], 0, out)
    ping, publish = out
    assert isinstance(ping, Send)
    assert isinstance(ping.event, Error)
    assert (ping.event.code, ping.event.id) == ("too-many-commands", 7)
    assert isinstance(publish, Send)
    assert isinstance(publish.event, Status)
    assert publish.event.status is StatusName.PUBLISH_FAILED
    assert publish.event.certain
    out.clear()
    broker.authorized(Authorized(1, None), 0, out)
    assert len(out) == HELD_COMMANDS_MAX


def test_after_a_new_token_only_a_few_subscriptions_are_asked_about_at_a_time() -> None:
    seed = OneSeed(BrokerSettings(policy=Policy.ASK, ask_each=True))
    seed.open(1)
    seed.receive(1, [Connect()])
    seed.decide(Authorized(1, None))
    subjects = [f"/a/{number}" for number in range(1000)]
    for ask in seed.receive(1, [Subscribe(subjects=subjects)]):
        assert isinstance(ask, Authorize)
        seed.decide(Authorized(ask.request, None))
    (token,) = seed.receive(1, [RenewToken(token="t")])
    assert isinstance(token, Authorize)
    open_asks = [
        ask for ask in seed.decide(Authorized(token.request, None)) if isinstance(ask, Authorize)
    ]
    asked: list[str | None] = []
    while open_asks:
        assert len(open_asks) <= RECHECKS_AT_ONCE
        ask = open_asks.pop(0)
        asked.append(ask.subject)
        open_asks += [
            following
            for following in seed.decide(Authorized(ask.request, None))
            if isinstance(following, Authorize)
        ]
    assert asked == subjects
    assert seed.broker.statistics().authorizations == AuthorizationStatistics(0, 0)


def token_seed(expires_s: int, renew_s: int = 10) -> OneSeed:
    seed = OneSeed(BrokerSettings(policy=Policy.ASK, renew_token_before=renew_s * NS_PER_S))
    seed.open(1)
    (ask,) = seed.receive(1, [Connect(token="t")])
    assert isinstance(ask, Authorize)
    seed.decide(Authorized(ask.request, Grants(expires=expires_s * NS_PER_S)))
    return seed


def statuses(out: list[Output]) -> list[StatusName]:
    return [
        output.event.status
        for output in out
        if isinstance(output, Send) and isinstance(output.event, Status)
    ]


def test_a_client_is_warned_before_its_token_expires_and_ended_when_it_does() -> None:
    seed = token_seed(60)
    assert statuses(seed.pass_time(49 * NS_PER_S)) == []
    assert statuses(seed.pass_time(51 * NS_PER_S)) == [StatusName.TOKEN_TO_EXPIRE]
    out = seed.pass_time(61 * NS_PER_S)
    assert statuses(out) == [StatusName.TOKEN_EXPIRED]
    assert isinstance(out[-1], Disconnect)


def test_a_new_token_without_an_end_stops_the_timer_of_the_old_one() -> None:
    seed = token_seed(60)
    (ask,) = seed.receive(1, [RenewToken(token="u")])
    assert isinstance(ask, Authorize)
    seed.decide(Authorized(ask.request, Grants()))
    assert statuses(seed.pass_time(100 * NS_PER_S)) == []


def test_grants_that_are_over_are_a_denial() -> None:
    over = unexpired(Grants(expires=5), 5)
    assert isinstance(over, Denied)
    assert over.status is StatusName.TOKEN_EXPIRED
    assert unexpired(Grants(expires=6), 5) == Grants(expires=6)
    assert unexpired(None, 5) is None
