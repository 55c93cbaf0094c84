"""Origins and hosts: which web pages may use the server, and which names it may be called by.

Origins follow the Fetch standard ("CORS protocol"). The rule is that of WebSocket: a request from a
page of an origin that is not allowed is refused, whatever it asks for. A request without an Origin
does not come from a page that could read the answer. It may come from a picture or a frame in a
page, and then `Sec-Fetch-Site` tells it ("Fetch Metadata Request Headers").

The `Host` of a request protects against DNS rebinding: an attacker's page makes its own name point
to this server after it was loaded, so that the browser takes the server for the page's own origin.
The request then has the attacker's name as its `Host`. Addresses cannot be made to point elsewhere,
so any address is allowed.
"""

import ipaddress
import re

from attrs import frozen

from mdserver.codec.http import Headers, Request, RequestRefusedError
from mdserver.core.text import safe_text

_METHODS = b"GET, HEAD, POST"
_HEADERS = b"authorization, content-type, idempotency-key, last-event-id"
_MAX_AGE_S = b"600"
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::[0-9]*)?")


@frozen
class WebRule:
    """The values that `Origin` and `Host` may have, in lower case; None allows any.

    With `own_pages` the pages that this server itself serves are allowed as well; those of other
    origins may do nothing but lead a user here.
    """

    origins: frozenset[str] | None = None
    hosts: frozenset[str] | None = None
    own_pages: bool = False

    def check_host(self, request: Request) -> None:
        """Raise RequestRefusedError (421) for a name that is not one of this server."""
        host = request.header(b"host")
        if self.hosts is None or host is None:
            return
        match = _HOST.fullmatch(host.strip().lower())
        name = match[1].strip("[]").rstrip(".") if match else ""
        if name not in self.hosts and not _stays(name):
            raise RequestRefusedError(
                421, f"This server is not called {safe_text(host)}: AllowedHosts has to name it."
            )

    def check_origin(self, request: Request) -> Headers:
        """Return the headers that let the page read the answer.

        Raises RequestRefusedError (403) for a page of an origin that is not allowed.
        """
        if self.own_pages and _is_of_other_site(request):
            raise RequestRefusedError(403, "Pages of other sites are not allowed to ask here.")
        origin = request.header(b"origin")
        if origin is None:
            return ()
        if self.origins is None:
            return ((b"access-control-allow-origin", b"*"),)
        where = origin.lower().partition("://")[2]
        own = self.own_pages and where == (request.header(b"host") or "").lower() != ""
        if origin.lower() not in self.origins and not own:
            raise RequestRefusedError(
                403, f"Pages of {safe_text(origin)} are not allowed to connect."
            )
        return ((b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin"))


def _is_of_other_site(request: Request) -> bool:
    """Return whether a page of another origin sends this, not a user who follows a link of it."""
    if request.header(b"sec-fetch-site") in (None, "none", "same-origin"):
        return False
    return (
        request.method != "GET"
        or request.header(b"sec-fetch-mode") != "navigate"
        or request.header(b"sec-fetch-dest") != "document"
    )


def _stays(name: str) -> bool:
    """Return whether a name is safe from DNS rebinding: it always means the same address."""
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, 6.3
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_preflight(request: Request) -> bool:
    """Return whether this is a browser's question what a page may send (a CORS preflight)."""
    return (
        request.method == "OPTIONS" and request.header(b"access-control-request-method") is not None
    )


PREFLIGHT: Headers = (
    (b"access-control-allow-methods", _METHODS),
    (b"access-control-allow-headers", _HEADERS),
    (b"access-control-max-age", _MAX_AGE_S),
)
