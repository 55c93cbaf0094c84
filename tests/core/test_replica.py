"""What a member does with the entries of the groups' logs, and with what replaces them."""

import pytest

from mdserver.core.commands import Connect, Subscribe
from mdserver.core.events import Delivery, Reset, Status, StatusName
from mdserver.core.images import GroupImage, SubjectImage
from mdserver.core.message import Entry, MessageType, Position, Publication
from mdserver.core.outputs import Deliver, Output, Send
from mdserver.core.settings import BrokerSettings
from tests.core.one_seed import OneSeed


def subscribed() -> OneSeed:
    seed = OneSeed(BrokerSettings(groups=1))
    seed.open(1)
    seed.receive(1, [Connect(), Subscribe(subjects=["/a/b"])])
    return seed


def entry(seq: int, epoch: int = 1) -> Entry:
    return Entry(epoch, seq, Publication("/a/b", b"%d" % seq), seq)


def delivered(outputs: list[Output]) -> list[Delivery]:
    return [output.delivery for output in outputs if isinstance(output, Deliver)]


def sent(outputs: list[Output]) -> list[object]:
    return [output.event for output in outputs if isinstance(output, Send)]


def shown(outputs: list[Output], session: int) -> list[str]:
    """What a session is sent: types of messages with their numbers, and statuses."""
    found = []
    for output in outputs:
        if isinstance(output, Send) and output.session == session:
            event = output.event
            if isinstance(event, Delivery):
                found.append(f"{event.type.value} {event.entry.seq}")
            elif isinstance(event, Status):
                last = f" {event.missing.last.seq}" if event.missing is not None else ""
                found.append(event.status.value + last)
    return found


def test_an_entry_that_comes_twice_is_delivered_once() -> None:
    seed = subscribed()
    assert [one.entry.seq for one in delivered(seed.commit([entry(1), entry(2)]))] == [1, 2]
    assert delivered(seed.commit([entry(1), entry(2)])) == []
    assert [one.entry.seq for one in delivered(seed.commit([entry(2), entry(3)]))] == [3]


def test_a_gap_of_the_numbering_is_named_so_that_nobody_takes_it_for_a_loss() -> None:
    seed = subscribed()
    deliveries = delivered(seed.commit([entry(1), entry(4, epoch=2), entry(5, epoch=2)]))
    assert [one.prev for one in deliveries] == [None, Position(1, 1), None]


def test_an_image_brings_what_was_missed_as_messages_if_it_has_them_all() -> None:
    seed = subscribed()
    seed.commit([entry(1)])
    image = SubjectImage("/a/b", 1, 3, 0, [entry(1), entry(2), entry(3)], entry(3))
    outputs = seed.take_over(0, GroupImage("h1", [image]))
    assert [one.entry.seq for one in delivered(outputs)] == [2, 3]
    assert sent(outputs) == []


def test_an_image_brings_the_range_that_is_lost_and_the_snapshot_otherwise() -> None:
    seed = subscribed()
    seed.commit([entry(1)])
    image = SubjectImage("/a/b", 1, 9, 8, [entry(9)], entry(9))
    lost, snapshot = sent(seed.take_over(0, GroupImage("h1", [image])))
    assert isinstance(lost, Status)
    assert lost.status is StatusName.DATA_RESYNC
    assert lost.missing is not None
    assert (lost.missing.first.seq, lost.missing.last.seq) == (2, 9)
    assert isinstance(snapshot, Delivery)
    assert (snapshot.type, snapshot.entry.seq) == (MessageType.SNAPSHOT, 9)


def test_an_image_of_another_history_resets_and_tells_no_range() -> None:
    seed = subscribed()
    seed.commit([entry(1)])
    image = SubjectImage("/a/b", 7, 9, 8, [entry(9, epoch=7)], entry(9, epoch=7))
    reset, snapshot = sent(seed.take_over(0, GroupImage("h2", [image])))
    assert reset == Reset(history="h2", subjects=["/a/b"])
    assert isinstance(snapshot, Delivery)
    assert seed.broker.history_of(0) == "h2"


@pytest.mark.parametrize(
    ("image", "came"),
    [
        (
            SubjectImage("/a/b", 1, 3, 0, [entry(1), entry(2), entry(3)], entry(3)),
            ["DATA_SYNC", "RECOVERED 1", "RECOVERED 2", "RECOVERED 3"],
        ),
        (SubjectImage("/a/b", 1, 3, 2, [entry(3)], entry(3)), ["DATA_RESYNC 3", "SNAPSHOT 3"]),
    ],
)
def test_who_subscribed_after_a_reset_is_not_one_whom_it_told(
    image: SubjectImage, came: list[str]
) -> None:
    seed = subscribed()
    seed.reset("h2", None)
    seed.pass_time(1)
    seed.open(2)
    seed.receive(2, [Connect(), Subscribe(subjects=["/a/b"])])
    outputs = seed.take_over(0, GroupImage("h2", [image]))
    assert shown(outputs, 1) == ["SNAPSHOT 3"]
    assert shown(outputs, 2) == came
