"""The client against the real server, over loopback sockets, in both encodings."""

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from mdserver.client import (
    Client,
    MessageType,
    Notification,
    Numbering,
    PublishError,
    Qos,
    ReconnectSettings,
)
from mdserver.cluster.node import Node
from mdserver.core.entitlement import Policy
from mdserver.core.outputs import Log
from mdserver.core.settings import BrokerSettings
from mdserver.server.http.router import Router
from tests.server.serving import serving

EVERYTHING = BrokerSettings(policy=Policy.NONE)


@pytest.fixture
async def server() -> AsyncIterator[Any]:
    async with serving(broker=EVERYTHING, handler=Router()) as running:
        yield running


@pytest.fixture(
    params=[("binary", "websocket"), ("json", "websocket"), ("binary", "http"), ("json", "http")],
    ids=" over ".join,
)
def way(request: Any) -> dict[str, Any]:
    encoding, transport = request.param
    return {"encoding": encoding, "transport": transport}


def client(server: Any, way: dict[str, Any], **options: Any) -> Client:
    return Client(server.urls, **way, **options)


async def take(source: Any, count: int = 1) -> list[Any]:
    with trio.fail_after(10):
        return [await anext(source) for _ in range(count)]


async def test_a_later_run_of_a_publisher_goes_on_where_the_first_one_kept_its_numbering(
    server: Any, way: dict[str, Any]
) -> None:
    subjects = ["/a/one", "/a/two", "/a/one", "/a/one"]
    async with client(server, way, publisher="p") as first:
        assert first.numbering == Numbering()
        for content, subject in enumerate(subjects[:2]):
            await first.publish(subject, str(content))
        kept = first.numbering
        assert sorted(kept.taken.values()) == [1, 1]
        await first.publish("/a/one", "2")
    async with client(server, way, publisher="p", numbering=kept) as second:
        again = await second.publish("/a/one", "2")
        following = await second.publish("/a/one", "3")
        assert (again.duplicate, again.seq) == (True, 2)
        assert (following.duplicate, following.seq) == (False, 3)
        assert sorted(second.numbering.taken.values()) == [1, 3]
    behind = Numbering(kept.groups, dict.fromkeys(kept.taken, 7))
    async with client(server, way, publisher="unknown", numbering=behind) as third:
        assert (await third.publish("/a/one", "4")).seq == 4


async def test_snapshot_then_live(server: Any, way: dict[str, Any]) -> None:
    async with client(server, way) as it:
        first = await it.publish("/stocks/A", "193", fields={"volume": "6.62M"})
        second = await it.publish("/stocks/A", "192", closure="c")
        assert (first.seq, second.seq) == (1, 2)
        async with it.subscribe("/stocks/A") as subscription:
            [snapshot] = await take(subscription)
            assert snapshot.type is MessageType.SNAPSHOT
            assert (snapshot.content, snapshot.fields) == ("192", {"volume": "6.62M"})
            await it.publish("/stocks/A", b"\0\xff", qos=Qos.STANDARD)
            await it.publish("/stocks/A", "191", reply_subject="/r/1", retained=False)
            standard, update = await take(subscription, 2)
        assert (standard.content, standard.position) == (b"\0\xff", None)
        assert (update.content, update.reply_subject) == ("191", "/r/1")
        assert (update.position.seq, update.type) == (3, MessageType.UPDATE)


async def test_history_wildcards_and_the_end_of_a_subscription(
    server: Any, way: dict[str, Any]
) -> None:
    async with client(server, way) as it:
        for number in range(5):
            await it.publish(f"/w/{number % 2}", str(number))
        history = it.subscribe_with_history(["/w/*"], 2)
        messages = await take(history, 4)
        assert sorted(m.content for m in messages) == ["1", "2", "3", "4"]
        assert {m.match for m in messages} == {"/w/*"}
        assert {m.type for m in messages} == {MessageType.HISTORICAL}
        history.end()
        await it.publish("/w/0", "unheard")
        async with it.subscribe("/w/1") as live:
            await live.confirmed()
            await it.publish("/w/0", "unheard")
            await it.publish("/w/1", "heard")
            assert [m.content for m in await take(live, 2)] == ["3", "heard"]
        assert [m async for m in history] == []


