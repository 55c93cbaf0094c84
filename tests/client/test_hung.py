"""A member that hangs (SIGSTOP) keeps its connections: what its clients do about it."""

from pathlib import Path

import pytest
import trio

from mdserver.client import Client, Notification, ReconnectSettings
from tests.cluster.live_cluster import LiveCluster

AT_ONCE = ReconnectSettings(quick_initial_delay_s=0.05, quick_max_retries=200)
NOTICED_WITHIN_S = 45
"""It takes 10 s; it took 52 while only the keep-alive of the server counted."""


@pytest.mark.slow
async def test_the_clients_of_a_hung_member_go_elsewhere(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster, trio.fail_after(90):
        servers = [f"100 {cluster.clients[0]}", f"0 {cluster.clients[1]}"]
        async with (
            Client(servers, reconnect=AT_ONCE) as subscriber,
            Client([cluster.clients[2]]) as publisher,
            subscriber.subscribe("/a/b") as subscription,
        ):
            await subscription.confirmed()
            await publisher.publish("/a/b", "before")
            assert (await anext(subscription)).content == "before"
            cluster.pause(0)
            await publisher.publish("/a/b", "meanwhile")
            with trio.fail_after(NOTICED_WITHIN_S):
                assert (await anext(subscription)).content == "meanwhile"
                told = [await anext(subscriber.statuses) for _ in range(3)]
            assert [notice.status for notice in told] == [
                Notification.SERVER_UP,
                Notification.SERVER_DOWN,
                Notification.SERVER_UP,
            ]
            assert "nothing was heard" in str(told[1].info)
