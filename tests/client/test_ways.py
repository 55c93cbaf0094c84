"""What the client promises, under Trio, asyncio and blocking: one set of scenarios."""

import signal
import socket
from pathlib import Path
from typing import Any

import anyio
import pytest

from mdserver.client import (
    ArgumentError,
    ClientTimeoutError,
    ConnectError,
    MessageType,
    Notification,
    NotOpenError,
    PublishError,
    Qos,
    ReconnectSettings,
    StoppedError,
)
from mdserver.errors import InvalidSubjectError
from tests.client.ways import WAYS, in_thread, run
from tests.cluster.live_cluster import LiveCluster
from tests.live import live_server

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("way", WAYS)]
NOWHERE = ["127.0.0.1:1"]


@pytest.mark.parametrize("transport", ["websocket", "http"])
@pytest.mark.parametrize("encoding", ["binary", "json"])
def test_publish_and_subscribe(tmp_path: Path, way: str, transport: str, encoding: str) -> None:
    async def scenario(client: Any, url: str) -> None:
        async with client([url], transport=transport, encoding=encoding) as it:
            result = await it.publish("/stocks/IBM", "193", fields={"volume": "6.62M"})
            assert result.seq == 1
            async with it.subscribe("/stocks/*") as prices:
                await prices.confirmed()
                await it.publish("/stocks/IBM", b"\0\1", closure="c", qos=Qos.STANDARD)
                await it.publish("/stocks/HPQ", "7", compressed=True)
                snapshot, update, other = [await anext(prices) for _ in range(3)]
                assert (snapshot.content, snapshot.type) == ("193", MessageType.SNAPSHOT)
                assert (snapshot.fields, snapshot.match) == ({"volume": "6.62M"}, "/stocks/*")
                assert (update.content, update.position, update.closure) == (b"\0\1", None, "c")
                assert (other.subject, other.content) == ("/stocks/HPQ", "7")
                assert it.get_subjects() == ["/stocks/*"]
            assert it.get_subjects() == []

    with live_server(tmp_path) as server:
        run(way, scenario, server.url)


def test_history_many_results_and_batches(tmp_path: Path, way: str) -> None:
    async def scenario(client: Any, url: str) -> None:
        async with client([url]) as it:
            publications = [await it.submit("/counts/a", str(number)) for number in range(1500)]
            await it.settled()
            assert [one.result.seq for one in publications] == list(range(1, 1501))
            assert (await publications[-1].outcome()).seq == 1500
            counts = it.subscribe("/counts/a", history=3)
            await counts.caught_up()
            got: list[Any] = []
            while len(got) < 3:
                got += await counts.batch()
            assert [message.content for message in got] == ["1497", "1498", "1499"]
            assert {message.type for message in got} == {MessageType.HISTORICAL}
            numbering = it.numbering
            assert numbering.publisher == it.publisher

    with live_server(tmp_path) as server:
        run(way, scenario, server.url)


def test_request_and_reply(tmp_path: Path, way: str) -> None:
    async def answer(it: Any, questions: Any) -> None:
        async for question in questions:
            await it.reply(question, question.content * 2)

    async def scenario(client: Any, url: str) -> None:
        async with client([url]) as it, anyio.create_task_group() as group:
            questions = it.subscribe("/services/double")
            await questions.confirmed()
            group.start_soon(answer, it, questions)
            assert (await it.request("/services/double", "ab", timeout_s=20)).content == "abab"
            with pytest.raises(ClientTimeoutError, match=r"no reply .* came in 0\.1 s"):
                await it.request("/services/other", "ab", timeout_s=0.1)
            group.cancel_scope.cancel()

    with live_server(tmp_path) as server:
        run(way, scenario, server.url)


def test_refusals(tmp_path: Path, way: str) -> None:
    async def scenario(client: Any, url: str) -> None:
        with pytest.raises(ArgumentError, match="servers is a list"):
            client("127.0.0.1:8800")
        async with client([url]) as it:
            with pytest.raises(PublishError, match="does not start with") as caught:
                await it.publish("no slash", "x")
            assert caught.value.result.certain
            with pytest.raises(ArgumentError, match="content is a str or bytes"):
                await it.publish("/a/b", 193)
            with pytest.raises(InvalidSubjectError, match="start with"):
                it.subscribe("no slash")

    with live_server(tmp_path) as server:
        run(way, scenario, server.url)


