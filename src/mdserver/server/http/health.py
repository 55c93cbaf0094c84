"""`/health/live` and `/health/ready`, for supervisors and load balancers.

A process that is not live should be restarted. A server that is not ready should get no clients,
but a restart would not help it.
"""

from collections.abc import Callable

from mdserver.codec.http import Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import text_answer


async def live(_request: Request, _exchange: Exchange) -> Answer:
    """Answer that the process is alive."""
    return text_answer("live\n")


class Ready:
    """The path `/health/ready`.

    `unready` returns the reason why clients should not be sent here, or None. `warning` returns
    what needs an operator although clients are served, or None.
    """

    def __init__(
        self, unready: Callable[[], str | None], warning: Callable[[], str | None]
    ) -> None:
        self._unready = unready
        self._warning = warning

    async def __call__(self, _request: Request, _exchange: Exchange) -> Answer:
        """Answer 200 while the server takes publications, 503 with the reason while it does not."""
        reason = self._unready()
        if reason is not None:
            return text_answer(f"{reason}\n", 503)
        warning = self._warning()
        return text_answer("ready\n" if warning is None else f"ready\nwarning: {warning}\n")


def nothing() -> None:
    """Return None: there is nothing to say."""
