"""`/health/live` and `/health/ready`, for what watches over the process."""

from collections.abc import Callable

from mdserver.codec.http import Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import text_answer


async def live(_request: Request, _exchange: Exchange) -> Answer:
    """Answer that the process is alive."""
    return text_answer("live\n")


class Ready:
    """Whether clients should be sent here: `unready` says why not, or None.

    `warning` is what an operator should see to although clients are served.
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
