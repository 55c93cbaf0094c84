"""What the policies for slow consumers make of a backlog."""

from collections.abc import Iterable

import pytest

from mdserver.config import SlowConsumerPolicy
from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType, Publication, Qos
from mdserver.limits import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from mdserver.net.backlog import Backlog
from mdserver.net.forms import WEBSOCKET_FORMS


def update(
    seq: int,
    subject: str = "/a/b",
    *,
    qos: Qos = Qos.GUARANTEED,
    fields: dict[str, str] | None = None,
    kind: MessageType = MessageType.UPDATE,
) -> Delivery:
    publication = Publication(subject, b"content %d" % seq, fields=fields, qos=qos)
    standard = qos is Qos.STANDARD
    return Delivery(Entry(0 if standard else 1, 0 if standard else seq, publication), kind)


def backlog(items: Iterable[Delivery | bytes], subprotocol: str = SUBPROTOCOL_JSON) -> Backlog:
    made = Backlog(WEBSOCKET_FORMS[subprotocol])
    for item in items:
        made.add(item)
    return made


def contents(held: Backlog) -> list[str]:
    return [
        item.decode() if isinstance(item, bytes) else item.entry.publication.content.decode()
        for item in held.take(10**9)
    ]


@pytest.mark.parametrize("subprotocol", WEBSOCKET_FORMS)
def test_its_size_is_that_of_the_frames(subprotocol: str) -> None:
    form = WEBSOCKET_FORMS[subprotocol]
    items = [update(1), b"an event", update(2)]
    held = backlog(items, subprotocol)
    frames = [item if isinstance(item, bytes) else form.delivery(item) for item in items]
    assert held.size == sum(map(len, frames))
    assert held.take(1) == items[:1]
    assert held.size == len(frames[1]) + len(frames[2])
    assert held.take(10**9) == items[1:]
    assert (held.size, bool(held)) == (0, False)


def test_disconnect_leaves_all_as_it_is() -> None:
    held = backlog(update(seq) for seq in (1, 2, 3))
    assert not held.relieve(SlowConsumerPolicy.DISCONNECT, held.size - 1)
    assert contents(held) == ["content 1", "content 2", "content 3"]


def test_dropping_takes_the_oldest_standard_messages_and_no_more_than_needed() -> None:
    standard = Qos.STANDARD
    held = backlog(
        [update(1, qos=standard), update(2), update(3, qos=standard), b"event",
         update(4, qos=standard)]
    )  # fmt: skip
    assert held.relieve(SlowConsumerPolicy.DROP_STANDARD, held.size - 60)
    assert contents(held) == ["content 2", "content 3", "event", "content 4"]


def test_dropping_does_not_help_against_guaranteed_messages() -> None:
    held = backlog(update(seq) for seq in range(10))
    assert not held.relieve(SlowConsumerPolicy.DROP_STANDARD, 100)
    assert len(contents(held)) == 10


def test_conflating_keeps_the_latest_content_the_union_of_fields_and_the_last_position() -> None:
    held = backlog(
        [update(1, fields={"bid": "1", "ask": "2"}), update(7, "/c/d"), update(2),
         update(3, fields={"bid": "3"})]
    )  # fmt: skip
    assert held.relieve(SlowConsumerPolicy.CONFLATE, held.size)
    other, last = held.take(10**9)
    assert isinstance(other, Delivery)
    assert isinstance(last, Delivery)
    assert other.entry.publication.subject == "/c/d"
    assert (last.entry.seq, last.entry.publication.content) == (3, b"content 3")
    assert last.entry.publication.fields == {"bid": "3", "ask": "2"}
    assert last.type is MessageType.UPDATE


def test_conflating_keeps_the_order_of_a_subject() -> None:
    """An update stays behind a snapshot that came after an earlier update."""
    held = backlog([update(1), update(2, kind=MessageType.SNAPSHOT), b"event", update(3)])
    held.relieve(SlowConsumerPolicy.CONFLATE, 0)
    assert contents(held) == ["content 2", "event", "content 3"]


def test_binary_frames_are_conflated_as_well() -> None:
    held = backlog((update(seq) for seq in range(100)), SUBPROTOCOL_BINARY)
    assert held.relieve(SlowConsumerPolicy.CONFLATE, 200)
    assert contents(held) == ["content 99"]
