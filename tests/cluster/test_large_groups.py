"""A group whose log and cache are larger than a frame between members is elected and joined."""

from pathlib import Path

import pytest

from mdserver.limits import PEER_FRAME_BYTES_MAX
from tests.cluster.live_cluster import LiveCluster

CONTENT = "x" * 60_000
COUNT = 4 * PEER_FRAME_BYTES_MAX // len(CONTENT)


@pytest.mark.slow
def test_a_group_larger_than_a_frame_has_its_members_back(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, groups=1) as cluster:
        for number in range(COUNT):
            cluster.wait(
                lambda n=number: cluster.produce(0, "/a/b", f"{n} {CONTENT}"), 20, "a publication"
            )
        for index in (2, 1, 0):
            cluster.kill(index)
            cluster.start(index)
            cluster.wait_ready(index, 60)
            found = [text.partition(" ")[0] for _, _, text in cluster.consume(index, "/a/b")]
            assert found == [str(number) for number in range(COUNT)]
        assert not any("log and cache take" in cluster.log(index) for index in range(3))
