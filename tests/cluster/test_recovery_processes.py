"""Clients whose member is killed go on at another one, whatever way they subscribed."""

from pathlib import Path

import pytest
import trio

from tests.cluster.application import running
from tests.cluster.live_cluster import LiveCluster, wait_coordinators

pytestmark = pytest.mark.slow


async def test_subscribers_of_every_kind_recover_at_any_other_member(tmp_path: Path) -> None:
    """Each member is killed once in mid-stream, so that every client moves at least once."""
    with LiveCluster(tmp_path, 3) as cluster:
        async with running(cluster.clients) as application:
            for victim in range(3):
                await application.flowing()
                await trio.to_thread.run_sync(cluster.kill, victim)
                await application.flowing()
                cluster.start(victim)
                await trio.to_thread.run_sync(cluster.wait_ready, victim)
            await application.flowing()
            await application.finish()
    assert application.covered["recovered"] >= len(application.readers)
    assert application.covered["delivered RECOVERED"] > 0


async def test_a_paused_member_and_its_clients_go_on_where_the_others_are(tmp_path: Path) -> None:
    """Its groups are taken over meanwhile; what it then says of its old epochs counts nowhere."""
    wait = trio.to_thread.run_sync
    with LiveCluster(tmp_path, 3) as cluster:
        async with running(cluster.clients) as application:
            await application.flowing()
            cluster.pause(2)
            await wait(wait_coordinators, cluster, set(cluster.peers[:2]))
            await application.flowing()
            cluster.resume(2)
            await wait(cluster.wait_ready, 2)
            await application.flowing()
            await application.finish()
