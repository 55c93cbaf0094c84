"""Centrifugo: a line for each answer."""

import pytest

from mdserver.bench.adapters.centrifugo import Centrifugo
from mdserver.bench.verify import content
from mdserver.core.events import MessageEvent
from mdserver.errors import RemoteProtocolError


def push(number: int) -> bytes:
    return b'{"push":{"channel":"c","pub":{"data":"%s"}}}' % content(number, 20).encode()


def test_a_websocket_message_may_have_many_answers() -> None:
    joined = b'{"push":{"channel":"c","join":{}}}'
    events = Centrifugo().events(b"\n".join([push(1), b'{"id":3,"publish":{}}', joined, push(2)]))
    assert [event.seq for event in events if isinstance(event, MessageEvent)] == [1, 2]
    assert len(events) == 2


def test_what_is_no_answer_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError, match="Centrifugo"):
        Centrifugo().events(b'{"push":{"pub":{"data":7}}}')
