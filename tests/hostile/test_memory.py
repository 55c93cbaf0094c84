"""What clients have the server keep is counted, bounded, and given back."""

import json
from typing import Any

import pytest
import trio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mdserver.core.entitlement import Policy
from mdserver.core.inputs import Authorized, Grants
from mdserver.core.outputs import Authorize
from mdserver.core.settings import BrokerSettings
from mdserver.limits import FIRST_BYTES_MAX, KB, MB, NS_PER_MS
from mdserver.server.clients.budget import Budget, Share
from mdserver.server.http.router import Router
from mdserver.server.settings import ServerSettings
from tests.server.raw import TEXT, connected, frame, upgraded
from tests.server.serving import authorize, port_of, serving

ASKING = BrokerSettings(policy=Policy.ASK)
GUARDED = evolve(ServerSettings(), tokens_decide=True)
EVERYTHING = Grants(("/**",), ("/**",), expires=2**62)


def publication(size: int) -> bytes:
    return json.dumps({"op": "publish", "subject": "/a/b", "content": "x" * size}).encode()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2000)), max_size=40))
def test_a_budget_is_never_exceeded_and_is_whole_again_at_the_end(
    holds: list[tuple[int, int]],
) -> None:
    budget = Budget(3000)
    shares = [Share(budget, 100, stranger=index < 2) for index in range(4)]
    held = [0] * 4
    for index, size in holds:
        if shares[index].hold(size):
            held[index] = max(0, size - 100)
        assert budget.taken == sum(held) <= 3000
        assert budget.strangers == sum(held[:2]) <= 1500
    shares[0].admit()
    assert (budget.taken, budget.strangers) == (sum(held), held[1])
    for share in shares:
        share.hold(0)
    assert (budget.taken, budget.strangers) == (0, 0)


async def test_strangers_that_finish_nothing_leave_room_for_others() -> None:
    settings = evolve(
        ServerSettings(), close_timeout=200 * NS_PER_MS, unfinished_bytes_max=400 * KB
    )
    async with serving(settings) as server:
        context = server.context
        endings: list[bytes] = []

        async def unfinished() -> None:
            async with upgraded(port_of(server), timeout=20) as client:
                await client.send(frame(TEXT, b"[" + b" " * 100 * KB)[:-1])
                endings.append(await client.rest())

        async with trio.open_nursery() as nursery:
            async with upgraded(port_of(server)) as known:
                await known.send(frame(TEXT, b'{"op":"ping"}'))
                await known.frame()
                for _ in range(10):
                    nursery.start_soon(unfinished)
                with trio.fail_after(5):
                    while len(endings) < 8:
                        await trio.testing.wait_all_tasks_blocked(0.01)
                assert all(int.from_bytes(end[2:4], "big") == 1013 for end in endings)
                await known.send(frame(TEXT, publication(60 * KB) + b" ")[:-1])
                await known.send(frame(TEXT, publication(60 * KB) + b" ")[-1:])
                await known.send(frame(TEXT, b'{"op":"ping","t":5}'))
                await known.until(b'"t":5')
            nursery.cancel_scope.cancel()
    with trio.fail_after(5):
        while server.connections:
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert context.unfinished.taken == 0


