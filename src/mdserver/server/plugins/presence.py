"""`Extension.Presence.Class`: a Python class of the operator's is told who comes and goes.

The class is made once, without arguments, and has two coroutine functions, `joined(who, subject)`
and `left(who, subject)`, each of which is given a `Subscriber`; the subject may be a pattern.
`left` comes when a client unsubscribes and when its connection ends, so it is where to send what
should reach people who are not connected, such as a push notification to a phone.

What they answer does not matter; exceptions, and calls that take longer than the deadline, are
logged. Calls of one session come in order, one at a time; those of different sessions may overlap.
"""

from collections import deque
from typing import Any

import structlog
import trio
from attrs import frozen

from mdserver import limits
from mdserver.core.outputs import Log
from mdserver.core.session import session_name
from mdserver.server.plugins.task_scope import TaskScope

PRESENCE = "presence"
METHODS = {"join": "joined", "leave": "left"}
log = structlog.get_logger()


@frozen
class Subscriber:
    """Who came or went. `session` is the name that the client was told in `connected`,
    `external_token` what its application gave as such.
    """

    session: str
    address: str
    user: str | None
    external_token: str | None


class PresenceHook(TaskScope):
    """Tells the operator's object what the presence stream says."""

    def __init__(self, told: Any, deadline: int, node: str) -> None:
        super().__init__()
        self._told = told
        self._node = node
        self._deadline_s = deadline / limits.NS_PER_S
        self._waiting: dict[int, deque[tuple[str, Subscriber, str]]] = {}
        self._count = 0

    def take(self, line: Log) -> None:
        """Take an output; those of other streams are nothing to this class."""
        if line.stream != PRESENCE or self._nursery is None:
            return
        if self._count >= limits.PRESENCE_CALLS_PENDING_MAX:
            log.warning("presence class is too slow", lost=line.name)
            return
        values: dict[str, Any] = line.values
        session = values["session"]
        who = Subscriber(
            session_name(self._node, session),
            values["address"],
            values["user"],
            values["external_token"],
        )
        self._count += 1
        waiting = self._waiting.get(session)
        if waiting is None:
            self._waiting[session] = deque([(line.name, who, values["subject"])])
            self._nursery.start_soon(self._tell, session)
        else:
            waiting.append((line.name, who, values["subject"]))

    async def _tell(self, session: int) -> None:
        waiting = self._waiting[session]
        while waiting:
            name, who, subject = waiting[0]
            try:
                with trio.move_on_after(self._deadline_s) as deadline:
                    await getattr(self._told, METHODS[name])(who, subject)
                if deadline.cancelled_caught:
                    log.warning("presence class took too long", call=METHODS[name])
            except Exception:
                log.exception("presence class failed", call=METHODS[name])
            waiting.popleft()
            self._count -= 1
        del self._waiting[session]
