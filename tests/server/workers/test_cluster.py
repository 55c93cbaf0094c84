"""Members of a cluster whose clients are served by worker processes."""

import base64
import json
import os
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client import Client
from tests.cluster.live_cluster import LiveCluster
from tests.live import children, gone, lines_about
from tests.server.monitor.test_statistics import monitor
from tests.server.workers.test_worker import PATIENCE_S, QUICK, seqs, take

START_S = 180  # nine processes, on a busy machine
pytestmark = pytest.mark.slow
OPERATOR = {"Authorization": f"Basic {base64.b64encode(b'admin:of the monitor').decode()}"}
SUBJECTS = [f"/s/{index}" for index in range(4)]


def operator_port(cluster: LiveCluster, index: int) -> int:
    """The monitor's port of a member."""
    return int(cluster.monitors[index].rpartition(":")[2])


def sessions(cluster: LiveCluster, index: int) -> list[dict[str, Any]]:
    """What the monitor of a member says of its clients."""
    path = "/sessions?limit=1000"
    found: list[dict[str, Any]] = monitor(operator_port(cluster, index), "GET", path, OPERATOR)[1]
    return found


def journalled(folder: Path) -> list[dict[str, object]]:
    """The messages in a journal."""
    return [
        line
        for segment in sorted((folder / "messages").glob("seg-*"))
        for line in lines_about(segment, '"/s/')
    ]


async def test_workers_and_members_die_and_nothing_is_lost_or_comes_twice(tmp_path: Path) -> None:
    settings = {
        "Workers": "2",
        "Journal": "on",
        "JournalFsync": "commit",
        "JournalFolder": f"{tmp_path}/journal-INDEX",
    }
    each, publishers = 60, 4
    with LiveCluster(tmp_path, 3, settings=settings, patience_s=START_S) as cluster:
        async with AsyncExitStack() as stack:
            subscriptions = []
            for index in range(9):
                # Each knows all members, and begins at another one.
                servers = cluster.clients[index % 3 :] + cluster.clients[: index % 3]
                rng = random.Random(index)
                client = Client(servers, reconnect=QUICK, rng=rng)
                await stack.enter_async_context(client)
                subscriptions.append(client.subscribe("/s/*"))
                with trio.fail_after(PATIENCE_S):
                    await subscriptions[-1].confirmed()
            results: list[tuple[str, int, int]] = []
            steps = [trio.Event() for _ in range(3)]

            async def publish(name: int) -> None:
                client = Client(cluster.clients, reconnect=QUICK, rng=random.Random(100 + name))
                async with client:
                    for number in range(each):
                        subject = SUBJECTS[(name + number) % len(SUBJECTS)]
                        with trio.fail_after(2 * PATIENCE_S):
                            result = await client.publish(subject, f"{name}-{number}")
                        results.append((subject, result.epoch, result.seq))
                        for at, step in enumerate(steps):
                            if len(results) > (at + 1) * publishers * each // 4:
                                step.set()

            async with trio.open_nursery() as nursery:
                for name in range(publishers):
                    nursery.start_soon(publish, name)
                with trio.fail_after(2 * PATIENCE_S):
                    await steps[0].wait()
                    os.kill(children(cluster.processes[0].pid)[0], signal.SIGKILL)
                    await steps[1].wait()
                    workers = children(cluster.processes[1].pid)
                    assert len(workers) == 2
                    await trio.to_thread.run_sync(cluster.kill, 1)
                    ended = partial(cluster.wait, lambda: all(map(gone, workers)), PATIENCE_S)
                    await trio.to_thread.run_sync(ended, "its workers end with it")
                    await steps[2].wait()
                cluster.start(1)
            expected = Counter(f"{a}-{b}" for a in range(publishers) for b in range(each))
            for subscription in subscriptions:
                messages = await take(subscription, publishers * each)
                assert Counter(message.content for message in messages) == expected
                for subject in SUBJECTS:
                    row = seqs([message for message in messages if message.subject == subject])
                    assert row == list(range(1, len(row) + 1))
        await trio.to_thread.run_sync(cluster.wait_ready, 1)
        assert len(set(results)) == len(results) == publishers * each
        folders = [tmp_path / f"journal-{index}" for index in (0, 2)]
        for index, folder in enumerate(folders):
            cluster.wait(
                lambda: len(journalled(folder)) == publishers * each,  # noqa: B023
                PATIENCE_S,
                f"the journal of member {index} has all",
            )
            rows = Counter(str(row["content"]) for row in journalled(folder))
            assert rows == expected


def lose_the_majority_for_a_while(cluster: LiveCluster) -> None:
    """Stop two members; the workers of the third serve nobody until they go on."""
    cluster.pause(0)
    cluster.pause(1)

    def told() -> bool:
        # Each connection may be of another worker, and each of them hears of it by itself.
        answers = [cluster.get(2, "/rest/consume?subject=/s/0") for _ in range(8)]
        wanted = b"no majority of the seeds is in sight"
        return all(status == 503 and wanted in body for status, body in answers)

    cluster.wait(told, PATIENCE_S, "no quorum is noticed")
    cluster.resume(0)
    cluster.resume(1)
    cluster.wait_ready(2)


async def test_clients_and_operators_are_told_what_concerns_the_member(tmp_path: Path) -> None:
    # As many workers as its index says: the first member has none, the third one two.
    workers = {"Workers": "INDEX"}
    with LiveCluster(tmp_path, 3, settings=workers, patience_s=START_S) as cluster:
        await trio.to_thread.run_sync(lose_the_majority_for_a_while, cluster)
        status = cluster.status(2)
        assert "worker" not in json.dumps(status["members"]), "a worker is no member"
        async with AsyncExitStack() as stack:
            for _ in range(8):
                client = Client([cluster.clients[2]], reconnect=QUICK)
                await stack.enter_async_context(client)
                with trio.fail_after(PATIENCE_S):
                    await client.subscribe("/s/*").confirmed()
            found = await trio.to_thread.run_sync(sessions, cluster, 2)
            assert len(found) == 8
            assert await trio.to_thread.run_sync(sessions, cluster, 1) == []

            def figures() -> dict[str, Any]:
                found: dict[str, Any] = monitor(
                    operator_port(cluster, 2), "GET", "/statistics", OPERATOR
                )[1]
                return found["now"]  # type: ignore[no-any-return]

            def counted() -> bool:
                now = figures()
                return (now["sessions"], now["members_in_sight"]) == (8, 3)

            wait = partial(cluster.wait, counted, PATIENCE_S, "the figures of all workers")
            await trio.to_thread.run_sync(wait)
        # A drain: its workers send their clients to the other members.
        async with Client([cluster.clients[2]], reconnect=QUICK) as client:
            subscription = client.subscribe("/s/*")
            with trio.fail_after(PATIENCE_S):
                await subscription.confirmed()
            await trio.to_thread.run_sync(cluster.stop, 2)

            def moved() -> bool:
                return any(sessions(cluster, index) for index in (0, 1))

            wait = partial(cluster.wait, moved, PATIENCE_S, "the client is at another member")
            await trio.to_thread.run_sync(wait)
            produce = partial(cluster.produce, 1, "/s/0", "after the drain")
            wait = partial(cluster.wait, produce, PATIENCE_S, "publications are taken")
            await trio.to_thread.run_sync(wait)
            assert (await take(subscription, 1))[0].content == "after the drain"
