"""What a client of a chaos run writes down, judged as a chaos run judges it."""

import random
from collections import Counter
from typing import Any

import pytest
import trio

from mdserver.client.core import values
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType
from simulation.chaos.clients import RecordedClient
from simulation.checker import Checker
from simulation.history import Acked, Confirmed, Event, Published
from simulation.recording import Recorder

SUBJECT = "/s/1"


def first(seq: int, type_: MessageType = MessageType.UPDATE) -> values.DeliverMessages:
    message = MessageEvent(subject=SUBJECT, type=type_, content=f"p{seq}", epoch=1, seq=seq)
    return values.DeliverMessages([message])


def judged(*outputs: values.Output, **settings: Any) -> tuple[list[str], list[Event]]:
    """A client that takes these, of a subject to which two messages were published meanwhile."""
    checker, events = Checker(), list[Event]()

    def see(event: Event) -> None:
        events.append(event)
        checker.see(event)

    async def take() -> None:
        recorder = Recorder("sub0", see, Counter[str]().update)
        client = RecordedClient(
            recorder,
            ["ws://127.0.0.1:1"],
            "json",
            "websocket",
            random.Random(1),
            lambda *_: None,
            **settings,
        )
        client.subscribe(SUBJECT)
        client.take(outputs[0])
        await trio.sleep(0.01)  # what is published at the time of the confirmation may be before it
        for seq in (1, 2):
            now = int(trio.current_time() * 10**9)
            see(Published(now, f"p{seq}", SUBJECT))
            see(Acked(now, f"p{seq}", SUBJECT, "", 1, seq))
        for output in outputs[1:]:
            client.take(output)

    trio.run(take)
    return [found.kind for found in checker.finish()], events


@pytest.mark.parametrize("type_", [MessageType.UPDATE, MessageType.SNAPSHOT])
def test_a_hole_before_the_first_message_of_a_confirmed_subscription_is_found(
    type_: MessageType,
) -> None:
    kinds, events = judged(values.Subscribed([SUBJECT]), first(2, type_))

    assert kinds == ["skip"]
    assert [event.client for event in events if isinstance(event, Confirmed)] == ["sub0"]


def test_a_confirmed_subscription_without_a_hole_passes() -> None:
    assert judged(values.Subscribed([SUBJECT]), first(1), first(2))[0] == []


def test_members_of_the_release_before_do_not_say_where_a_subject_stood() -> None:
    kinds, events = judged(values.Subscribed([SUBJECT]), first(2), told_where=False)

    assert kinds == []
    assert not [event for event in events if isinstance(event, Confirmed)]
