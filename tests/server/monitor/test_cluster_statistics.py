"""The sums over a cluster, as any member tells them, and what is said of a member that is away."""

import base64
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mdserver.cluster.node import Node
from mdserver.core.message import Publication, Qos
from mdserver.core.outputs import Announced
from mdserver.core.settings import BrokerSettings
from mdserver.limits import REPORT_BYTES_MAX
from mdserver.server.monitor.cluster_statistics import ClusterStatistics, MemberReport, sums
from tests.cluster.live_cluster import LiveCluster
from tests.server.monitor.test_statistics import monitor

CREDENTIALS = base64.b64encode(b"admin:of the monitor").decode()
REPORT = MemberReport(
    node="b",
    time=1,
    interval_ms=1000,
    unready=None,
    now={"sessions": 2, "subjects": 7},
    total={"messages_in": 3},
    rates={"messages_in": 0.5},
    refused={"PUBLISH_DENIED": 1},
    elections_won=1,
)


def asked(cluster: LiveCluster, index: int, path: str = "/cluster/statistics") -> Any:
    port = int(cluster.monitors[index].rpartition(":")[2])
    status, answer = monitor(port, "GET", path, {"Authorization": f"Basic {CREDENTIALS}"})
    assert status == 200, answer
    return answer


@pytest.mark.slow
def test_any_member_tells_the_sums_over_all_of_them(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, settings={"MonitorPush.Interval": "1s"}) as cluster:
        for index in range(3):
            for _ in range(index + 1):
                assert cluster.produce(index, "/a/b", "x")
        for index in range(3):
            cluster.wait(
                lambda index=index: asked(cluster, index)["sum"]["total"]["messages_in"] == 6,
                60,
                f"member {index} counts all",
            )
        found = asked(cluster, 0)
        assert list(found["members"]) == sorted(cluster.peers)
        assert found["away"] == {}
        counted = [one["total"]["messages_in"] for one in found["members"].values()]
        assert sorted(counted) == [1, 2, 3]
        assert found["sum"]["now"]["coordinated_groups"] == 16
        assert "all of them now" in asked(cluster, 0, "/cluster/statistics?format=text")
        cluster.kill(2)
        cluster.wait(
            lambda: cluster.peers[2] in asked(cluster, 0)["away"], 60, "a member is missed"
        )
        found = asked(cluster, 0)
        assert found["away"] == {cluster.peers[2]: "There is no link to it."}
        assert found["sum"]["members"] == 2
        assert cluster.peers[2] not in found["members"]


def test_sums_are_of_what_is_each_members_own() -> None:
    other = msgspec.structs.replace(REPORT, total={"messages_in": 1, "bytes_in": 9})
    found = sums([REPORT, other])
    assert found["members"] == 2
    assert found["now"]["sessions"] == 4
    assert "subjects" not in found["now"]
    assert found["total"] == {"messages_in": 4, "bytes_in": 9}
    assert found["refused"] == {"PUBLISH_DENIED": 2}


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\xff", b"[" * 100_000, b'{"node": 1}', b" " * (REPORT_BYTES_MAX + 1)],
)
def test_a_report_that_cannot_be_read_changes_nothing(content: bytes) -> None:
    node = Node(BrokerSettings(), random.Random(1))
    statistics = ClusterStatistics(node, None, lambda: 1)  # type: ignore[arg-type]
    node.members.peers["b"] = None  # type: ignore[assignment]
    publication = Publication("/__mdserver__/statistics/b", content, qos=Qos.STANDARD)
    statistics.take(Announced("b", [publication]))
    statistics.take(Announced("stranger", [publication]))
    assert statistics.heard == {}
