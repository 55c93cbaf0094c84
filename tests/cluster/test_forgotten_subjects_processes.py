"""Live servers forget short-lived subjects; clients that come back are told right."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client import Client, Notification
from tests.cluster.live_cluster import LiveCluster

pytestmark = pytest.mark.slow
SETTINGS = {
    "CacheExpireTime": "1s",
    "SnapshotExpireTime": "1s",
    "SubjectExpireTime": "2s",
}
COUNT = 40
PATIENCE_S = 120


def subjects(cluster: LiveCluster, index: int) -> int:
    status, content = cluster.monitor(index, "GET", "/statistics")
    assert status == 200, content
    found: int = _find(json.loads(content), "subjects")
    return found


def _find(values: Any, name: str) -> Any:
    """Return the value of a name, however deep it stands."""
    if isinstance(values, dict):
        if name in values:
            return values[name]
        values = list(values.values())
    found = [_find(value, name) for value in values] if isinstance(values, list) else []
    return next((one for one in found if one is not None), None)


def no_subjects(cluster: LiveCluster) -> bool:
    return all(subjects(cluster, index) == 0 for index in cluster.processes)


class Reader:
    """A subscriber of all subjects: what came to it, and what it was told may be missing.

    A machine that is busy may delay a link for longer than a message is cached. Then the subscriber
    is told of a loss, and that is as good as the message.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.messages = client.subscribe("/short/*")
        self.came: set[tuple[str, int]] = set()
        self._lost: list[tuple[str | None, int]] = []

    async def watch(self) -> None:
        async for notice in self.client.statuses:
            if notice.status is Notification.DATA_RESYNC and notice.missing is not None:
                self._lost.append((notice.subject, notice.missing.last.seq))

    async def flowing(self, publisher: Client, number: int) -> None:
        """Publish until the subscriber gets that."""
        with trio.fail_after(PATIENCE_S):
            while True:
                await publisher.publish("/short/mark", f"mark {number}")
                with trio.move_on_after(0.2):
                    async for message in self.messages:
                        assert message.position is not None
                        self.came.add((message.subject, message.position.seq))
                        if message.content == f"mark {number}":
                            return

    def missed(self, published: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """What neither came nor was said to be missing."""
        return [
            (subject, seq)
            for subject, seq in published
            if (subject, seq) not in self.came
            and not any(of in (subject, "/short/*") and seq <= last for of, last in self._lost)
        ]


async def published(publisher: Client, subject: str) -> tuple[str, int]:
    result = await publisher.publish(subject, "short lived")
    assert result.seq, result
    return subject, result.seq


async def told(urls: list[str], position: Any) -> Any:
    """What a client is told first that comes with a position of a subject."""
    with trio.fail_after(PATIENCE_S):
        async with Client(urls, positions={"/short/0": position}) as late:
            late.subscribe("/short/0")
            async for notice in late.statuses:
                if notice.status in (Notification.DATA_SYNC, Notification.DATA_RESYNC):
                    return notice
    raise AssertionError("nothing was told")


@pytest.mark.parametrize("count", [1, 3])
async def test_subjects_that_come_and_go_leave_nothing_and_lose_nothing(
    tmp_path: Path, count: int
) -> None:
    """A member is killed between the two lives of each subject; a subscriber misses nothing."""
    wait = trio.to_thread.run_sync
    settings = SETTINGS | {"Journal": "on", "JournalFolder": str(tmp_path / "journal-INDEX")}
    settings |= {"JournalFsync": "commit"}
    with LiveCluster(tmp_path, count, 4, settings) as cluster:
        urls = [f"http://{address}" for address in cluster.clients]
        async with (
            Client(urls) as client,
            Client(urls, publisher="p") as publisher,
            trio.open_nursery() as nursery,
        ):
            reader = Reader(client)
            nursery.start_soon(reader.watch)
            await reader.flowing(publisher, 1)
            client.recover_unseen("/short/*")
            sent = [await published(publisher, f"/short/{index}") for index in range(COUNT)]
            await reader.flowing(publisher, 2)
            while (early := client.position("/short/0")) is None:
                sent.append(await published(publisher, "/short/0"))
                await reader.flowing(publisher, 2)
            await wait(cluster.wait, lambda: no_subjects(cluster), PATIENCE_S, "nothing is left")

            await wait(cluster.kill, 0)
            cluster.start(0)
            await wait(cluster.wait_ready, 0)
            await reader.flowing(publisher, 3)
            again = [await published(publisher, f"/short/{index}") for index in range(COUNT)]
            assert all(seq > 1 for _, seq in again)
            await reader.flowing(publisher, 4)
            await wait(cluster.wait, lambda: no_subjects(cluster), PATIENCE_S, "nothing is left")
            notice = await told(urls, early)
            nursery.cancel_scope.cancel()
    assert reader.missed([*sent, *again]) == []
    assert notice.status is Notification.DATA_RESYNC