async def test_many_publications_in_order(server: Any, way: dict[str, Any]) -> None:
    async with client(server, way) as it, it.subscribe("/many/*") as subscription:
        await subscription.confirmed()
        for number in range(5000):
            await it.submit(f"/many/{number % 7}", str(number))
        await it.settled()
        messages = await take(subscription, 5000)
        for remainder in range(7):
            contents = [int(m.content) for m in messages if m.subject == f"/many/{remainder}"]
            assert contents == list(range(remainder, 5000, 7))


async def test_refusals(server: Any, way: dict[str, Any]) -> None:
    async with client(server, way) as it:
        with pytest.raises(PublishError, match="does not start"):
            await it.publish("nonsense", "x")
        with pytest.raises(PublishError, match="MESSAGE_SIZE_LIMIT_EXCEEDED"):
            await it.publish("/a/b", "x" * 70_000)
        await it.publish("/a/b", "fine")


async def test_the_allow_token(way: dict[str, Any]) -> None:
    broker = BrokerSettings(policy=Policy.BASIC, allow_token="secret")
    async with serving(broker=broker, handler=Router()) as server, client(server, way) as it:
        with pytest.raises(PublishError, match="PUBLISH_DENIED"):
            await it.publish("/a/b", "x")
        it.set_entitlement_token("secret")
        await it.publish("/a/b", "x")
        it.set_entitlement_token("wrong")
        with trio.fail_after(10):
            async for notice in it.statuses:
                if notice.status is Notification.TOKEN_INVALID:
                    break


async def test_request_and_reply(server: Any, way: dict[str, Any]) -> None:
    async with (
        client(server, way) as asking,
        client(server, way) as answering,
        answering.subscribe("/service/square") as questions,
        trio.open_nursery() as nursery,
    ):
        await questions.confirmed()

        async def answer() -> None:
            async for question in questions:
                await answering.reply(question, str(int(question.content) ** 2))

        nursery.start_soon(answer)
        replies = [await asking.request("/service/square", str(n), timeout_s=None) for n in (2, 3)]
        assert [reply.content for reply in replies] == ["4", "9"]
        nursery.cancel_scope.cancel()


async def test_the_presence_log_knows_the_external_token(way: dict[str, Any]) -> None:
    node = Watched(BrokerSettings(policy=Policy.NONE, presence=True), random.Random(1))
    async with serving(node=node, handler=Router()) as server, client(server, way) as it:
        it.disconnect()
        it.set_external_token("device 7")
        it.connect()
        async with it.subscribe("/a/b") as subscription:
            with trio.fail_after(10):
                await subscription.confirmed()
    joined = [log.values for log in node.logs if log.name == "join"]
    assert [(values["subject"], values["external_token"]) for values in joined] == [
        ("/a/b", "device 7")
    ]


