"""Events of the cluster are written at their levels; a member that serves nobody says so."""

from typing import Any

import pytest
import structlog
import trio
import trio.testing

from mdserver.core.outputs import Log
from mdserver.limits import OUT_OF_SERVICE_LOGGED_S
from mdserver.server import cluster_log


class Node:
    """Says what it is told to say."""

    reason: str | None = None

    def unready(self) -> str | None:
        return self.reason


def said(lines: list[Any]) -> list[tuple[str, str]]:
    return [(line["log_level"], line["event"]) for line in lines]


def test_a_line_is_written_at_the_level_of_its_event() -> None:
    with structlog.testing.capture_logs() as lines:
        cluster_log.write(Log("cluster", "vote record lost", {"known": 3}))
        cluster_log.write(Log("cluster", "joined", {}))
        cluster_log.write(Log("cluster", "not known here", {}))
        cluster_log.write(Log("access", "connect", {}))
    assert said(lines) == [
        ("error", "vote record lost"),
        ("info", "joined"),
        ("warning", "not known here"),
    ]
    assert lines[0]["known"] == 3


@pytest.mark.parametrize("seconds", [OUT_OF_SERVICE_LOGGED_S - 2, 3 * OUT_OF_SERVICE_LOGGED_S])
async def test_a_member_without_a_majority_says_so_once_and_when_it_is_over(
    autojump_clock: trio.testing.MockClock, seconds: int
) -> None:
    node = Node()
    with structlog.testing.capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster_log.watch_service, node)
            await trio.sleep(60)
            node.reason = "no majority of the seeds is in sight"
            await trio.sleep(seconds)
            node.reason = None
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
    if seconds < OUT_OF_SERVICE_LOGGED_S:
        assert lines == []
    else:
        assert said(lines) == [
            ("error", "member out of service"),
            ("warning", "member in service again"),
        ]
        assert lines[0]["reason"] == "no majority of the seeds is in sight"
