"""Subscriptions of one client that overlap: each gets each matching message once; a real server."""

from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client import Client, MessageType
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from tests.live import live_server
from tests.server.serving import serving


async def contents(subscription: Any, count: int) -> list[Any]:
    return [(await anext(subscription)).content for _ in range(count)]


@pytest.mark.parametrize("encoding", ["json", "binary"])
async def test_a_pattern_and_a_subject_of_it(tmp_path: Path, encoding: Any) -> None:
    with live_server(tmp_path) as server, trio.fail_after(30):
        async with Client([server.url], encoding=encoding) as client:
            await client.publish("/ov/IBM", "old")
            every = client.subscribe("/ov/**")
            assert await contents(every, 1) == ["old"]
            one = client.subscribe("/ov/IBM")
            await one.confirmed()
            await client.publish("/ov/IBM", "1")
            await client.publish("/ov/A", "2")
            await client.publish("/ov/IBM", "3")
            assert await contents(every, 3) == ["1", "2", "3"]
            assert await contents(one, 3) == ["old", "1", "3"]
            one.end()
            await client.publish("/ov/IBM", "4")
            assert await contents(every, 1) == ["4"]
            assert [message.content async for message in one] == []


async def test_a_subject_and_then_a_pattern_with_it(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, trio.fail_after(30):
        async with Client([server.url]) as client:
            await client.publish("/ov/IBM", "old")
            one = client.subscribe("/ov/IBM")
            assert await contents(one, 1) == ["old"]
            every = client.subscribe("/ov/**")
            assert await contents(every, 1) == ["old"]
            await client.publish("/ov/IBM", "1")
            assert await contents(one, 1) == ["1"]
            assert await contents(every, 1) == ["1"]
            every.end()
            await client.publish("/ov/A", "no")
            await client.publish("/ov/IBM", "2")
            assert await contents(one, 1) == ["2"]


async def test_the_same_subject_twice(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, trio.fail_after(30):
        async with Client([server.url]) as client:
            for number in range(3):
                await client.publish("/a/b", str(number))
            first = client.subscribe("/a/b")
            assert await contents(first, 1) == ["2"]
            second = client.subscribe("/a/b")
            replayed = client.subscribe_with_history(["/a/b"], 2)
            assert await contents(second, 1) == ["2"]
            messages = [await anext(replayed) for _ in range(2)]
            assert [m.content for m in messages] == ["1", "2"]
            assert {m.type for m in messages} == {MessageType.HISTORICAL}
            await client.publish("/a/b", "3")
            for subscription in (first, second, replayed):
                assert await contents(subscription, 1) == ["3"]
            first.end()
            await client.publish("/a/b", "4")
            assert await contents(second, 1) == ["4"]
            second.end()
            replayed.end()
            assert client.get_subjects() == []


async def test_a_slow_subscription_beside_a_quick_one_loses_nothing(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, trio.fail_after(30):
        async with Client([server.url], buffer_messages=10) as client:
            slow = client.subscribe("/s/**")
            quick = client.subscribe("/s/1")
            await quick.confirmed()
            for number in range(100):
                await client.publish("/s/1", str(number))
            expected = [str(number) for number in range(100)]
            got: dict[str, list[Any]] = {}

            async def read(name: str, subscription: Any) -> None:
                got[name] = await contents(subscription, 100)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read, "slow", slow)
                nursery.start_soon(read, "quick", quick)
            assert got == {"slow": expected, "quick": expected}


@pytest.mark.parametrize(
    "long", ["", 100 * "long"], ids=["positions in one command", "beyond one command"]
)
async def test_a_join_during_a_recovery_takes_nothing_from_the_others(
    tmp_path: Path, long: str
) -> None:
    subjects = [f"/r/{long}{number}" for number in range(300)]
    missed = list("123456")
    with live_server(tmp_path) as server, trio.fail_after(60):
        async with (
            Client([server.url]) as publisher,
            Client([server.url], buffer_messages=100_000) as client,
        ):
            first = client.subscribe("/r/**")
            await first.confirmed()
            for subject in subjects:
                await publisher.publish(subject, "0")
            await collect(first, {subject: ["0"] for subject in subjects})
            client.pause()
            for text in missed:
                for subject in subjects:
                    await publisher.publish(subject, text)
            client.resume()
            second = client.subscribe("/r/**")
            await collect(first, dict.fromkeys(subjects, missed))
            await collect(second, {subject: ["6"] for subject in subjects}, last=True)
            third = client.subscribe("/r/**")
            await collect(third, {subject: ["6"] for subject in subjects})
            client.pause()
            client.resume()
            fourth = client.subscribe(subjects[7])
            await collect(fourth, {subjects[7]: ["6"]})


@pytest.mark.parametrize("long", ["", 100 * "long"], ids=["one command", "many commands"])
async def test_a_join_during_a_recovery_gets_the_snapshots_of_what_was_not_missed(
    tmp_path: Path, long: str
) -> None:
    """Also if the positions of the recovery do not fit into one command."""
    subjects = [f"/r/{long}{number}" for number in range(300)]
    with live_server(tmp_path) as server, trio.fail_after(30):
        async with Client([server.url]) as publisher, Client([server.url]) as client:
            first = client.subscribe("/r/**")
            await first.confirmed()
            for subject in subjects:
                await publisher.publish(subject, "0")
            await collect(first, {subject: ["0"] for subject in subjects})
            client.pause()
            await publisher.publish(subjects[0], "1")
            client.resume()
            second = client.subscribe("/r/**")
            await collect(first, {subjects[0]: ["1"]})
            newest = {subject: ["0"] for subject in subjects} | {subjects[0]: ["1"]}
            await collect(second, newest, last=True)


async def collect(
    subscription: Any, expected: dict[str, list[Any]], *, last: bool = False
) -> dict[str, list[Any]]:
    """Receive until each subject has what is expected of it; with `last`, as the newest."""
    got: dict[str, list[Any]] = {}
    complete = 0
    while complete < len(expected):
        message = await anext(subscription)
        of_it = got.setdefault(message.subject, [])
        of_it.append(message.content)
        want = expected[message.subject]
        if last:
            complete += message.content == want[-1]
        else:
            assert of_it == want[: len(of_it)], message.subject
            complete += of_it == want
    return got


async def test_a_subject_that_ends_during_its_recovery_costs_its_pattern_nothing() -> None:
    """Both come back with positions; the exact one ends before its turn came at the server."""
    broker = BrokerSettings(policy=Policy.NONE, brought_at_once=5)
    many = [f"/many/{number}" for number in range(200)]
    async with (
        serving(broker=broker) as server,
        Client(server.urls) as publisher,
        Client(server.urls) as client,
    ):
        with trio.fail_after(60):
            others = client.subscribe(*many)
            every = client.subscribe("/ov/**")
            one = client.subscribe("/ov/IBM")
            for subscription in (others, every, one):
                await subscription.confirmed()
            for subject in (*many, "/ov/IBM"):
                await publisher.publish(subject, "0")
            assert await contents(one, 1) == ["0"]
            assert await contents(every, 1) == ["0"]
            await contents(others, len(many))
            client.disconnect()
            for number in range(1, 4):
                await publisher.publish("/ov/IBM", str(number))
            client.connect()
            await client.connected()
            one.end()
            await every.caught_up()
            await publisher.publish("/ov/IBM", "last")
            assert await contents(every, 4) == ["1", "2", "3", "last"]


@pytest.mark.slow
async def test_any_number_of_tasks_may_wait_until_a_subscription_has_caught_up(
    tmp_path: Path,
) -> None:
    with live_server(tmp_path) as server, trio.fail_after(60):
        async with Client([server.url]) as client:
            for number in range(2000):
                await client.submit(f"/many/{number}", "x" * 100)
            await client.settled()
            subscription = client.subscribe("/many/**")
            async with trio.open_nursery() as nursery:
                for _ in range(60):
                    nursery.start_soon(subscription.caught_up)
            assert len(await subscription.batch()) == 2000
