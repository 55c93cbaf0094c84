"""Every member is replaced, one after the other, while an application works on."""

from pathlib import Path

import pytest
import trio

from tests.cluster.application import KINDS, running
from tests.cluster.live_cluster import LiveCluster

pytestmark = pytest.mark.slow


async def test_a_rolling_restart_of_all_members_is_not_noticed(tmp_path: Path) -> None:
    """As docs/cluster.md has it: drain, stop, start, wait until it is ready, the next one."""
    wait = trio.to_thread.run_sync
    with LiveCluster(tmp_path, 3) as cluster:
        async with running(cluster.clients, kinds=KINDS) as application:
            for index in range(3):
                await application.flowing()
                drained = await wait(
                    cluster.command, (index + 1) % 3, "drain", cluster.peers[index]
                )
                assert drained.returncode == 0, drained.stderr
                await wait(cluster.stop, index)
                await application.flowing()
                cluster.start(index)
                await wait(cluster.wait_ready, index)
            await application.flowing()
            await application.finish()
    assert application.covered["refused"] == 0
    assert application.covered["publication failed"] == 0
