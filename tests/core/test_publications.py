"""Publications: what a command becomes, and what its publisher is answered."""

import random

import msgspec
import pytest

from mdserver.core.broker import Broker
from mdserver.core.commands import (
    Connect,
    Publish,
)
from mdserver.core.events import Error, Status, StatusName
from mdserver.core.inputs import Opened
from mdserver.core.message import Publication, Qos
from mdserver.core.outputs import Output, Send
from mdserver.core.proposal import Origin, Outcome
from mdserver.core.publications import read_publication, refusal
from mdserver.core.session import Session
from mdserver.core.settings import BrokerSettings
from mdserver.limits import PUBLISHER_SERIES_NUMBERS as SERIES


def test_a_number_that_was_taken_long_ago_has_no_position_any_more() -> None:
    broker = Broker(BrokerSettings(), "h1", random.Random(1))
    out: list[Output] = []
    broker.opened(Opened(1, "127.0.0.1"), 0, out)
    broker.received(1, [Connect(publisher="p")], 0, out)
    out.clear()
    origin = Origin(1, "c", None, "/a/b")
    positions = ((0, 0), (2, 9))
    broker.resolve([Outcome(origin, *position, duplicate=True) for position in positions], 0, out)
    forgotten, known = (output.event for output in out if isinstance(output, Send))
    assert isinstance(forgotten, Status)
    assert (forgotten.duplicate, forgotten.epoch, forgotten.seq) == (True, None, None)
    assert isinstance(known, Status)
    assert (known.duplicate, known.epoch, known.seq) == (True, 2, 9)


def test_each_series_of_numbers_is_counted_as_a_publisher_of_its_own() -> None:
    session = Session(Opened(1, "127.0.0.1"))
    session.publisher = "~1/p"

    def read(number: int) -> tuple[str, int]:
        command = Publish(subject="/a/b", content="x", number=number)
        found = read_publication(command, session, BrokerSettings(), 5)
        assert isinstance(found, Publication)
        return found.publisher, found.number

    assert read(1) == ("~1/p", 1)
    assert read(SERIES) == ("~1/p", SERIES)
    assert read(SERIES + 1) == ("1~1/p", 1)
    assert read(3 * SERIES + 7) == ("3~1/p", 7)


def test_the_number_that_is_expected_is_one_of_the_same_series() -> None:
    broker = Broker(BrokerSettings(), "h1", random.Random(1))
    out: list[Output] = []
    broker.opened(Opened(1, "127.0.0.1"), 0, out)
    command = Publish(subject="/a/b", content="x", id=1, number=2 * SERIES + 9)
    (proposal,) = broker.received(1, [Connect(publisher="p"), command], 0, out)
    out.clear()
    broker.resolve([Outcome(proposal.origin, reason="a gap", expected=4)], 0, out)
    (answer,) = (output.event for output in out if isinstance(output, Send))
    assert isinstance(answer, Status)
    assert answer.expected == 2 * SERIES + 4


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (Publish(subject="/a/b", content="x" * 2000), StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED),
        (Publish(subject="/a", content="x"), "invalid-subject"),
        (Publish(subject="/a/b", content="\ud800"), "invalid-value"),
        (Publish(subject="/a/b"), "missing-key"),
        (Publish(subject="/a/b", content="x", number=1), "invalid-value"),
        (
            Publish(subject="/a/b", content="x", fields={"n": "x" * 1100}),
            StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED,
        ),
    ],
)
def test_what_cannot_be_published_is_answered_and_not_proposed(
    command: Publish, answer: StatusName | str
) -> None:
    settings = BrokerSettings(message_bytes_max=1000)
    read = read_publication(command, Session(Opened(1, "127.0.0.1")), settings, 5)
    assert not isinstance(read, Publication)
    named = refusal(msgspec.structs.replace(command, id=7), read)
    assert named.id == 7
    assert (named.status if isinstance(named, Status) else named.code) == answer
    unnamed = refusal(command, read)
    assert isinstance(unnamed, Error)
    assert unnamed.reason


def test_a_publication_keeps_what_its_command_said_and_when_it_came() -> None:
    command = Publish(
        subject="/a/b",
        content_base64=b"\xff",
        fields={"n": "v"},
        retained=False,
        closure="c",
        qos=Qos.STANDARD,
        compressed=True,
        reply_subject="/r/1",
    )
    read = read_publication(command, Session(Opened(1, "127.0.0.1")), BrokerSettings(), 5)
    assert read == Publication(
        "/a/b",
        b"\xff",
        text=False,
        fields={"n": "v"},
        closure="c",
        retained=False,
        qos=Qos.STANDARD,
        compressed=True,
        reply_subject="/r/1",
        time=5,
    )


def test_while_the_journal_refuses_nothing_is_proposed_that_wants_a_place() -> None:
    broker = Broker(BrokerSettings(), "h1", random.Random(1))
    out: list[Output] = []
    broker.opened(Opened(1, "127.0.0.1"), 0, out)
    broker.received(1, [Connect()], 0, out)
    out.clear()
    broker.publications.refusing = "the disk is full"
    kept = Publish(subject="/a/b", content="x", id=1)
    loose = Publish(subject="/a/b", content="x", qos=Qos.STANDARD)
    (proposal,) = broker.received(1, [kept, loose], 0, out)
    assert proposal.publication.qos is Qos.STANDARD
    (refused,) = out
    assert isinstance(refused, Send)
    assert isinstance(refused.event, Status)
    assert (refused.event.reason, refused.event.certain) == ("the disk is full", True)
