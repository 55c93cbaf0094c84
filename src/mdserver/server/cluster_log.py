"""Writes what happens in the cluster to the server log, each event at the level of who must act.

- error: an operator, and nothing gets better before that;
- warning: an operator should look at it, since clients noticed or redundancy is gone;
- info: nobody, but it explains what clients and members saw;
- debug: nobody; one line a subject group.

Names are fixed, so that they can be alerted on; docs/operations.md ("Events of a cluster") lists
them.
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
    "member out of service": "error",
    "member in service again": "warning",
    "new history": "warning",
    "readmit": "warning",
    "joined": "info",
    "coordinates": "info",
    "copied": "info",
    "drain": "info",
    "undrain": "info",
    "drained": "info",
    "active": "debug",
}
"""Level of each event: of those that the node has, and of the two that are found here."""

STREAM = "cluster"


def write(line: Log) -> None:
    """Write a line of the node's, unless it belongs to another stream."""
    if line.stream == STREAM:
        write_event(line.name, **line.values)


def write_event(event: str, **values: object) -> None:
    """Write an event at its level; one without a level is worth a look."""
    getattr(structlog.get_logger(), LEVELS.get(event, "warning"))(event, **values)


async def watch_service(node: Node) -> None:
    """Write when this member serves no clients for longer than a change of coordinators takes.

    Runs until cancelled. That a majority of seeds is not in sight is what happens when nothing
    comes, so no step of the node could say it.
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
