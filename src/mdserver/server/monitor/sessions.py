"""`/sessions` of the monitor: the connected sessions, and the order to disconnect one of them."""

import heapq
from collections.abc import AsyncIterator
from typing import Any, Protocol

import attrs
import trio

from mdserver import limits
from mdserver.cluster.node import Node
from mdserver.codec.http import Request
from mdserver.core.session import session_name
from mdserver.core.text import safe_text
from mdserver.limits import CLOSE_MOVED
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.clients.outbox import Outbox, SessionView
from mdserver.server.http.answers import Parameters, json_answer, text_answer
from mdserver.server.monitor.pages import FORMATS, aligned
from mdserver.server.server import Server

Row = dict[str, Any]
SORTS = {name: name for name in ("outbox_bytes", "waiting_ms", "silent_ms")}
BOOLEANS = {"false": False, "true": True}
SESSIONS_AT_ONCE = 1000  # that are looked at before others have a turn, some 5 ms
DISCONNECTED = "An operator disconnected this session."


@attrs.frozen
class SessionQuery:
    """Which sessions to show: the first `limit` by `sort`, the largest first.

    `slow`: only those whose socket takes no more for now. `names`: with what they subscribed to.
    """

    sort: str
    limit: int
    slow: bool = False
    address: str | None = None
    session: str | None = None
    names: bool = False


class SessionSource(Protocol):
    """The sessions of a server, or those of all its workers."""

    async def rows(self, query: SessionQuery) -> list[Row]:
        """Return the sessions, in order."""

    async def disconnect(self, name: str) -> bool:
        """End a session; return whether there was one of this name."""


class SessionList:
    """The sessions of this process."""

    def __init__(self, server: Server, node: Node) -> None:
        self._server = server
        self._node = node

    async def rows(self, query: SessionQuery) -> list[Row]:
        """Return the sessions, in order."""
        found = [
            (getattr(view, query.sort), -outbox.session, view)
            async for outbox, view in self._views()
            if (outbox.unsent or not query.slow)
            and query.address in (None, view.address)
            and query.session in (None, view.session)
        ]
        shown = heapq.nlargest(query.limit, found)
        most = limits.SUBSCRIPTIONS_SHOWN_MAX if query.names else 0
        rows = [self._row(view, -number, most) for _, number, view in shown]
        if not query.names:
            for row in rows:
                del row["names"]
        return rows

    async def _views(self) -> AsyncIterator[tuple[Outbox, SessionView]]:
        """Yield each session; the other tasks run after every `SESSIONS_AT_ONCE` of them."""
        now = self._server.engine.clock()
        for looked, outbox in enumerate(list(self._server.sessions.outboxes.values()), 1):
            yield outbox, outbox.owner.view(now)
            if looked % SESSIONS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    def _row(self, view: SessionView, number: int, names_max: int) -> Row:
        row = attrs.asdict(view)
        described = self._node.broker.inspection.session(number, names_max)
        row["client"] = None if described is None else safe_text(described.client or "", 128)
        row["user"] = None if described is None else safe_text(described.user or "", 128)
        row["subscriptions"] = 0 if described is None else described.subscriptions
        row["names"] = [] if described is None else described.names
        return row

    async def disconnect(self, name: str) -> bool:
        """End a session; return whether there was one of this name."""
        outbox = self._called(name)
        if outbox is not None:
            outbox.end(CLOSE_MOVED, DISCONNECTED)
        return outbox is not None

    def _called(self, name: str) -> Outbox | None:
        """Return the outbox of the session with this name, None if there is none."""
        number = name.rpartition("-")[2]
        if not (number.isascii() and number.isdigit() and len(number) < 20):
            return None
        if name != session_name(self._server.settings.node_name, int(number)):
            return None
        return self._server.sessions.outboxes.get(int(number))


class SessionsPage:
    """The sessions as they are now, with the largest value of `sort` first: JSON or text."""

    def __init__(self, sessions: SessionSource) -> None:
        self._sessions = sessions

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return a page of the sessions that match the filters."""
        known = ("limit", "offset", "sort", "slow", "address", "session", "subscriptions", "format")
        asked = Parameters(request, known)
        asked.check()
        limit = asked.count("limit", limits.SESSIONS_SHOWN_MAX)
        limit = 100 if limit is None else limit
        offset = asked.count("offset", limits.CONNECTIONS_MAX * 10) or 0
        query = SessionQuery(
            sort=asked.choice("sort", SORTS, "outbox_bytes"),
            limit=offset + limit,
            slow=asked.choice("slow", BOOLEANS, False),
            address=asked.text("address"),
            session=asked.text("session"),
            names=asked.choice("subscriptions", BOOLEANS, False),
        )
        as_text = asked.choice("format", FORMATS, False)
        rows = (await self._sessions.rows(query))[offset:]
        return text_answer(aligned(rows)) if as_text else json_answer(rows)


class DisconnectSession:
    """`POST /sessions/disconnect?session=NAME`: ends a session with the code for a move."""

    def __init__(self, sessions: SessionSource, node_name: str) -> None:
        self._sessions = sessions
        self._node_name = node_name

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """End the session; the answer is 404 if there is no session of this name."""
        asked = Parameters(request, ("session",))
        asked.check()
        name = asked.required("session")
        if not await self._sessions.disconnect(name):
            node = self._node_name
            return text_answer(
                f"There is no session {safe_text(name, 256)} here: the sessions of this member are "
                f"called {node}-1 and so on, as /sessions lists them.\n",
                404,
            )
        return json_answer({"disconnected": name})
