"""The dashboard for operators at the monitor's listener, with its files and the JavaScript client.

The page reads the monitor's other paths, so it has the same user and password: a browser asks for
them once, and then sends them with each request. What members publish of themselves, and its
console, it has from a listener for clients, at another port. So its Content-Security-Policy names
the listeners for clients of this member and of those in sight, and no other host;
`AllowedOrigins` there decides whether they accept the page.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

from mdserver.codec.http import CONTENT_POLICY, Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.client_files import CLIENT, OneFile, answer_of, web
from mdserver.server.http.router import Methods

PAGE = "dashboard.html"
WILDCARDS = ("*", "0.0.0.0", "::")  # noqa: S104 - is compared
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_SCHEMES = {"https": ("https", "wss"), "wss": ("https", "wss"), "": ("http", "ws", "https", "wss")}


def sources(clients: Iterable[str], named: str) -> Iterator[str]:
    """Yield the sources of a policy to which a client may connect that is given these URLs.

    `named` is the host by which the browser called the monitor. A listener for clients that takes
    every address, or that of this machine, is likely reached by the same one.
    """
    for url in clients:
        try:
            parts = urlsplit(url if "://" in url else f"//{url}")
            port, host = parts.port, parts.hostname
        except ValueError:
            continue
        if host is None:
            continue
        own = f"[{host}]" if ":" in host else host
        for name in dict.fromkeys(
            ([] if host in WILDCARDS else [own]) + ([named] if named else [])
        ):
            if _HOST.fullmatch(name):
                for scheme in _SCHEMES.get(parts.scheme, ("http", "ws")):
                    yield f"{scheme}://{name}" + (f":{port}" if port else "")


class Page:
    """The handler of the page; `clients` returns the URLs of the listeners for clients."""

    def __init__(self, clients: Callable[[], Iterable[str]]) -> None:
        self._answer = answer_of(web().joinpath("dashboard", PAGE))
        self._clients = clients

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return the page, with a policy for the host by which it is called."""
        named = (request.header(b"host") or "").rpartition(":")[0]
        allowed = " ".join(["'self'", *dict.fromkeys(sources(self._clients(), named))])
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            f"connect-src {allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ).encode()
        headers = [
            (name, policy if name == CONTENT_POLICY else value)
            for name, value in self._answer.headers
        ]
        return Answer(self._answer.status, headers, self._answer.body)


def dashboard_routes(clients: Callable[[], Iterable[str]]) -> dict[str, Methods]:
    """Return the paths of the page, its files and the JavaScript client."""
    routes: dict[str, Methods] = {"/": {"GET": Page(clients)}}
    for prefix, folder in (("/", ("dashboard",)), (CLIENT, ("client", "bundle"))):
        for file in sorted(web().joinpath(*folder).iterdir(), key=lambda one: one.name):
            if file.is_file() and file.name != PAGE:
                routes[prefix + file.name] = {"GET": OneFile(*folder, file.name)}
    return routes
