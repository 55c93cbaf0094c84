"""A flood costs its sender: what is read at once, explained and given to a step has a bound."""

import json
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mdserver import limits
from mdserver.codec.json_form import JSON
from mdserver.codec.reading import Unknown
from mdserver.codec.websocket import Pinged, Ponged, WebSocket, WebSocketMessage
from mdserver.core.commands import AnyCommand, Ping, PositionAfter, Subscribe, Unsubscribe
from mdserver.limits import (
    COMMANDS_PER_STEP,
    COMMANDS_PER_STEP_MAX,
    FRAMES_AT_ONCE,
    NS_PER_MS,
    SUBJECTS_PER_STEP,
    TURN_MS,
)
from mdserver.server.clients.session import portions
from mdserver.server.clients.turn import Turn
from mdserver.server.http.router import Router
from mdserver.server.settings import RateLimits, ServerSettings
from mdserver.server.tls import KeyStore
from tests.server.certificates import make_certificate
from tests.server.layers import Layer
from tests.server.raw import PING, PONG, TEXT, connected, frame, upgraded
from tests.server.serving import port_of, serving
from tests.server.tls_peer import OpenSsl

EMPTY_PING = frame(PING)


def test_of_a_run_of_empty_pings_the_last_is_answered() -> None:
    assert len(WebSocket(1000).feed(EMPTY_PING * 10_000)) == 1


def test_pings_and_pongs_around_messages_stay_in_order() -> None:
    ping, pong, text = EMPTY_PING, frame(PONG), frame(TEXT, b"x")
    events = WebSocket(1000).feed(ping * 3 + text + pong * 3 + ping * 2 + text)
    kinds = [type(event) for event in events]
    assert kinds == [Pinged, WebSocketMessage, Pinged, Ponged, WebSocketMessage]


@given(st.lists(st.integers(1, 60), max_size=8))
def test_empty_pings_in_any_pieces_are_all_read(cuts: list[int]) -> None:
    whole = EMPTY_PING * 20 + frame(TEXT, b"end")
    websocket = WebSocket(1000)
    events = []
    for cut in cuts:
        piece, whole = whole[:cut], whole[cut:]
        events += websocket.feed(piece)
    events += websocket.feed(whole)
    assert [event for event in events if isinstance(event, WebSocketMessage)] == [
        WebSocketMessage(b"end", True)
    ]


def test_only_so_much_is_read_at_once_and_nothing_is_lost() -> None:
    websocket = WebSocket(1000)
    sent = b"".join(frame(TEXT, b"%d" % number) for number in range(3 * FRAMES_AT_ONCE + 5))
    turns = [websocket.feed(sent)]
    while websocket.more:
        turns.append(websocket.feed(b""))
    assert max(map(len, turns)) == FRAMES_AT_ONCE
    read = [
        int(event.payload)
        for turn in turns
        for event in turn
        if isinstance(event, WebSocketMessage)
    ]
    assert read == list(range(3 * FRAMES_AT_ONCE + 5))


NAMES = st.sampled_from([f"/a/{number}" for number in range(900)] + ["/a/*", "/b/**"])
POSITIONS = st.dictionaries(NAMES, st.builds(PositionAfter, st.just("h"), st.just(1), st.just(2)))
SUBSCRIBES = st.builds(
    Subscribe,
    subjects=st.lists(NAMES, min_size=1, max_size=3 * SUBJECTS_PER_STEP),
    positions=POSITIONS,
)
UNSUBSCRIBES = st.builds(Unsubscribe, subjects=st.lists(NAMES, max_size=3 * SUBJECTS_PER_STEP))


@given(st.lists(SUBSCRIBES | UNSUBSCRIBES | st.builds(Ping), max_size=4))
def test_steps_hold_a_bounded_number_of_subjects_and_say_the_same(
    commands: Sequence[AnyCommand],
) -> None:
    steps = list(portions(commands))
    for step in steps:
        assert sum(len(getattr(one, "subjects", ())) for one in step) <= SUBJECTS_PER_STEP
    said: list[tuple[type, str]] = []
    for command in commands:
        said += [(type(command), name) for name in dict.fromkeys(getattr(command, "subjects", ()))]
    parts = [one for step in steps for one in step]
    assert set(said) == {
        (type(one), name) for one in parts for name in getattr(one, "subjects", ())
    }
    for part in parts:
        if isinstance(part, Subscribe) and part not in commands:
            for name in part.positions or {}:
                assert name in part.subjects or any("*" in one for one in part.subjects)


def test_positions_go_with_their_subject_or_with_every_pattern() -> None:
    after = PositionAfter("h", 1, 2)
    subjects = [f"/a/{number}" for number in range(SUBJECTS_PER_STEP)] + ["/b/*"]
    positions = {"/a/3": after, "/b/x": after}
    first, second = [
        one
        for step in portions([Subscribe(subjects=subjects, positions=positions, id=7)])
        for one in step
    ]
    assert isinstance(first, Subscribe)
    assert isinstance(second, Subscribe)
    assert (first.positions, second.positions) == ({"/a/3": after}, {"/b/x": after})
    assert first.id == second.id == 7


