"""The phases of a client's connection, the transitions between them, and its timers.

`connection` describes each phase and what leads from one to another.
"""

import enum

TIMER_ATTEMPT = "attempt"
TIMER_OPENING = "opening"
TIMER_LIVENESS = "liveness"
TIMER_MOVE = "move"
TIMER_PUBLISH = "publish"


class Phase(enum.Enum):
    """The phase of the client's connection."""

    IDLE = "idle"
    OPENING = "opening"
    GREETING = "greeting"
    UP = "up"
    WAITING = "waiting"
    NEEDS_TOKEN = "needs token"
    STOPPED = "stopped"


TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    (Phase.IDLE, "open"): Phase.OPENING,
    (Phase.WAITING, "open"): Phase.OPENING,
    (Phase.NEEDS_TOKEN, "open"): Phase.OPENING,
    (Phase.STOPPED, "open"): Phase.OPENING,
    (Phase.OPENING, "opened"): Phase.GREETING,
    (Phase.GREETING, "connected"): Phase.UP,
    (Phase.OPENING, "retry"): Phase.WAITING,
    (Phase.GREETING, "retry"): Phase.WAITING,
    (Phase.UP, "retry"): Phase.WAITING,
    (Phase.GREETING, "token"): Phase.NEEDS_TOKEN,
    (Phase.UP, "token"): Phase.NEEDS_TOKEN,
    (Phase.OPENING, "stop"): Phase.STOPPED,
    (Phase.GREETING, "stop"): Phase.STOPPED,
    (Phase.UP, "stop"): Phase.STOPPED,
}
"""(Phase, event) -> the phase that follows; an event without an entry is not allowed.

`disconnect` is allowed in every phase and is therefore not in the table.
"""
