"""`POST /stream`: the whole protocol over HTTP, for clients without WebSocket.

The body of the request contains the first commands, and the answer brings events without end. The
event `connected` contains a secret path; commands that are posted there belong to the same session.
The path is the only proof that a later request comes from the same client, so it has
`SECRET_BYTES` random bytes.
"""

import secrets
from collections.abc import Sequence

from mdserver.codec.binary_form import BINARY
from mdserver.codec.http import Request, RequestRefusedError
from mdserver.codec.json_form import JSON
from mdserver.codec.streaming import (
    FRAMES_TYPE,
    NDJSON_TYPE,
    SSE_TYPE,
    STREAM_PATH,
    EventStreamForm,
    StreamAnswer,
    StreamForm,
    stream_headers,
)
from mdserver.core.commands import AnyCommand, Connect
from mdserver.core.text import safe_text
from mdserver.errors import RemoteProtocolError
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import text_answer

SECRET_BYTES = 24
_JSON_TYPE = "application/json"
_STREAM_TYPES = (NDJSON_TYPE, FRAMES_TYPE, SSE_TYPE)
_BODY_TYPES = (NDJSON_TYPE, FRAMES_TYPE, _JSON_TYPE)


async def open_stream(request: Request, _exchange: Exchange) -> StreamAnswer:
    """Begin a session whose events are the answer."""
    if not request.http_1_1:
        raise RequestRefusedError(400, "A stream needs HTTP/1.1.")
    accepted = _accepted(request)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    path = f"{STREAM_PATH}/{secret}"
    if accepted == SSE_TYPE:
        form: StreamForm = EventStreamForm(_body_type(request), path)
    else:
        form = StreamForm(accepted, path)
    return StreamAnswer(
        headers=stream_headers(accepted),
        form=form,
        transport="http-stream",
        commands=read_commands(request) or [Connect()],
        secret=secret,
    )


async def give_commands(request: Request, exchange: Exchange) -> Answer:
    """Give commands to a stream and answer 202, or 404 if there is no such stream."""
    secret = secret_of(request)
    if exchange.has_stream(secret):
        await exchange.ready(secret)  # the stream may end meanwhile
    if not exchange.has_stream(secret):
        return text_answer("There is no such stream (any more); open one with POST /stream.\n", 404)
    await exchange.give(secret, read_commands(request))
    return text_answer("", 202)


def secret_of(request: Request) -> str:
    """Return the secret in the path of a request with commands."""
    return request.path.removeprefix(STREAM_PATH + "/")


def read_commands(request: Request) -> Sequence[AnyCommand]:
    """Return the commands in a body, which may be empty.

    Raises RequestRefusedError: 415 for another media type, 400 for a malformed body.
    """
    kind = _body_type(request)
    if kind not in _BODY_TYPES:
        known = ", ".join(_BODY_TYPES)
        raise RequestRefusedError(
            415, f"Commands come as one of {known}, not as {safe_text(kind, 64)}."
        )
    try:
        if kind == FRAMES_TYPE:
            return BINARY.commands(request.body) if request.body else []
        if kind == _JSON_TYPE:
            return JSON.commands(request.body) if request.body else []
        return JSON.lines(request.body)
    except RemoteProtocolError as error:
        raise RequestRefusedError(400, error.reason) from None


def _body_type(request: Request) -> str:
    return (request.header(b"content-type") or NDJSON_TYPE).partition(";")[0].strip().lower()


def _accepted(request: Request) -> str:
    """Return the media type for the answer: the first in `Accept` (RFC 9110, section 12.5.1).

    JSON lines stand for any type. Quality values are ignored.
    """
    asked = request.header(b"accept")
    kinds = [part.partition(";")[0].strip().lower() for part in (asked or "*/*").split(",")]
    for kind in kinds:
        if kind in _STREAM_TYPES:
            return kind
        if kind in ("*/*", "application/*", _JSON_TYPE):
            return NDJSON_TYPE
    known = ", ".join(_STREAM_TYPES)
    raise RequestRefusedError(406, f"A stream comes as one of {known}, none of which is accepted.")
