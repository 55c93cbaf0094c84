"""Which web pages may use the HTTP paths (Fetch standard, "CORS protocol").

The rule is that of WebSocket: a request from a page of an origin that is not allowed is refused
whatever it asks for; a request without an Origin comes from no page.
"""

from mdserver.codec.http import Headers, Request, RequestRefusedError

_METHODS = b"GET, HEAD, POST"
_HEADERS = b"authorization, content-type, last-event-id"
_MAX_AGE_S = b"600"


def check_origin(request: Request, allowed: frozenset[str] | None) -> Headers:
    """The headers that let the page read the answer; `allowed` in lower case, None allows all.

    Raises RequestRefusedError (403) for any other origin.
    """
    origin = request.header(b"origin")
    if origin is None:
        return ()
    if allowed is not None and origin.lower() not in allowed:
        raise RequestRefusedError(403, f"Pages of {origin[:200]} are not allowed to connect.")
    if allowed is None:
        return ((b"access-control-allow-origin", b"*"),)
    return ((b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin"))


def is_preflight(request: Request) -> bool:
    """Whether a browser asks what a page may send before it sends it."""
    return (
        request.method == "OPTIONS" and request.header(b"access-control-request-method") is not None
    )


PREFLIGHT: Headers = (
    (b"access-control-allow-methods", _METHODS),
    (b"access-control-allow-headers", _HEADERS),
    (b"access-control-max-age", _MAX_AGE_S),
)
