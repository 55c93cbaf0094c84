"""The handler of the monitor's listener, with its authentication (RFC 7617, Basic)."""

import base64
import binascii
import hmac
from collections.abc import Callable, Sequence
from typing import Any

from mdserver.codec.http import Request
from mdserver.codec.streaming import PartedAnswer, StreamAnswer
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http import health
from mdserver.server.http.answers import text_answer
from mdserver.server.http.router import Paths
from mdserver.server.monitor.jolokia import PATH as JOLOKIA

Audit = Callable[[Request, Exchange, Answer], None]
_CHALLENGE = (b"www-authenticate", b'Basic realm="mdserver monitor", charset="UTF-8"')
# Against cross-site request forgery: before a browser sends such a header for a page of another
# origin it asks with a preflight request, and the monitor allows no other origin.
_ORDER = b"x-mdserver"
_READING = ("GET", "HEAD")
FORMATS = {"json": False, "text": True}


class Monitor(Paths):
    """The pages for operators.

    Without a password the pages need no authentication. `/health` never needs any, because probes
    have no credentials. `audit` is called with each order and its answer, also if
    that is a refusal for want of credentials.
    """

    def __init__(
        self,
        unready: Callable[[], str | None],
        user: str = "",
        password: str = "",
        warning: Callable[[], str | None] = health.nothing,
        audit: Audit | None = None,
    ) -> None:
        super().__init__(
            {
                "/health/live": {"GET": health.live},
                "/health/ready": {"GET": health.Ready(unready, warning)},
            }
        )
        self._audit = audit
        self._expected = f"{user}:{password}".encode() if password else None

    def route_of(self, path: str) -> str:
        """Return the route: one for all paths of JMX over HTTP, whose POSTs only read."""
        return JOLOKIA if path.startswith(JOLOKIA + "/") else path

    async def __call__(
        self, request: Request, exchange: Exchange
    ) -> Answer | PartedAnswer | StreamAnswer:
        """Answer a request: 401 without credentials, 403 for an order without `X-Mdserver`."""
        reading = request.method in _READING or self.route_of(request.path) == JOLOKIA
        if reading:
            return self._refused(request) or await super().__call__(request, exchange)
        if request.header(_ORDER) is None:
            text = "Orders need the header `X-Mdserver: 1`, which no web page can send.\n"
            return text_answer(text, 403)
        answer = self._refused(request) or await super().__call__(request, exchange)
        if self._audit is not None:
            assert isinstance(answer, Answer), "orders have short answers"
            self._audit(request, exchange, answer)
        return answer

    def _refused(self, request: Request) -> Answer | None:
        """Return the answer to a request without the right credentials; None if it has them."""
        if self._allowed(request):
            return None
        refused = text_answer("The monitor asks for its user and password.\n", 401)
        return Answer(401, [*refused.headers, _CHALLENGE], refused.body)

    def _allowed(self, request: Request) -> bool:
        if self._expected is None or request.path.startswith("/health/"):
            return True
        scheme, _, given = (request.header(b"authorization") or "").partition(" ")
        try:
            credentials = base64.b64decode(given.strip(), validate=True)
        except (binascii.Error, ValueError):
            return False
        return scheme.lower() == "basic" and hmac.compare_digest(credentials, self._expected)


def aligned(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows with the same keys as text in columns, below a line with the keys."""
    if not rows:
        return ""
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)