def test_a_client_without_rights(tmp_path: Path, way: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef", encoding="utf-8")
    secret.chmod(0o600)
    arguments = [
        word
        for setting in (
            "Listen=127.0.0.1:0",
            "Entitlement=JWT",
            f"EntitlementJWT.HmacSecretFile={secret}",
        )
        for word in ("--set", setting)
    ]

    async def scenario(client: Any, url: str) -> None:
        async with client([url]) as it:  # without a token
            with pytest.raises(StoppedError, match="token"):
                await it.connected()

    with live_server(tmp_path, *arguments) as server:
        run(way, scenario, server.url)


def test_nobody_waits_for_ever_for_a_server_that_is_not_there(way: str) -> None:
    sentence = r"no server was reached in 0\.3 s: 127\.0\.0\.1:1: Connection refused"

    async def scenario(client: Any) -> None:
        async with client(NOWHERE, connect_timeout_s=0.3) as it:
            subscription = it.subscribe("/a/b")
            for wait in (it.connected, subscription.confirmed, subscription.__anext__):
                with pytest.raises(ConnectError, match=sentence):
                    await wait()
            with pytest.raises(PublishError, match=sentence):
                await it.publish("/a/b", "x")
            assert (await anext(it.statuses)).status is Notification.SERVER_DOWN

    run(way, scenario)


def test_before_and_after_the_block(tmp_path: Path, way: str) -> None:
    async def scenario(client: Any, url: str) -> None:
        it = client([url])
        with pytest.raises(NotOpenError, match="enter the client first: `"):
            await it.publish("/a/b", "x")
        early = it.subscribe("/a/b")
        async with it:
            await early.confirmed()
            await it.publish("/a/b", "x")
            assert (await anext(early)).content == "x"
            await it.publish("/a/b", "y")
        for wait in (it.connected, lambda: it.publish("/a/b", "x")):
            with pytest.raises(NotOpenError, match="is over; make another one"):
                await wait()
        with pytest.raises(NotOpenError, match="is over; make another one"):
            it.subscribe("/a/b")
        assert [message.content async for message in early] in ([], ["y"])
        names = [notice.status.name async for notice in it.statuses]
        assert names[0] == "SERVER_UP"
        with pytest.raises(NotOpenError, match="make another one"):
            await it.__aenter__()

    with live_server(tmp_path) as server:
        run(way, scenario, server.url)


def test_pause_and_disconnect_lose_nothing(tmp_path: Path, way: str) -> None:
    async def scenario(client: Any, url: str) -> None:
        async with client([url]) as publisher, client([url]) as it:
            numbers = it.subscribe("/n/a")
            await numbers.confirmed()
            for number in range(3):
                await publisher.publish("/n/a", str(number))
            it.pause()
            for number in range(3, 6):
                await publisher.publish("/n/a", str(number))
            it.resume()
            it.disconnect()
            for number in range(6, 9):
                await publisher.publish("/n/a", str(number))
            it.connect()
            got = [int((await anext(numbers)).content) for _ in range(9)]
            assert got == list(range(9))

    with live_server(tmp_path) as server:
        run(way, scenario, server.url)


def test_a_server_that_comes_late_and_one_that_comes_back(tmp_path: Path, way: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    journal = tmp_path / "journal"
    arguments = [
        word
        for setting in (
            f"Listen=127.0.0.1:{port}",
            "Entitlement=None",
            "Journal=on",
            f"JournalFolder={journal}",
            "JournalFsync=commit",
        )
        for word in ("--set", setting)
    ]

    async def scenario(client: Any) -> None:
        reconnect = ReconnectSettings.service()
        async with client([f"127.0.0.1:{port}"], reconnect=reconnect) as it:
            numbers = it.subscribe("/n/a")
            first = await it.submit("/n/a", "0")
            for number in range(1, 4):
                with live_server(tmp_path, *arguments) as server:
                    await first.outcome()
                    await it.publish("/n/a", str(number))
                    # Results and messages come in no order of their own.
                    while int((message := await anext(numbers)).content) < number:
                        pass
                    assert message.position.seq == number + 1
                    server.process.kill()
                    await in_thread(server.process.wait)

    run(way, scenario)


class Load:
    """Publishes numbers to several subjects and follows them, until told to end."""

    SUBJECTS = ("/load/a", "/load/b", "/load/c")

    def __init__(self) -> None:
        self.published = 0
        self.seen: dict[str, list[Any]] = {subject: [] for subject in self.SUBJECTS}
        self.ending = anyio.Event()
        self._last_published = anyio.Event()

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    async def publish(self, publisher: Any) -> None:
        while not self.ending.is_set():
            await self._publish_some(publisher)
            await anyio.sleep(0.005)
        self._last_published.set()
        await self._publish_some(publisher)  # the follower waits for these, so it sees the end
        await publisher.settled()

    async def _publish_some(self, publisher: Any) -> None:
        first = self.published + 1
        self.published += len(self.SUBJECTS)
        for number, subject in enumerate(self.SUBJECTS, first):
            await publisher.submit(subject, str(number))

    async def follow(self, subscription: Any) -> None:
        while not self._last_published.is_set() or self.count < self.published:
            for message in await subscription.batch():
                self.seen[message.subject].append(message)

    async def more(self, messages: int) -> None:
        """Wait until so many more messages have come."""
        before = self.count
        while self.count < before + messages:  # noqa: ASYNC110
            await anyio.sleep(0.05)

    def judge(self) -> None:
        """Nothing is missing, repeated or out of order, by position and by content."""
        assert self.published == self.count > 600
        for messages in self.seen.values():
            assert [one.position.seq for one in messages] == list(range(1, len(messages) + 1))
            contents = [int(one.content) for one in messages]
            assert contents == sorted(set(contents))


async def next_member(client: Any, cluster: LiveCluster) -> int:
    """The member that a client gets connected to."""
    async for notice in client.statuses:
        if notice.status is Notification.SERVER_UP:
            return cluster.clients.index(notice.info)
    raise AssertionError("the statuses ended")


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_member_dies_under_load(tmp_path: Path, way: str, transport: str) -> None:
    async def scenario(client: Any, cluster: LiveCluster) -> None:
        load = Load()
        async with (
            client(cluster.clients, transport=transport) as publisher,
            client(cluster.clients, transport=transport) as follower,
            anyio.create_task_group() as group,
        ):
            subscription = follower.subscribe("/load/*")
            await subscription.confirmed()
            group.start_soon(load.publish, publisher)
            group.start_soon(load.follow, subscription)
            # A subject of which nothing came yet begins with its snapshot, so wait for messages.
            await load.more(300)
            for _ in range(2):
                member = await next_member(follower, cluster)
                cluster.processes[member].send_signal(signal.SIGKILL)
                await in_thread(cluster.processes[member].wait)
                await load.more(300)
                await in_thread(cluster.start, member)
                await in_thread(cluster.wait_ready, member)
            load.ending.set()
        load.judge()

    with LiveCluster(tmp_path, 3) as cluster:
        run(way, scenario, cluster)
