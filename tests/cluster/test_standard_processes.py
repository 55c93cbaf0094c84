"""Server processes in Standard mode: any one of them is enough."""

import http.client
import json
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.cluster.application import running
from tests.cluster.live_cluster import LiveCluster, wait_coordinators

pytestmark = pytest.mark.slow
GROUPS = 32  # so many that every member has a share, whatever its address
STANDARD = {"ClusterDeliveryMode": "Standard"}
SUBJECTS = [f"/s/{index}" for index in range(12)]


def publish_all(cluster: LiveCluster, index: int, content: str) -> None:
    for subject in SUBJECTS:
        cluster.wait(partial(cluster.produce, index, subject, content), 15, subject)


def snapshot(cluster: LiveCluster, index: int, subject: str) -> str:
    status, body = cluster.get(index, f"/snapshot?subject={subject}")
    return body.decode() if status == http.client.OK else ""


def hold(cluster: LiveCluster, content: str, *indexes: int) -> bool:
    """Whether these members show this as the last content of every subject."""
    return all(
        snapshot(cluster, index, subject) == content for index in indexes for subject in SUBJECTS
    )


async def test_clients_go_on_at_the_last_member_and_at_those_that_come_back(
    tmp_path: Path,
) -> None:
    with LiveCluster(tmp_path, 3, GROUPS, STANDARD) as cluster:
        kinds = ("plain", "wildcard", "conflated")
        async with running(cluster.clients, kinds=kinds, guaranteed=False) as application:
            await application.flowing()
            for victim in (0, 1):
                await trio.to_thread.run_sync(cluster.kill, victim)
            await application.flowing()
            assert cluster.ready(2) is None
            for victim in (0, 1):
                cluster.start(victim)
                await trio.to_thread.run_sync(cluster.wait_ready, victim)
            await application.flowing()
            await trio.to_thread.run_sync(cluster.kill, 2)
            await application.flowing()
            await application.finish()
    assert application.covered["delivered SNAPSHOT"] > 0


async def test_clients_of_one_member_do_not_notice_others_leave_and_come_in_order(
    tmp_path: Path,
) -> None:
    """What another member coordinated is yielded, under the same history id: no gap, no reset."""
    wait = trio.to_thread.run_sync
    with LiveCluster(tmp_path, 3, GROUPS, STANDARD) as cluster:
        async with running(cluster.clients[:1]) as application:
            for index in (1, 2):
                await application.flowing()
                await wait(cluster.stop, index)
                await application.flowing()
                cluster.start(index)
                await wait(cluster.wait_ready, index)
            await wait(wait_coordinators, cluster, set(cluster.peers))
            await application.flowing()
            await application.finish()


def test_members_that_come_back_have_the_snapshots_and_coordinate_again(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, GROUPS, STANDARD) as cluster:
        publish_all(cluster, 0, "one")
        cluster.wait(lambda: hold(cluster, "one", 0, 1, 2), 15, "all members have it")
        cluster.kill(0)
        cluster.kill(1)
        publish_all(cluster, 2, "two")
        assert hold(cluster, "two", 2)
        shown = cluster.command(2, "status")
        assert "Standard mode: no majority is needed" in shown.stdout
        assert [row["state"] for row in cluster.status(2)["members"]] == [
            "NORMAL",
            "unreachable",
            "unreachable",
        ]
        refused = cluster.command(2, "cold-start")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "nobody votes in Standard mode" in refused.stderr
        for index in (0, 1):
            cluster.start(index)
        for index in (0, 1):
            cluster.wait_ready(index)
            assert hold(cluster, "two", index)
        wait_coordinators(cluster, set(cluster.peers))
        assert not list(tmp_path.glob("votes-*")), "nothing is stored"


def test_a_member_that_was_paused_takes_what_the_others_made_of_its_groups(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, GROUPS, STANDARD) as cluster:
        publish_all(cluster, 0, "one")
        cluster.pause(1)
        publish_all(cluster, 0, "two")
        cluster.resume(1)
        cluster.wait(lambda: hold(cluster, "two", 0, 1, 2), 15, "one content everywhere")
        publish_all(cluster, 1, "three")
        cluster.wait(lambda: hold(cluster, "three", 0, 1, 2), 15, "one content everywhere")


def test_one_member_alone_starts_and_a_later_one_joins_it(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, settings=STANDARD, running=1) as cluster:
        publish_all(cluster, 0, "alone")
        cluster.start(2)
        cluster.wait_ready(2)
        assert hold(cluster, "alone", 2)


def test_a_member_of_the_other_mode_is_refused_and_both_sides_say_so(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, settings=STANDARD, running=2) as cluster:
        cluster.start(2, ClusterDeliveryMode="Guaranteed")
        for index in (1, 2):
            cluster.wait(
                lambda: "ClusterDeliveryMode is" in cluster.log(index),  # noqa: B023
                15,
                "the reason",
            )
        reasons = [
            json.loads(line)["reason"]
            for line in cluster.log(2).splitlines()
            if "ClusterDeliveryMode is" in line
        ]
        assert any("'Standard'" in reason and "'Guaranteed'" in reason for reason in reasons)
        publish_all(cluster, 0, "one")
        assert cluster.ready(2) is not None
