"""`/health/live` and `/health/ready`, for what watches over the process."""

from collections.abc import Callable

from mdserver.codec.http import Request
from mdserver.http.answers import Answer, Exchange, text_answer


async def live(_request: Request, _exchange: Exchange) -> Answer:
    """The process answers."""
    return text_answer("live\n")


class Ready:
    """Whether clients should be sent here: `unready` says why not, or None."""

    def __init__(self, unready: Callable[[], str | None]) -> None:
        self._unready = unready

    async def __call__(self, _request: Request, _exchange: Exchange) -> Answer:
        """200 while the server takes publications, 503 with the reason while it does not."""
        reason = self._unready()
        return text_answer("ready\n") if reason is None else text_answer(f"{reason}\n", 503)