class Watched(Node):
    """Keeps what the core had for the logs."""

    def __init__(self, settings: BrokerSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self.logs: list[Log] = []

    def step(self, input: Any, now: int) -> list[Any]:  # noqa: A002 - the design's word
        outputs = super().step(input, now)
        self.logs += [output for output in outputs if isinstance(output, Log)]
        return outputs


async def test_conflation(server: Any, way: dict[str, Any]) -> None:
    async with client(server, way) as it:
        subscription = it.subscribe_with_conflation(["/c/1"], 300)
        await subscription.confirmed()
        await it.publish("/c/1", "1", fields={"a": "1"})
        await it.publish("/c/1", "2", fields={"b": "2"})
        [message] = await take(subscription)
        assert (message.content, message.fields) == ("2", {"a": "1", "b": "2"})


async def test_pause_and_resume_recover(server: Any, way: dict[str, Any]) -> None:
    async with client(server, way) as it, client(server, way) as other:
        subscription = it.subscribe("/p/1", "/p/x/**")
        await subscription.confirmed()
        await other.publish("/p/1", "1")
        await take(subscription)
        it.pause()
        for number in range(2, 5):
            await other.publish("/p/1", str(number))
        it.resume()
        messages = await take(subscription, 3)
        assert [(m.content, m.type.name) for m in messages] == [
            ("2", "RECOVERED"),
            ("3", "RECOVERED"),
            ("4", "RECOVERED"),
        ]


async def test_a_pattern_over_very_many_subjects_recovers_all(
    server: Any, way: dict[str, Any]
) -> None:
    async with (
        client(server, way) as it,
        client(server, way) as other,
        it.subscribe("/very/**") as subscription,
    ):
        await subscription.confirmed()
        for word in ("first", "second", "third"):
            for number in range(1500):
                await other.submit(f"/very/{number}", word)
            await other.settled()
            if word == "first":
                with trio.fail_after(30):
                    assert len([await anext(subscription) for _ in range(1500)]) == 1500
                it.disconnect()
            elif word == "second":
                it.connect()
        seen: dict[str, list[str]] = {}
        with trio.fail_after(30):
            for _ in range(3000):
                message = await anext(subscription)
                seen.setdefault(message.subject, []).append(message.content)
        assert seen == {f"/very/{number}": ["second", "third"] for number in range(1500)}


async def test_a_slow_application_misses_nothing(server: Any, way: dict[str, Any]) -> None:
    async with (
        client(server, way, buffer_messages=10) as it,
        client(server, way) as other,
        it.subscribe("/slow/*") as subscription,
    ):
        await subscription.confirmed()
        contents = []
        for number in range(900):
            await other.submit(f"/slow/{number % 3}", str(number))
        await other.settled()
        with trio.fail_after(20):
            while len(contents) < 900:
                contents.append(int((await anext(subscription)).content))
        for remainder in range(3):
            assert [n for n in contents if n % 3 == remainder] == list(range(remainder, 900, 3))


async def test_connections_that_break_lose_and_double_nothing(
    server: Any, way: dict[str, Any]
) -> None:
    """A relay between client and server cuts the connection at random points."""
    rng = random.Random(5)
    quick = ReconnectSettings(quick_initial_delay_s=0.01, time_interval_s=0.01)
    async with (
        trio.open_nursery() as nursery,
        client(server, way) as watcher,
        watcher.subscribe("/cut/*") as seen,
    ):
        cuts: list[int] = []
        port = int(server.urls[0].rpartition(":")[2])
        relay = await nursery.start(run_relay, port, rng, cuts)
        async with (
            Client([f"127.0.0.1:{relay}"], **way, reconnect=quick) as it,
            it.subscribe("/cut/**") as subscription,
        ):
            await seen.confirmed()
            await subscription.confirmed()
            with trio.fail_after(60):
                for number in range(600):
                    await it.submit(f"/cut/{number % 3}", str(number))
                    if number % 50 == 0:
                        await it.settled()
                await it.settled()
                received = [await anext(subscription) for _ in range(600)]
            for messages in (await take(seen, 600), received):
                for remainder in range(3):
                    contents = [int(m.content) for m in messages if int(m.content) % 3 == remainder]
                    assert contents == list(range(remainder, 600, 3))
        assert cuts
        nursery.cancel_scope.cancel()


async def run_relay(
    port: int, rng: random.Random, cuts: list[int], task_status: trio.TaskStatus[int]
) -> None:
    """Carries bytes to and from a port, each connection for some thousand bytes only."""

    async def relay(near: trio.SocketStream) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as far:
            budget = [rng.randrange(25_000, 60_000)]
            async with near, trio.open_nursery() as nursery:
                nursery.start_soon(carry, near, far, budget, nursery.cancel_scope)
                nursery.start_soon(carry, far, near, budget, nursery.cancel_scope)
            if budget[0] < 0:
                cuts.append(budget[0])

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(relay, listeners)


async def carry(
    source: trio.SocketStream, sink: trio.SocketStream, budget: list[int], scope: trio.CancelScope
) -> None:
    try:
        async for block in source:
            budget[0] -= len(block)
            await sink.send_all(block[: max(0, len(block) + min(0, budget[0]))])
            if budget[0] < 0:
                break
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    scope.cancel()
