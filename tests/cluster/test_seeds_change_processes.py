"""Seeds change while the cluster runs, by an operator's commands: under load, without a loss."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.cli.cluster import wait_changed
from mdserver.cli.monitor import MonitorError
from tests.cluster.application import running
from tests.cluster.live_cluster import LiveCluster

pytestmark = pytest.mark.slow
GROUPS = 16
WAIT = ("--timeout", "15")
BY_ORDER = '"seeds by order"'


def seeds(cluster: LiveCluster, index: int) -> list[str]:
    """The present seeds, as a member has them."""
    found: list[str] = cluster.status(index)["seeds"]["seeds"]
    return found


def normal(cluster: LiveCluster, index: int) -> bool:
    """Whether every member that runs sees this one voting, or serving if it is no seed."""
    return {cluster.state(index, asked) for asked in cluster.processes} == {"NORMAL"}


async def changed(cluster: LiveCluster, asked: int, action: str, index: int) -> dict[str, Any]:
    """Give an order to one member about another one, and wait until it is carried out."""
    words = (action, cluster.peers[index], *WAIT, "--format", "json")
    done = await trio.to_thread.run_sync(cluster.command, asked, *words)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


async def test_three_seeds_become_five_and_three_others_under_load(tmp_path: Path) -> None:
    """Two of five end then; afterwards each member starts with the configuration of before."""
    wait = trio.to_thread.run_sync
    with LiveCluster(tmp_path, 5, GROUPS, listed=3) as cluster:
        peers = cluster.peers
        async with running(cluster.clients) as application:
            await application.flowing()
            for asked, index in ((0, 3), (4, 4)):
                await changed(cluster, asked, "add-seed", index)
                assert seeds(cluster, 1) == peers[: index + 1]
                await application.flowing()
            for index in (0, 1):
                await wait(cluster.kill, index)
            await application.flowing()
            for index in (0, 1):
                cluster.start(index)
                await wait(cluster.wait, partial(normal, cluster, index), 60, f"{index} votes")
                assert BY_ORDER in cluster.log(index)
            for asked, index in ((2, 0), (1, 1)):
                await changed(cluster, asked, "remove-seed", index)
                assert peers[index] not in seeds(cluster, 4)
                await application.flowing()
            assert seeds(cluster, 0) == peers[2:]
            for index in range(5):
                await wait(cluster.stop, index)
                cluster.start(index)
                await wait(cluster.wait, partial(normal, cluster, index), 60, f"{index} is back")
                assert seeds(cluster, index) == peers[2:]
                await application.flowing()
            await application.finish()


def test_a_seed_that_is_gone_is_replaced_and_comes_back_as_none(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 4, 4, listed=3) as cluster:
        cluster.kill(2)
        for action, index in (("add-seed", 3), ("remove-seed", 2)):
            done = cluster.command(0, action, f"member-{index + 1}", *WAIT)
            assert done.returncode == 0, done.stderr
        present = [cluster.peers[index] for index in (0, 1, 3)]
        assert seeds(cluster, 1) == present
        cluster.kill(0)
        cluster.wait(lambda: cluster.produce(1, "/a/b", "two of three"), 60, "it serves")
        cluster.start(2)
        cluster.wait_ready(2)
        assert seeds(cluster, 2) == present


def test_a_log_counts_only_if_the_seed_wrote_it_all_the_time(tmp_path: Path) -> None:
    """A seed that was none for a while has a log that ends before that, and a new one has none."""
    settings = {
        "Journal": "on",
        "JournalFsync": "commit",
        "JournalFolder": f"{tmp_path}/journal-INDEX",
        "MaxCachedMessagesPerSubject": "1000",
    }
    contents: list[str] = []

    def publish(cluster: LiveCluster, about: str) -> None:
        for number in range(20):
            contents.append(f"{about} {number}")
            assert cluster.produce(2, "/a/b", contents[-1])

    def restart(cluster: LiveCluster, index: int) -> None:
        cluster.stop(index)
        cluster.start(index)
        cluster.wait(partial(normal, cluster, index), 60, f"{index} is back")

    def order(cluster: LiveCluster, action: str, index: int) -> None:
        done = cluster.command(2, action, cluster.peers[index], *WAIT)
        assert done.returncode == 0, done.stderr
        publish(cluster, f"{action} {index}")
        told = "does not write its log yet"
        for words in (done.stdout, cluster.command(2, "status").stdout):
            assert (f"{cluster.peers[index]} {told}" in words) == (action == "add-seed")
            assert words.count(told) <= 1
        health = cluster.monitor(index, "GET", "/health/ready")[1]
        assert ("it does not write its log yet" in health) == (action == "add-seed")
        assert ('"log not written"' in cluster.log(index)) == (action == "add-seed")
        restart(cluster, index)
        assert told not in cluster.command(2, "status").stdout
        publish(cluster, f"{index} restarted")

    with LiveCluster(tmp_path, 4, 4, settings, listed=3) as cluster:
        publish(cluster, "begin")
        history = cluster.status(2)["history"]
        order(cluster, "add-seed", 3)
        order(cluster, "remove-seed", 0)
        order(cluster, "add-seed", 0)
        order(cluster, "remove-seed", 1)
        for index in range(4):
            cluster.kill(index)
        for index in range(4):
            cluster.start(index)
        for index in range(4):
            cluster.wait(partial(normal, cluster, index), 60, f"{index} is back")
            assert [content for _, _, content in cluster.consume(index, "/a/b")] == contents
        status = cluster.status(2)
        assert status["history"] == history
        assert {*status["seeds"]["seeds"]} == {cluster.peers[index] for index in (0, 2, 3)}


def test_what_makes_no_sense_is_refused_in_one_line(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 4, 4, listed=3) as cluster:
        for words, told in (
            (("add-seed", "member-1"), "is a seed already"),
            (("add-seed", "nobody"), "there is no member nobody"),
            (("remove-seed", "member-4"), "is no seed"),
            (("remove-seed", "member-1"), "3 are the least"),
        ):
            done = cluster.command(1, *words, *WAIT)
            (line,) = done.stderr.splitlines()
            assert done.returncode == 1
            assert told in line
        cluster.kill(3)
        cluster.wait(lambda: cluster.state(3, 0) == "unreachable", 30, "it is out of sight")
        assert "not in sight" in cluster.command(1, "add-seed", cluster.peers[3], *WAIT).stderr
        assert seeds(cluster, 0) == cluster.peers[:3]


def test_an_order_that_cannot_begin_is_given_up_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MDSERVER_MONITORUSERNAME", "admin")
    monkeypatch.setenv("MDSERVER_MONITORPASSWORD", "of the monitor")
    with LiveCluster(tmp_path, 4, 4, listed=3) as cluster:
        cluster.pause(3)  # it is in sight for a moment yet
        path = f"/cluster/add-seed?member={cluster.peers[3]}"
        status, content = cluster.monitor(0, "POST", path)
        assert status == 200, content
        with pytest.raises(MonitorError, match="given up, and nothing has changed"):
            wait_changed(f"http://{cluster.monitors[0]}", None, "it becomes a seed", 2, 60)
        assert any('"seeds order given up"' in cluster.log(index) for index in range(3))
        assert seeds(cluster, 0) == cluster.peers[:3]
        cluster.resume(3)
        cluster.wait(partial(normal, cluster, 3), 60, "it is back")
        done = cluster.command(0, "add-seed", cluster.peers[3], *WAIT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("list 2 is in force: 4 seeds, ")
        assert "4 seeds bear no more failures than 3" in done.stdout
        told = cluster.command(1, "status").stdout.splitlines()
        assert f"list 2 has the seeds {', '.join(cluster.peers)}" in told
