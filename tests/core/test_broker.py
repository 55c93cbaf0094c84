"""The broker over the smallest log there is: what is proposed is committed at once."""

import random

from mdserver.core.broker import Broker
from mdserver.core.commands import (
    Connect,
    Publish,
    Receipts,
    Subscribe,
)
from mdserver.core.entitlement import Policy
from mdserver.core.events import Connected, Status, StatusName
from mdserver.core.inputs import Authorized, Opened
from mdserver.core.message import Entry
from mdserver.core.outputs import Deliver, Log, Output, Send
from mdserver.core.proposal import Outcome
from mdserver.core.settings import BrokerSettings
from mdserver.limits import NS_PER_S
from tests.core.one_seed import OneSeed
from tests.receipts import receipt


def test_a_publication_reaches_its_subscriber_and_is_acknowledged() -> None:
    broker = Broker(BrokerSettings(), "h1", random.Random(1))
    out: list[Output] = []
    broker.opened(Opened(1, "127.0.0.1"), 0, out)
    broker.received(1, [Connect(), Subscribe(subjects=["/a/b"])], 0, out)
    assert isinstance(out[0], Send)
    assert isinstance(out[0].event, Connected)
    assert out[0].event.history == "h1"
    out.clear()
    (proposal,) = broker.received(1, [Publish(subject="/a/b", content="x", closure="c")], 5, out)
    assert out == []
    entry = Entry(1, 1, proposal.publication)
    broker.committed(0, [entry], 5, out)
    broker.resolve([Outcome(proposal.origin, 1, 1)], 5, out)
    deliver, _, answer = out
    assert isinstance(deliver, Deliver)
    assert (deliver.delivery.entry, list(deliver.sessions)) == (entry, [1])
    assert isinstance(answer, Send)
    assert isinstance(answer.event, Status)
    assert answer.event.status is StatusName.PUBLISH_OK
    assert (answer.event.closure, answer.event.epoch, answer.event.seq) == ("c", 1, 1)


def test_receipts_are_written_down_with_who_received_and_when() -> None:
    broker = Broker(BrokerSettings(receipts=True), "h1", random.Random(1))
    out: list[Output] = []
    broker.opened(Opened(1, "127.0.0.1"), 0, out)
    broker.received(1, [Connect(client="c/1", external_token="ann")], 0, out)
    out.clear()
    told = receipt(seqs=(2, 3, 4), opened_ms=2_000, closed_ms=500)
    broker.received(1, [Receipts(receipts=[told])], 10 * NS_PER_S, out)
    (line,) = out
    assert isinstance(line, Log)
    assert (line.stream, line.values["subscriber"], line.values["n"]) == ("receipts", "ann", 3)
    assert (line.values["opened_ts"], line.values["closed_ts"]) == (8_000_000, 9_500_000)


def test_nothing_is_kept_of_what_was_asked_about_a_session_that_ended() -> None:
    seed = OneSeed(BrokerSettings(policy=Policy.ASK, ask_each=True))
    seed.open(1)
    seed.receive(1, [Connect()])
    seed.decide(Authorized(1, None))
    seed.receive(1, [Subscribe(subjects=[f"/a/{number}" for number in range(100)])])
    seed.close(1, "gone")
    assert seed.broker.statistics().authorizations.open == 0
