"""The list of members changes while the cluster runs: by SIGHUP, under load, without a loss."""

import json
import signal
from functools import partial
from pathlib import Path

import pytest
import trio

from mdserver.bench.processes import free_ports
from tests.cluster.application import running
from tests.cluster.live_cluster import LiveCluster, wait_coordinators

pytestmark = pytest.mark.slow
GROUPS = 64  # so many that every member has a share, whatever its address


def forget_votes(cluster: LiveCluster, index: int) -> None:
    (votes,) = cluster.folder.glob(f"votes-*-{cluster.peers[index][-5:]}.json")
    votes.unlink()


def voting(cluster: LiveCluster, index: int) -> bool:
    return {cluster.state(index, asked) for asked in cluster.processes} == {"NORMAL"}


def lost(cluster: LiveCluster, index: int, asked: int) -> bool:
    return cluster.state(index, asked) == "LOST"


def listed(cluster: LiveCluster, index: int, count: int) -> bool:
    return len(cluster.status(index)["members"]) == count


def reloaded(cluster: LiveCluster, index: int) -> dict[str, list[str]]:
    status, content = cluster.monitor(index, "POST", "/reload")
    assert status == 200, content
    done: dict[str, list[str]] = json.loads(content)
    return done


async def test_each_seed_moves_to_another_address_under_load(tmp_path: Path) -> None:
    """One after the other, with its vote file and without; at the end all are somewhere else."""
    wait = trio.to_thread.run_sync
    places: list[str] = []
    with LiveCluster(tmp_path, 3, GROUPS) as cluster:
        places += cluster.peers
        async with running(cluster.clients) as application:
            await application.flowing()
            for index, port in enumerate(free_ports(3)):
                await wait(cluster.kill, index)
                if index == 1:
                    forget_votes(cluster, index)
                places[index] = f"{cluster.peers[index]}@127.0.0.1:{port}"
                for other in range(3):
                    cluster.write_list(other, *places)
                cluster.start(index)
                for other in set(cluster.processes) - {index}:
                    done = await wait(reloaded, cluster, other)
                    assert done == {"taken": ["ClusterMembers"], "needs_restart": []}
                if index == 1:
                    await wait(cluster.wait, partial(lost, cluster, index, 0), 60, "it is LOST")
                    done = await wait(cluster.command, 0, "readmit", cluster.peers[index])
                    assert done.returncode == 0, done.stderr
                await wait(cluster.wait, partial(voting, cluster, index), 60, f"{index} votes")
                await application.flowing()
            rows = cluster.status(2)["members"]
            assert {f"{row['address']}@{row['at']}" for row in rows} == {*places}
            said = cluster.command(0, "status").stdout.splitlines()
            assert {*(place.replace("@", " is at ") for place in places)} <= {*said}
            # Nobody is where the names say: they find each other by the list alone.
            await wait(cluster.stop, 0)
            cluster.start(0)
            await wait(cluster.wait, partial(voting, cluster, 0), 60, "it votes again")
            await application.flowing()
            await application.finish()


async def test_members_that_are_no_seeds_are_listed_and_dropped_under_load(tmp_path: Path) -> None:
    wait = trio.to_thread.run_sync
    with LiveCluster(tmp_path, 4, GROUPS, listed=3, running=3) as cluster:
        first, whole = cluster.peers[:3], cluster.peers
        async with running(cluster.clients[:3]) as application:
            await application.flowing()
            for index in range(3):
                cluster.write_list(index, *whole)
                cluster.processes[index].send_signal(signal.SIGHUP)
            for index in range(3):
                await wait(cluster.wait, partial(listed, cluster, index, 4), 60, "it is listed")
            cluster.start(3)
            await wait(cluster.wait_ready, 3)
            await wait(wait_coordinators, cluster, set(whole))
            await application.flowing()
            await wait(cluster.command, 0, "drain", whole[3])
            await wait(cluster.stop, 3)
            for index in range(3):
                cluster.write_list(index, *first)
                assert (await wait(reloaded, cluster, index))["taken"] == ["ClusterMembers"]
            await wait(wait_coordinators, cluster, set(first))
            await application.flowing()
            await application.finish()


def test_a_list_with_other_seeds_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, 4) as cluster:
        stranger = "127.0.0.1:1"
        for changed in (
            [stranger, *cluster.peers[1:]],
            [*reversed(cluster.peers)],
            [*cluster.peers, stranger, "127.0.0.1:2"],
        ):
            cluster.write_list(0, *changed)
            status, refused = cluster.monitor(0, "POST", "/reload")
            assert status == 409
            assert "the seeds are" in refused
            assert ", ".join(changed) in refused
            assert ", ".join(cluster.peers) in refused
        assert {row["address"] for row in cluster.status(0)["members"]} == {*cluster.peers}
        assert cluster.produce(0, "/a/b", "still taken")


def test_another_address_of_a_member_itself_is_told_to_need_a_restart(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, 4) as cluster:
        cluster.write_list(0, f"{cluster.peers[0]}@127.0.0.1:1", *cluster.peers[1:])
        done = reloaded(cluster, 0)
        assert done == {"taken": ["ClusterMembers"], "needs_restart": ["ClusterMembers"]}
