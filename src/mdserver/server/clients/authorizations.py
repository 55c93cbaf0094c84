"""Counts the authorization requests that have no answer yet, by session.

Until a request is answered, the node holds the commands that its session sends. The reader of the
session therefore looks here before it reads on, so that what the node holds stays bounded.
"""

from collections.abc import Callable

import trio

from mdserver.core.inputs import Authorized
from mdserver.core.outputs import Authorize


class Authorizations:
    """The requests that have no answer yet.

    `pending` maps sessions to their number of requests; a session without requests has no entry.
    """

    def __init__(self, dispatch: Callable[[Authorized], None]) -> None:
        self.pending: dict[int, int] = {}
        self._dispatch = dispatch
        self._session_of: dict[int, int] = {}
        self._resolved: dict[int, trio.Event] = {}

    def through(self, authorizer: Callable[[Authorize], None]) -> Callable[[Authorize], None]:
        """Return the route for requests that `authorizer` answers, by calling `answer`."""

        def ask(request: Authorize) -> None:
            if request.action != "disconnect":  # to which there is no answer
                session = request.session
                self._session_of[request.request] = session
                self.pending[session] = self.pending.get(session, 0) + 1
            authorizer(request)

        return ask

    def answer(self, authorized: Authorized) -> None:
        """Give an answer to the node, and wake the session's reader if it was the last one."""
        session = self._session_of.pop(authorized.request, None)
        if session is not None:
            left = self.pending[session] - 1
            if left:
                self.pending[session] = left
            else:
                del self.pending[session]
                resolved = self._resolved.pop(session, None)
                if resolved is not None:
                    resolved.set()
        self._dispatch(authorized)

    async def resolved(self, session: int) -> None:
        """Wait until no request about this session is unanswered."""
        while session in self.pending:
            await self._resolved.setdefault(session, trio.Event()).wait()
