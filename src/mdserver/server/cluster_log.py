"""Writes the events of the cluster to the server log, each at a level that says who has to act.

- error: an operator has to act, and nothing gets better before that;
- warning: an operator should look at it, because clients noticed it or redundancy is lost;
- info: no action, but the event explains what clients and members saw;
- debug: no action; one line for each subject group.

The names are fixed, so that operators can alert on them. docs/operations.md ("Events of a cluster")
lists them.
"""

import structlog
import trio

from mdserver.cluster.node import Node
from mdserver.core.outputs import Log
from mdserver.limits import OUT_OF_SERVICE_LOGGED_S

LEVELS = {
    "vote record lost": "error",
    "seed is an older copy": "error",
    "acknowledged messages are missing": "error",
    "seeds contradict": "error",
    "member out of service": "error",
    "member in service again": "warning",
    "kafka away": "error",
    "kafka back": "warning",
    "records lost": "error",
    "records removed": "warning",
    "subjects forgotten": "warning",
    "poison record": "warning",
    "stray record": "warning",
    "new history": "warning",
    "readmit": "warning",
    "seeds order given up": "warning",
    "log not written": "warning",
    "seeds named": "info",
    "seeds changed": "info",
    "seeds settled": "info",
    "takes part": "info",
    "takes part no more": "info",
    "joined": "info",
    "topics": "info",
    "coordinates": "info",
    "copied": "info",
    "drain": "info",
    "undrain": "info",
    "drained": "info",
    "active": "debug",
}
"""Level of each event: those of the node, and the two that `watch_service` detects."""

STREAM = "cluster"


def write(line: Log) -> None:
    """Write a line of the stream `cluster`; ignore other streams."""
    if line.stream == STREAM:
        write_event(line.name, **line.values)


def write_event(event: str, **values: object) -> None:
    """Write an event at its level, or as a warning if it has none."""
    getattr(structlog.get_logger(), LEVELS.get(event, "warning"))(event, **values)


async def watch_service(node: Node) -> None:
    """Write when this member serves no clients for longer than a change of coordinators takes.

    Runs until cancelled. A member that loses the majority of seeds from sight receives nothing, and
    without an input there is no step of the node that could report it. So the state is polled.
    """
    since: float | None = None
    written = False
    while True:
        reason = node.unready()
        now = trio.current_time()
        if reason is None:
            if written:
                write_event("member in service again")
            since, written = None, False
        elif since is None:
            since = now
        elif not written and now - since >= OUT_OF_SERVICE_LOGGED_S:
            write_event("member out of service", reason=reason)
            written = True
        await trio.sleep(1)
