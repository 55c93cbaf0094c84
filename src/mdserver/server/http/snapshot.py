"""`GET /snapshot`: the latest content of a subject, as plain content or as a `message` event."""

from mdserver.codec.http import Request
from mdserver.codec.json_form import JSON
from mdserver.core.commands import Fetch
from mdserver.core.events import Fetched
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import Parameters, text_answer, token_of
from mdserver.server.http.outcomes import ANSWER_TIMEOUT_S
from mdserver.server.http.rest import refused

_FORMATS = {"content": False, "json": True}
_NO_STORE = (b"cache-control", b"no-store")


async def snapshot(request: Request, exchange: Exchange) -> Answer:
    """Answer with the snapshot of a subject; 204 if the subject has none."""
    parameters = Parameters(request, ("subject", "token", "format"))
    parameters.check()
    as_json = parameters.choice("format", _FORMATS, False)
    command = Fetch(subject=parameters.required("subject"))
    event = await exchange.ask(token_of(request, parameters), command, ANSWER_TIMEOUT_S)
    if not isinstance(event, Fetched):
        status, reason = refused(event)
        return text_answer(reason + "\n", status)
    if not event.deliveries:
        return Answer(204, (_NO_STORE,))
    delivery = event.deliveries[-1]
    publication = delivery.entry.publication
    if as_json:
        return Answer(200, (_kind(b"application/json"), _NO_STORE), JSON.delivery(delivery))
    kind = b"text/plain; charset=utf-8" if publication.text else b"application/octet-stream"
    return Answer(200, (_kind(kind), _NO_STORE, _NO_SNIFF), publication.content)


_NO_SNIFF = (b"x-content-type-options", b"nosniff")


def _kind(kind: bytes) -> tuple[bytes, bytes]:
    return (b"content-type", kind)
