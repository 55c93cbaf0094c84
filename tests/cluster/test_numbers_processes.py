"""A client with three times as many numbers in flight as it may have, and members that die."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from mdserver.core.publishers import PublisherKeys
from mdserver.core.subjects import group_of
from mdserver.limits import PUBLISHER_NUMBERS_KEPT
from mdserver.server.publisher_secret import shared
from tests.cluster.live_cluster import LiveCluster

pytestmark = pytest.mark.slow
SUBJECT = "/a/b"
SENT = 3 * PUBLISHER_NUMBERS_KEPT
KEYS = PublisherKeys(shared("secret of the tests"), random.Random(1))
CONNECT = json.dumps({"op": "connect", "publisher": "p", "publisher_key": KEYS.key("p")})
ANSWERED = (0, 1, 64, 500, 1200)  # how many results are there when the coordinator is killed


def burst(first: int) -> str:
    return json.dumps(
        [
            {
                "op": "publish",
                "subject": SUBJECT,
                "content": str(number),
                "number": number,
                "id": number,
            }
            for number in range(first, first + SENT)
        ]
    )


def test_a_coordinator_that_dies_leaves_an_order_and_one_history(tmp_path: Path) -> None:
    """What was acknowledged stands there once, in order; the rest was refused for certain."""
    with LiveCluster(tmp_path, 3) as cluster:
        group = group_of(SUBJECT, cluster.groups)
        history = cluster.status(0)["history"]
        taken = 0
        for answered in ANSWERED:
            cluster.wait(lambda: coordinator(cluster, group), 60, "a coordinator")
            leader = cluster.peers.index(coordinator(cluster, group) or "")
            statuses = sent_and_killed(cluster, leader, taken + 1, answered)
            refused = taken + SENT + 1  # the least number that was refused
            for status in statuses:
                if status["status"] == "PUBLISH_OK":
                    assert status["id"] == taken + 1
                    taken = status["id"]
                elif status["certain"]:
                    refused = min(refused, status["id"])
                    assert "no result yet" in status["reason"] or status["expected"] <= refused
            cluster.start(leader)
            for index in range(3):
                cluster.wait_ready(index, 60)
            taken = resumed(cluster, leader, taken)
        assert {cluster.status(index)["history"] for index in range(3)} == {history}
        for index in range(3):
            found = cluster.consume(index, SUBJECT)
            assert [int(text) for _, _, text in found] == list(range(taken - 999, taken + 1))
            assert found[-1][1] == taken


def coordinator(cluster: LiveCluster, group: int) -> str | None:
    found: str | None = cluster.status(0)["groups"][group]["coordinator"]
    return found


def sent_and_killed(
    cluster: LiveCluster, leader: int, first: int, answered: int
) -> list[dict[str, Any]]:
    """Send the burst at another member, kill the coordinator once so many results are there."""
    statuses: list[dict[str, Any]] = []
    with connect(f"ws://{cluster.clients[(leader + 1) % 3]}/ws") as client:
        client.send(CONNECT)
        client.send(burst(first))
        try:
            while len(statuses) < SENT:
                if len(statuses) >= answered and leader in cluster.processes:
                    cluster.kill(leader)
                statuses += statuses_of(client.recv(timeout=30))
        except ConnectionClosed:
            pass  # a member that lost sight of the majority sends its clients away
    if leader in cluster.processes:  # that may also be before the results were there
        cluster.kill(leader)
    return statuses


def resumed(cluster: LiveCluster, index: int, taken: int) -> int:
    """Say the numbers once more that have no result; the last that is taken now."""
    with connect(f"ws://{cluster.clients[index]}/ws") as client:
        client.send(CONNECT)
        while True:
            client.send(
                json.dumps(
                    {
                        "op": "publish",
                        "subject": SUBJECT,
                        "number": taken + 1,
                        "content": str(taken + 1),
                        "id": taken + 1,
                    }
                )
            )
            statuses: list[dict[str, Any]] = []
            while not statuses:
                statuses = statuses_of(client.recv(timeout=30))
            if statuses[0]["status"] == "PUBLISH_OK":
                taken += 1
            if not statuses[0].get("duplicate"):
                return taken


def statuses_of(text: str | bytes) -> list[dict[str, Any]]:
    events = json.loads(text)
    return [e for e in (events if isinstance(events, list) else [events]) if e["op"] == "status"]