async def test_bodies_that_never_end_are_answered_with_503_beyond_the_budget() -> None:
    head = b"POST /rest/produce?subject=/a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000"
    settings = evolve(ServerSettings(), unfinished_bytes_max=400 * KB)
    async with (
        serving(settings, handler=Router()) as server,
        connected(port_of(server)) as first,
        connected(port_of(server)) as second,
    ):
        await first.send(head + b"\r\n\r\n" + b"x" * 150 * KB)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await second.send(head + b"\r\n\r\n" + b"x" * 150 * KB)
        assert (await second.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 503 Service")


async def test_before_a_token_is_accepted_messages_are_short_and_afterwards_long() -> None:
    async with serving(GUARDED, ASKING) as server:
        authorize(server, lambda ask: grant(server, ask))
        async with upgraded(port_of(server)) as stranger:
            await stranger.send(frame(TEXT, b"", length=FIRST_BYTES_MAX + 1))
            assert await stranger.closed_with() == 1009
        async with upgraded(port_of(server)) as client:
            # In one piece: what comes behind `connect` is judged when that has been handled.
            connect = frame(TEXT, b'{"op":"connect","token":"t"}')
            large = frame(TEXT, b"[" + publication(60 * KB) + b"," + publication(60 * KB) + b"]")
            await client.send(connect + large + frame(TEXT, b'{"op":"ping","t":9}'))
            await client.until(b'"t":9')


def grant(server: Any, ask: Authorize) -> None:
    server.sessions.authorizations.answer(Authorized(ask.request, EVERYTHING))


async def test_while_a_verdict_is_awaited_a_client_is_not_read_without_end() -> None:
    """Admitted or not: what a client sends meanwhile waits in the sockets."""
    asked: list[Authorize] = []
    broker = BrokerSettings(policy=Policy.ASK, ask_each=True)
    settings = evolve(GUARDED, receive_bytes_max=128 * KB)
    async with serving(settings, broker) as server:
        authorize(server, asked.append)
        async with upgraded(port_of(server), timeout=30) as client, trio.open_nursery() as nursery:
            await client.send(frame(TEXT, b'{"op":"connect","token":"t"}'))
            nursery.start_soon(client.send, frame(TEXT, publication(1000)) * 20_000)
            await trio.testing.wait_all_tasks_blocked(0.1)
            assert server.sessions.traffic.received < 256 * KB
            grant(server, asked.pop(0))
            await trio.testing.wait_all_tasks_blocked(0.1)
            # Admitted, and the first publication is asked about: up to the bound, and no further.
            assert server.sessions.traffic.received < 1 * MB
            while True:
                while asked:
                    grant(server, asked.pop(0))
                await trio.testing.wait_all_tasks_blocked(0.001)
                if server.sessions.traffic.received > 20 * MB and not asked:
                    break
            nursery.cancel_scope.cancel()


async def test_a_session_that_never_connects_is_closed_where_tokens_decide() -> None:
    settings = evolve(GUARDED, handshake_timeout=200 * NS_PER_MS)
    async with serving(settings, ASKING) as server:
        authorize(server, lambda ask: grant(server, ask))
        async with upgraded(port_of(server)) as silent, upgraded(port_of(server)) as client:
            await client.send(frame(TEXT, b'{"op":"connect","token":"t"}'))
            assert await silent.closed_with() == 4101
            await client.send(frame(TEXT, b'{"op":"ping","t":1}'))
            await client.until(b'"t":1')


async def test_a_session_that_waits_for_its_verdict_is_not_closed_for_that() -> None:
    asked: list[Authorize] = []
    settings = evolve(GUARDED, handshake_timeout=200 * NS_PER_MS)
    async with serving(settings, ASKING) as server:
        authorize(server, asked.append)
        async with upgraded(port_of(server)) as client:
            await client.send(frame(TEXT, b'{"op":"connect","token":"t"}'))
            with trio.fail_after(30):
                while not asked:
                    await trio.testing.wait_all_tasks_blocked()
            async with upgraded(port_of(server)) as later:
                assert await later.closed_with() == 4101, "the time of both is over"
            grant(server, asked.pop())
            await client.until(b'"connected"')


async def test_a_long_history_is_sent_in_parts_to_those_who_read_and_counted_for_all() -> None:
    get = b"GET /rest/consume?subject=/a/b&history=200 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    settings = evolve(ServerSettings(), answers_bytes_max=30 * MB)
    async with serving(settings, handler=Router()) as server:
        answers = server.context.answers
        async with upgraded(port_of(server)) as publisher:
            for _ in range(100):
                await publisher.send(frame(TEXT, publication(60_000)))
            await publisher.send(frame(TEXT, b'{"op":"ping","t":1}'))
            await publisher.until(b'"t":1')
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(stall, port_of(server), get)
            await trio.testing.wait_all_tasks_blocked(0.2)
            assert 11 * MB < answers.taken < 13 * MB
            async with connected(port_of(server)) as third:
                await third.send(get)
                assert (await third.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            while answers.taken:
                await trio.testing.wait_all_tasks_blocked(0.01)
        async with connected(port_of(server)) as reader:
            await reader.send(get.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n"))
            head, _, body = (await reader.rest()).partition(b"\r\n\r\n")
            assert b"transfer-encoding: chunked" in head.lower()
            assert len(json.loads(unchunked(body))["messages"]) == 100


async def stall(port: int, get: bytes) -> None:
    async with connected(port, 60) as client:
        await client.send(get)
        await trio.sleep_forever()


def unchunked(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        out += body[:length]
        body = body[length + 2 :]
    return out


async def test_what_is_posted_to_a_stream_waits_for_the_verdict_outside_the_node() -> None:
    asked: list[Authorize] = []
    async with serving(GUARDED, ASKING, handler=Router()) as server:
        authorize(server, asked.append)
        async with connected(port_of(server), 30) as stream, connected(port_of(server)) as other:
            connect = b'{"op":"connect","token":"t"}\n'
            await stream.send(posted(b"/stream", connect))
            await stream.until(b"\r\n\r\n")
            path = f"/stream/{next(iter(server.sessions.streams))}".encode()
            await other.send(posted(path, publication(1000) + b'\n{"op":"ping","t":7}'))
            await trio.testing.wait_all_tasks_blocked(0.1)
            (session,) = server.sessions.streams.values()
            assert session in server.sessions.authorizations.pending
            with pytest.raises(trio.TooSlowError), trio.fail_after(0.2):
                await other.until(b"HTTP/1.1 202 ")
            grant(server, asked.pop())
            await other.until(b"HTTP/1.1 202 ")
            await stream.until(b'"t":7')


def posted(path: bytes, body: bytes) -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
    return head % (path, len(body)) + body
