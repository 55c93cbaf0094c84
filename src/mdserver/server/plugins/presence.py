"""`Extension.Presence.Class`: calls a Python class of the operator when subscribers come and go.

The class is instantiated once, without arguments. It has two coroutine functions,
`joined(who, subject)` and `left(who, subject)`, each of which is given a `Subscriber`; the subject
may be a pattern. `left` is called when a client unsubscribes and when its connection ends. It is
the place to reach people who are not connected, for instance with a push notification to a phone.

The results of the functions are ignored. Exceptions, and calls that take longer than the deadline,
are logged. Calls about one session are made in order and one at a time; calls about different
sessions may overlap.
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
    """A client that subscribed or unsubscribed.

    `session` is the name that the client was given in `connected`, `external_token` the one that
    its application gave.
    """

    session: str
    address: str
    user: str | None
    external_token: str | None


class PresenceHook(TaskScope):
    """Calls the operator's object for each line of the presence stream.

    `_waiting` has the calls about each session, the one that runs included; a session with an entry
    has a task. `_count` is the number of all calls, bounded by `PRESENCE_CALLS_PENDING_MAX`.
    """

    def __init__(self, told: Any, deadline: int, node: str) -> None:
        super().__init__()
        self._told = told
        self._node = node
        self._deadline_s = deadline / limits.NS_PER_S
        self._waiting: dict[int, deque[tuple[str, Subscriber, str]]] = {}
        self._count = 0

    def take(self, line: Log) -> None:
        """Queue the call for a line of the presence stream; ignore other streams.

        A call that exceeds the bound is dropped and logged: presence must not delay messages.
        """
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
        """Make the calls about one session in order, until none is left."""
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
