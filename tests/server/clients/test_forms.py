"""How frames are put into WebSocket messages."""

import json

import pytest

from mdserver.codec.json_form import JSON
from mdserver.limits import WEBSOCKET_MESSAGE_BYTES as LIMIT
from mdserver.server.clients.forms import WebSocketForm, portions


def frame_of(number: int, size: int) -> bytes:
    text = str(number)
    return b'"' + text.encode() + b"x" * (size - 2 - len(text)) + b'"'


@pytest.mark.parametrize("joining", range(-1, 6))
def test_messages_stay_within_the_limit_with_what_joins_their_frames(joining: int) -> None:
    """The frames alone are as long as a message may be, so commas and brackets decide."""
    frames = [frame_of(0, 1000), frame_of(1, 1000), frame_of(2, LIMIT - 2000 - joining)]
    wire = WebSocketForm(JSON).wire(frames)
    found: list[str] = []
    at = 0
    while at < len(wire):
        length = {126: 2, 127: 8}.get(wire[at + 1], 0)
        begin = at + 2 + length
        size = int.from_bytes(wire[at + 2 : begin], "big") if length else wire[at + 1]
        assert size <= LIMIT
        read = json.loads(wire[begin : begin + size])
        found += read if isinstance(read, list) else [read]
        at = begin + size
    assert [one.encode() for one in found] == [frame[1:-1] for frame in frames]


def test_a_frame_longer_than_a_run_is_alone() -> None:
    assert list(portions([b"a" * 20, b"b", b"c"], 10)) == [[b"a" * 20], [b"b", b"c"]]
