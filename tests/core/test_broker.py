"""The broker over the smallest log there is: what is proposed is committed at once."""

from mdserver.core.broker import Broker
from mdserver.core.commands import Connect, Publish, Subscribe
from mdserver.core.events import Connected, Status, StatusName
from mdserver.core.inputs import Opened
from mdserver.core.message import Entry
from mdserver.core.outputs import Deliver, Output, Send
from mdserver.core.proposal import Outcome
from mdserver.core.settings import BrokerSettings


def test_a_publication_reaches_its_subscriber_and_is_acknowledged() -> None:
    broker = Broker(BrokerSettings(), "h1")
    out: list[Output] = []
    broker.opened(Opened(1, "127.0.0.1"), 0, out)
    broker.received(1, [Connect(), Subscribe(subjects=["/a/b"])], 0, out)
    assert isinstance(out[0], Send)
    assert isinstance(out[0].event, Connected)
    assert out[0].event.history == "h1"
    out.clear()
    broker.received(1, [Publish(subject="/a/b", content="x", closure="c")], 5, out)
    assert out == []
    (proposal,) = broker.proposals
    entry = Entry(1, 1, proposal.publication)
    broker.committed(0, [entry], 5, out)
    broker.outcome(Outcome(proposal.origin, 1, 1), 5, out)
    deliver, _, answer = out
    assert isinstance(deliver, Deliver)
    assert (deliver.delivery.entry, list(deliver.sessions)) == (entry, [1])
    assert isinstance(answer, Send)
    assert isinstance(answer.event, Status)
    assert answer.event.status is StatusName.PUBLISH_OK
    assert (answer.event.closure, answer.event.epoch, answer.event.seq) == ("c", 1, 1)
