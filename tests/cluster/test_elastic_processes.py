"""Members that come and go under load, and members that are never there."""

from functools import partial
from pathlib import Path

import pytest
import trio

from tests.cluster.application import running
from tests.cluster.live_cluster import LiveCluster, wait_coordinators

pytestmark = pytest.mark.slow
GROUPS = 64  # so many that every member has a share, whatever its address


@pytest.mark.parametrize("mode", ["Guaranteed", "Standard"])
async def test_members_beyond_the_list_come_and_go_under_load(tmp_path: Path, mode: str) -> None:
    """Three members, then five, then the three again; one leaves in order, one does not."""
    wait = trio.to_thread.run_sync
    settings, kinds = {"ClusterDeliveryMode": mode}, ("plain", "wildcard")
    application_of = partial(running, kinds=kinds, guaranteed=mode == "Guaranteed")
    with LiveCluster(tmp_path, 5, GROUPS, settings, listed=3, running=3) as cluster:
        async with application_of(cluster.clients[:3]) as application:
            await application.flowing()
            for index in (3, 4):
                cluster.start(index)
                await wait(cluster.wait_ready, index)
            await wait(wait_coordinators, cluster, set(cluster.peers))
            async with application_of(cluster.clients[3:], under="/new") as newcomers:
                await application.flowing()
                await newcomers.flowing()
                await newcomers.finish()
            await wait(cluster.command, 0, "drain", cluster.peers[3])
            await wait(wait_coordinators, cluster, {*cluster.peers[:3], cluster.peers[4]})
            await wait(cluster.stop, 3)
            await application.flowing()
            await wait(cluster.kill, 4)
            await wait(wait_coordinators, cluster, set(cluster.peers[:3]))
            await application.flowing()
            await application.finish()


def test_five_seeds_of_twelve_members_start_and_serve_alone(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 12, running=5) as cluster:
        for index in range(5):
            produce = partial(cluster.produce, index, "/a/b", f"from {index}")
            cluster.wait(produce, 15, "it is acknowledged")
        states = [row["state"] for row in cluster.status(0)["members"]]
        assert states == ["NORMAL"] * 5 + ["unreachable"] * 7
        assert {row["address"] for row in cluster.status(1)["members"] if row["seed"]} == set(
            cluster.peers[:5]
        )
        cluster.kill(0)
        cluster.kill(3)
        cluster.wait(lambda: cluster.produce(1, "/a/b", "by three of five"), 15, "a majority")
