"""Strangers that hold connections to the port for members do not keep a member out."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from mdserver.limits import PEER_COMPLAINTS_MAX
from tests.cluster.live_cluster import LiveCluster

STRANGERS = 300
CONNECT_TIMEOUT_S = 30
LEAST_S = 3  # a join that takes less is not compared: the machine is slower than that at times


def returned_after_s(cluster: LiveCluster, index: int) -> float:
    """Kill a member and start it again; returns how long that took until it served."""
    cluster.kill(index)
    began = time.monotonic()
    cluster.start(index)
    cluster.wait_ready(index, 60)
    return time.monotonic() - began


@pytest.mark.slow
def test_idle_strangers_at_a_member_do_not_slow_another_ones_return(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster, ExitStack() as strangers:
        quiet_s = returned_after_s(cluster, 2)
        host, port = cluster.peers[0].rsplit(":", 1)
        for number in range(STRANGERS):
            # Half of them come from the address at which the members are.
            source = (f"127.0.0.{number % 10 + 2}" if number % 2 else host, 0)
            address = host, int(port)
            strangers.enter_context(
                socket.create_connection(address, CONNECT_TIMEOUT_S, source_address=source)
            )
        before = len(cluster.log(0))
        crowded_s = returned_after_s(cluster, 2)
        assert crowded_s < 10 * max(quiet_s, LEAST_S)
        assert cluster.produce(2, "/a/b", "published where it came back")
        cluster.wait(lambda: cluster.consume(0, "/a/b") != [], 30, "the crowded member has it")
        lines = [line for line in cluster.log(0)[before:].splitlines() if "no link" in line]
        assert len(lines) <= 2 * PEER_COMPLAINTS_MAX, "of at most two times that are counted"