def test_steps_grow_while_they_are_cheap_and_begin_anew_after_a_long_one() -> None:
    now = 0
    turn = Turn(lambda: now)
    turn.begin()
    sizes = []
    for _ in range(4):
        sizes.append(turn.step)
        assert not turn.size_step(many=False, full=True)
    assert sizes == [COMMANDS_PER_STEP, 2 * COMMANDS_PER_STEP, *[COMMANDS_PER_STEP_MAX] * 2]
    now = TURN_MS * NS_PER_MS
    assert turn.size_step(many=False, full=True), "the others wait"
    assert turn.step == COMMANDS_PER_STEP_MAX
    now *= 2
    assert turn.size_step(many=False, full=False)
    assert turn.step == COMMANDS_PER_STEP, "one step alone took a turn"
    turn.begin()
    assert not turn.size_step(many=False, full=False)
    assert turn.step == COMMANDS_PER_STEP, "a small step proves nothing"
    turn.size_step(many=False, full=True)
    assert turn.size_step(many=True, full=True)
    assert turn.step == COMMANDS_PER_STEP, "much was delivered"


def test_the_nearest_name_is_looked_for_a_few_times_only() -> None:
    first = JSON.commands(b"[" + b",".join([b'{"op":"subscrib"}'] * 5) + b"]")
    hinted = ["nearest" in one.reason for one in first]  # type: ignore[union-attr]
    assert hinted == [True, True, True, False, False]
    sender = Unknown()
    sender.mistakes = 3
    (later,) = JSON.commands(b'{"op":"subscrib"}', sender)
    assert "nearest" not in later.reason  # type: ignore[union-attr]


@pytest.mark.parametrize("together", [True, False], ids=["in one message", "in many"])
async def test_a_session_of_nothing_but_mistakes_is_closed_with_4100(together: bool) -> None:
    bad = b'{"op":"subscrib"}'
    async with serving() as server, upgraded(port_of(server)) as client:
        if together:
            await client.send(frame(TEXT, b"[" + b",".join([bad] * 60) + b"]") * 2)
        else:
            await client.send(frame(TEXT, bad) * (limits.MALFORMED_MAX + 1))
        assert await client.closed_with() == 4100


async def test_the_mistakes_of_a_stream_count_over_all_that_is_posted() -> None:
    def posted(path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async with serving(handler=Router()) as server, connected(port_of(server)) as stream:
        await stream.send(posted("/stream", b'{"op":"connect"}'))
        found = (await stream.until(b"}\n")).rpartition(b"\r\n")[2]
        path = json.loads(found)["path"]
        for _ in range(2):
            async with connected(port_of(server)) as giver:
                await giver.send(posted(path, b'{"op":"subscrib"}\n' * 60))
                assert (await giver.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 202 ")
        assert b'"code":4100' in await stream.until(b"0\r\n\r\n")


async def test_a_session_beyond_its_rate_is_read_more_slowly_and_not_ended() -> None:
    settings = evolve(ServerSettings(), rates=RateLimits(commands=100))
    async with (
        serving(settings) as server,
        upgraded(port_of(server)) as client,
        upgraded(port_of(server)) as other,
    ):
        begun = time.monotonic()
        pings = [frame(TEXT, b'{"op":"ping","t":%d}' % number) for number in range(300)]
        await client.send(b"".join(pings[:200]))
        await client.until(b'"t":199}')
        await client.send(b"".join(pings[200:]))  # a second later than a server without a rate
        await other.send(pings[0])
        await other.until(b'"t":0}')
        await client.until(b'"t":299}')
        assert time.monotonic() - begun >= 0.9


async def test_tls_messages_without_data_end_the_connection(tmp_path: Path) -> None:
    """A stranger that makes new keys, and sends nothing that is for the server, is sent away."""
    openssl = OpenSsl()
    pem = make_certificate(tmp_path / "server.pem")
    layer = Layer(ssl.create_default_context(cafile=str(pem)), KeyStore(pem))
    async with serving(layer.settings(ServerSettings()), handler=Router()) as server:
        async with connected(layer.port(server), tls=layer.context, timeout=60) as client:
            stream = client.stream
            assert isinstance(stream, trio.SSLStream)
            await stream.do_handshake()
            for _ in range(2 * limits.RECORDS_WITHOUT_DATA_BYTES_MAX // 27):
                openssl.key_update(stream._ssl_object, answer=False)
            with suppress(trio.BrokenResourceError):
                await stream.transport_stream.send_all(stream._outgoing.read())
            assert await client.rest() == b""
        async with upgraded(layer.port(server), tls=layer.context) as other:
            await other.send(frame(TEXT, b'{"op":"ping","t":1}'))
            assert b"pong" in (await other.frame())[1]
