"""A publication that is repeated at another member, or after a kill, is published once."""

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.live_cluster import LiveCluster

BODY = json.dumps([{"subject": f"/a/{n}", "content": str(n)} for n in range(20)]).encode()


def produced(address: str) -> list[dict[str, Any]]:
    """Publish BODY over HTTP and return the results."""
    connection = HTTPConnection(address, timeout=20)
    headers = {"Content-Type": "application/json", "Idempotency-Key": "order-7-of-2f6c9a7e51d0"}
    connection.request("POST", "/rest/produce", BODY, headers)
    results: list[dict[str, Any]] = json.loads(connection.getresponse().read())["results"]
    connection.close()
    return results


@pytest.mark.slow
def test_any_member_knows_a_repeat(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        for index in range(3):
            cluster.wait_ready(index)
        addresses = [client.rpartition("/")[2] for client in cluster.clients]
        first = produced(addresses[0])
        assert {result["status"] for result in first} == {"OK"}
        cluster.kill(0)
        again = produced(addresses[1])
        assert [(one["epoch"], one["seq"]) for one in again] == [
            (one["epoch"], one["seq"]) for one in first
        ]
        assert {one.get("duplicate") for one in again} == {True}
        assert len(cluster.consume(2, "/a/7")) == 1
