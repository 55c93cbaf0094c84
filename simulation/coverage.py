"""What must happen sometimes: a long run in which one of these never happened proves little."""

from collections import Counter

SOMETIMES = (
    "start",
    "crash",
    "crash after the disk, before the answer",
    "link cut",
    "disconnected by the member",
    "cold start",
    "Promise",
    "Elect",
    "Sync",
    "Activate",
    "Publish",
    "Accept",
    "Commit",
    "Register",
    "Install",
    "Readmit",
    "Stop",
    "acked",
    "acked as a repeat",
    "delivered UPDATE",
    "delivered SNAPSHOT",
    "delivered RECOVERED",
    "recovered",
    "majority lost",
    "readmitted or joined anew",
    "operated",
    "an operator was refused",
    "fault drain",
    "fault pause",
    "told of a gap",
)
LONG_RUN = 500
"""So many seeds are expected to reach all of them."""


def missing(counted: Counter[str]) -> list[str]:
    """What never happened."""
    return [name for name in SOMETIMES if not counted[name]]
