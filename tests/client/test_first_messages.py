"""What a client misses of a subject before its first message of it has come."""

from pathlib import Path
from typing import Any

import pytest

from mdserver.client import Notification
from tests.client.ways import WAYS, run
from tests.live import live_server

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("way", WAYS)]


def test_messages_before_the_first_one_that_it_got_are_recovered(tmp_path: Path, way: str) -> None:
    """The subscription was confirmed, so what was published after it is missed, and not new."""

    async def scenario(client: Any, url: str) -> None:
        async with client([url]) as publisher, client([url]) as it:
            numbers = it.subscribe("/n/a")
            await numbers.confirmed()
            it.disconnect()
            for number in range(3):
                await publisher.publish("/n/a", str(number))
            it.connect()
            assert [int((await anext(numbers)).content) for _ in range(3)] == [0, 1, 2]

    with live_server(tmp_path) as server:
        run(way, scenario, server.url)


def test_what_was_there_before_the_subscription_is_not_missed(tmp_path: Path, way: str) -> None:
    """A subject without a snapshot has messages all the same: they are not told as lost."""

    async def scenario(client: Any, url: str) -> None:
        async with client([url]) as publisher, client([url]) as it:
            for number in range(3):
                await publisher.publish("/n/a", str(number), retained=False)
            numbers = it.subscribe("/n/a")
            await numbers.confirmed()
            it.disconnect()
            await publisher.publish("/n/a", "3", retained=False)
            it.connect()
            assert (await anext(numbers)).content == "3"
            told = {Notification.DATA_SYNC, Notification.DATA_RESYNC}
            async for notice in it.statuses:
                if notice.status in told:
                    break
            assert notice.status is Notification.DATA_SYNC

    with live_server(tmp_path) as server:
        run(way, scenario, server.url)
