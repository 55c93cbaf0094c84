"""The dashboard for operators at the monitor's listener, with its files and the JavaScript client.

The page reads the monitor's other paths, so it has the same user and password: a browser asks for
them once, and then sends them with each request. The console of the page connects to a listener for
clients, at another port. So the Content-Security-Policy of the page allows WebSocket connections to
any host; `AllowedOrigins` of that listener decides whether it accepts them.
"""

from mdserver.codec.http import CONTENT_POLICY, Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.client_files import CLIENT, OneFile, answer_of, web
from mdserver.server.http.router import Methods

PAGE = "dashboard.html"
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Page:
    """The handler of the page, whose policy allows WebSocket connections elsewhere."""

    def __init__(self) -> None:
        answer = answer_of(web().joinpath("dashboard", PAGE))
        headers = [
            (name, _POLICY if name == CONTENT_POLICY else value) for name, value in answer.headers
        ]
        self._answer = Answer(answer.status, headers, answer.body)

    async def __call__(self, _request: Request, _exchange: Exchange) -> Answer:
        """Return the page."""
        return self._answer


def dashboard_routes() -> dict[str, Methods]:
    """Return the paths of the page, its files and the JavaScript client."""
    routes: dict[str, Methods] = {"/": {"GET": Page()}}
    for prefix, folder in (("/", ("dashboard",)), (CLIENT, ("client", "bundle"))):
        for file in sorted(web().joinpath(*folder).iterdir(), key=lambda one: one.name):
            if file.is_file() and file.name != PAGE:
                routes[prefix + file.name] = {"GET": OneFile(*folder, file.name)}
    return routes
