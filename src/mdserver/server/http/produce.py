"""`POST /rest/produce`: publishing without a session.

With `subject` in the query the body is the content of one message. Without it the body is JSON: an
object with the keys of the `publish` command, or an array of them, which are published in order.

A request with an `Idempotency-Key` may be repeated until it is answered: the n-th publication with
a key is one publication, no matter how often it is sent and to which member
(draft-ietf-httpapi-idempotency-key-header). To the node, n is the publication's number.
"""

from typing import Any

import msgspec

from mdserver import limits
from mdserver.codec.http import Request, RequestRefusedError
from mdserver.core.commands import Publish
from mdserver.core.events import AnyEvent, Error, Status
from mdserver.core.message import Qos
from mdserver.core.text import safe_text
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import Parameters, json_answer, token_of
from mdserver.server.http.outcomes import ANSWER_TIMEOUT_S, NO_ANSWER, outcome_of

_PARAMETERS = ("subject", "token", "closure", "retained", "qos")
_BOOLEANS = {"true": True, "false": False}
_QOS = {"guaranteed": Qos.GUARANTEED, "standard": Qos.STANDARD}
_JSON = "application/json"
_one = msgspec.json.Decoder(Publish)
_several = msgspec.json.Decoder(list[Publish])


async def produce(request: Request, exchange: Exchange) -> Answer:
    """Publish the messages of the request, and answer with the result of each of them.

    For an array the HTTP status is 200 if all were published, otherwise that of the first failure.
    """
    parameters = Parameters(request, _PARAMETERS)
    subject = closure = None
    try:
        subject = parameters.text("subject")
        closure = parameters.text("closure", limits.CLOSURE_BYTES_MAX)
        parameters.check()
        key = _idempotency_key(request)
        listed = subject is None and request.body.lstrip()[:1] == b"["
        commands = (
            _commands(request, listed)
            if subject is None
            else [_command(request, parameters, subject, closure)]
        )
    except RequestRefusedError as error:
        return json_answer(_result(subject, closure, "FAILED", error.reason), 400)
    numbered = [
        msgspec.structs.replace(command, id=None, number=number if _counts(command, key) else None)
        for number, command in enumerate(commands, start=1)
    ]
    token = token_of(request, parameters)
    events = await exchange.ask_each(token, numbered, ANSWER_TIMEOUT_S, key)
    results = [_told(command, event) for command, event in zip(commands, events, strict=True)]
    if not listed:
        return json_answer(*results[0])
    failed = (status for _, status in results if status != 200)
    return json_answer({"results": [said for said, _ in results]}, next(failed, 200))


def _counts(command: Publish, key: str) -> bool:
    """Return whether a repeated publication can be recognized.

    Those of quality STANDARD cannot: they have no place in a log, so nothing remembers them.
    """
    return bool(key) and command.qos is Qos.GUARANTEED


def _command(
    request: Request, parameters: Parameters, subject: str, closure: str | None
) -> Publish:
    """Return the publication whose content is the body."""
    return Publish(
        subject=subject,
        **_content(request.body),
        closure=closure,
        retained=parameters.choice("retained", _BOOLEANS, True),
        qos=parameters.choice("qos", _QOS, Qos.GUARANTEED),
    )


def _content(body: bytes) -> dict[str, Any]:
    try:
        return {"content": body.decode()}
    except UnicodeDecodeError:
        return {"content_base64": body}


def _commands(request: Request, listed: bool) -> list[Publish]:
    """Decode the publications in a body of JSON; `listed` says that it is an array.

    Raises RequestRefusedError.
    """
    kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise RequestRefusedError(
            400, f"Give `subject` in the query, or publications as {_JSON} in the body."
        )
    try:
        commands = _several.decode(request.body) if listed else [_one.decode(request.body)]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestRefusedError(
            400, f"The body is no publication, nor an array of them: {safe_text(error)}."
        ) from None
    if not 1 <= len(commands) <= limits.PUBLICATIONS_PER_REQUEST_MAX:
        most = limits.PUBLICATIONS_PER_REQUEST_MAX
        raise RequestRefusedError(400, f"An array has 1 to {most} publications.")
    return commands


def _idempotency_key(request: Request) -> str:
    """Return the key, empty if there is none. Raises RequestRefusedError."""
    key = request.header(b"idempotency-key")
    if key is None:
        return ""
    least, most = limits.IDEMPOTENCY_KEY_CHARS_MIN, limits.IDEMPOTENCY_KEY_CHARS_MAX
    if not least <= len(key) <= most or not all("!" <= sign <= "~" for sign in key):
        # A short key could be guessed. A stranger that publishes with a guessed key makes the
        # owner's publication look like a repeat, so it would not be published.
        raise RequestRefusedError(
            400,
            f"An Idempotency-Key has {least} to {most} letters, digits and signs, such as a UUID.",
        )
    return key


def _told(command: Publish, event: AnyEvent | None) -> tuple[dict[str, Any], int]:
    """Return the result of a publication for the answer, and its HTTP status."""
    subject, closure = command.subject, command.closure
    if isinstance(event, Status):
        word, status = outcome_of(event.status)
        said = _result(subject, closure, word, event.reason)
        if event.epoch is not None:
            said |= {"epoch": event.epoch, "seq": event.seq}
        return said | ({"duplicate": True} if event.duplicate else {}), status
    if isinstance(event, Error):
        return _result(subject, closure, "FAILED", event.reason), 400
    return _result(subject, closure, "FAILED", NO_ANSWER), 503


def _result(
    subject: str | None, closure: str | None, word: str, reason: str | None
) -> dict[str, Any]:
    said: dict[str, Any] = {"subject": subject, "closure": closure, "status": word}
    return said if reason is None else said | {"reason": reason}
