"""What the policies for slow consumers make of a backlog."""

import os
import tracemalloc
from collections.abc import Iterable

import pytest

from mdserver.config import SlowConsumerPolicy
from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType, Position, Publication, Qos
from mdserver.limits import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from mdserver.server.clients.forms import WEBSOCKET_FORMS
from mdserver.server.clients.slow_consumer_queue import SlowConsumerQueue


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


def backlog(
    items: Iterable[Delivery | bytes], subprotocol: str = SUBPROTOCOL_JSON
) -> SlowConsumerQueue:
    made = SlowConsumerQueue(WEBSOCKET_FORMS[subprotocol])
    for item in items:
        made.add(item)
    return made


def contents(held: SlowConsumerQueue) -> list[str]:
    return [
        item.decode() if isinstance(item, bytes) else item.entry.publication.content.decode()
        for item in held.take(10**9)
    ]


@pytest.mark.parametrize("fields", [None, {"bid": "101.25", "ask": "101.50", "size": "300"}])
@pytest.mark.parametrize("content_bytes", [16, 128, 1024])
@pytest.mark.parametrize("subprotocol", WEBSOCKET_FORMS)
def test_its_size_is_the_memory_that_it_takes(
    subprotocol: str, content_bytes: int, fields: dict[str, str] | None
) -> None:
    held = SlowConsumerQueue(WEBSOCKET_FORMS[subprotocol])
    tracemalloc.start()
    try:
        while held.size < 1_000_000:
            held.add(fresh(fields, content_bytes))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held.size / 2 < taken < held.size * 1.2


def fresh(fields: dict[str, str] | None, content_bytes: int) -> Delivery:
    """A message that shares nothing with others but its subject, as a busy publisher's."""
    own = None if fields is None else {name: value + "." for name, value in fields.items()}
    publication = Publication(
        "/a/b",
        os.urandom(content_bytes // 2).hex().encode(),
        fields=own,
        publisher="p",
        number=10**6,
        time=10**18 + content_bytes,
    )
    return Delivery(Entry(1, 10**6 + 1, publication), MessageType.UPDATE, None, Position(1, 10**6))


@pytest.mark.parametrize("subprotocol", WEBSOCKET_FORMS)
def test_taking_gives_frames_of_so_many_bytes(subprotocol: str) -> None:
    form = WEBSOCKET_FORMS[subprotocol]
    items = [update(1), b"an event", update(2)]
    held = backlog(items, subprotocol)
    assert held.take(len(form.delivery(update(1))) + 1) == items[:2]
    assert held.size == backlog(items[2:], subprotocol).size
    assert held.take(10**9) == items[2:]
    assert (held.size, bool(held)) == (0, False)


def test_disconnect_leaves_all_as_it_is() -> None:
    held = backlog(update(seq) for seq in (1, 2, 3))
    assert not held.apply_policy(SlowConsumerPolicy.DISCONNECT, held.size - 1)
    assert contents(held) == ["content 1", "content 2", "content 3"]


def test_dropping_takes_the_oldest_standard_messages_and_no_more_than_needed() -> None:
    standard = Qos.STANDARD
    held = backlog(
        [
            update(1, qos=standard),
            update(2),
            update(3, qos=standard),
            b"event",
            update(4, qos=standard),
        ]
    )
    assert held.apply_policy(SlowConsumerPolicy.DROP_STANDARD, held.size - 900)
    assert contents(held) == ["content 2", "content 3", "event", "content 4"]


def test_dropping_does_not_help_against_guaranteed_messages() -> None:
    held = backlog(update(seq) for seq in range(10))
    assert not held.apply_policy(SlowConsumerPolicy.DROP_STANDARD, 100)
    assert len(contents(held)) == 10


def test_conflating_keeps_the_latest_content_the_union_of_fields_and_the_last_position() -> None:
    held = backlog(
        [
            update(1, fields={"bid": "1", "ask": "2"}),
            update(7, "/c/d"),
            update(2),
            update(3, fields={"bid": "3"}),
        ]
    )
    assert held.apply_policy(SlowConsumerPolicy.CONFLATE, held.size)
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
    held.apply_policy(SlowConsumerPolicy.CONFLATE, 0)
    assert contents(held) == ["content 2", "event", "content 3"]


def test_binary_frames_are_conflated_as_well() -> None:
    held = backlog((update(seq) for seq in range(100)), SUBPROTOCOL_BINARY)
    assert held.apply_policy(SlowConsumerPolicy.CONFLATE, 1000)
    assert contents(held) == ["content 99"]
