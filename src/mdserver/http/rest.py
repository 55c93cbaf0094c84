"""`POST /rest/produce` and `GET /rest/consume`: publishing and reading without a session."""

from collections.abc import Iterator, Sequence
from typing import Any

from mdserver import limits
from mdserver.codec.http import Request, RequestRefusedError
from mdserver.codec.streaming import PartedAnswer
from mdserver.core.commands import Fetch, Publish
from mdserver.core.events import Delivery, Error, Fetched, Status, StatusName
from mdserver.core.message import Position, Qos
from mdserver.core.snapshot import fields_bytes
from mdserver.http.answers import (
    JSON_TYPE,
    NO_STORE,
    Answer,
    Exchange,
    Parameters,
    encode,
    json_answer,
    token_of,
)

ANSWER_TIMEOUT_S = 15.0
_BOOLEANS = {"true": True, "false": False}
_QOS = {"guaranteed": Qos.GUARANTEED, "standard": Qos.STANDARD}
_OUTCOMES = {
    StatusName.PUBLISH_OK: ("OK", 200),
    StatusName.PUBLISH_FAILED: ("FAILED", 503),
    StatusName.PUBLISH_DENIED: ("DENY", 403),
    StatusName.CONNECT_DENY: ("DENY", 403),
    StatusName.SUBSCRIBE_DENY: ("DENY", 403),
    StatusName.TOKEN_INVALID: ("DENY", 403),
    StatusName.TOKEN_EXPIRED: ("DENY", 403),
    StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED: ("MESSAGE_SIZE_LIMIT_EXCEEDED", 413),
}
_NO_ANSWER = "The server has no answer in time; nobody knows what became of it."


async def produce(request: Request, exchange: Exchange) -> Answer:
    """Publish the body of the request."""
    parameters = Parameters(request, ("subject", "token", "closure", "retained", "qos"))
    subject = closure = None
    try:
        subject = parameters.text("subject")
        closure = parameters.text("closure", limits.CLOSURE_BYTES_MAX)
        parameters.check()
        command = Publish(
            subject=parameters.required("subject"),
            **_content(request.body),
            closure=closure,
            retained=parameters.choice("retained", _BOOLEANS, True),
            qos=parameters.choice("qos", _QOS, Qos.GUARANTEED),
            id=0,
        )
    except RequestRefusedError as error:
        return _produced(subject, closure, "FAILED", 400, error.reason)
    event = await exchange.ask(token_of(request, parameters), command, ANSWER_TIMEOUT_S)
    if isinstance(event, Status):
        word, status = _OUTCOMES.get(event.status, ("FAILED", 503))
        return _produced(subject, closure, word, status, event.reason)
    if isinstance(event, Error):
        return _produced(subject, closure, "FAILED", 400, event.reason)
    return _produced(subject, closure, "FAILED", 503, _NO_ANSWER)


def _content(body: bytes) -> dict[str, Any]:
    try:
        return {"content": body.decode()}
    except UnicodeDecodeError:
        return {"content_base64": body}


def _produced(
    subject: str | None, closure: str | None, word: str, status: int, reason: str | None
) -> Answer:
    said = {"subject": subject, "closure": closure, "status": word}
    return json_answer(said if reason is None else {**said, "reason": reason}, status)


async def consume(request: Request, exchange: Exchange) -> Answer | PartedAnswer:
    """Read the snapshot, the newest messages, or those after a position."""
    parameters = Parameters(request, ("subject", "token", "history", "epoch", "seq"))
    subject = None
    try:
        subject = parameters.text("subject")
        command = _fetch(parameters)
    except RequestRefusedError as error:
        return _consumed(subject, [], 400, error.reason)
    event = await exchange.ask(token_of(request, parameters), command, ANSWER_TIMEOUT_S)
    if isinstance(event, Fetched):
        return _history(command.subject, event.deliveries)
    return _consumed(subject, [], *refused(event))


def _history(subject: str, deliveries: Sequence[Delivery]) -> Answer | PartedAnswer:
    """Messages, of which each is encoded when the client has taken those before it."""
    size = sum(_size(delivery) for delivery in deliveries)
    if size <= limits.ANSWER_PART_BYTES:
        return _consumed(subject, [_message(delivery) for delivery in deliveries])
    if size > limits.ANSWER_BYTES_MAX:
        reason = (
            f"These messages have {size} bytes, and an answer holds {limits.ANSWER_BYTES_MAX}: "
            "ask for fewer."
        )
        return _consumed(subject, [], 413, reason)
    return PartedAnswer(200, (JSON_TYPE, NO_STORE), _parts(subject, deliveries), size)


def _parts(subject: str, deliveries: Sequence[Delivery]) -> Iterator[bytes]:
    part = b'{"subject":' + encode(subject) + b',"messages":['
    for index, delivery in enumerate(deliveries):
        part += (b"," if index else b"") + encode(_message(delivery))
        if len(part) >= limits.ANSWER_PART_BYTES:
            yield part
            part = b""
    yield part + b"]}"


def _size(delivery: Delivery) -> int:
    publication = delivery.entry.publication
    return len(publication.content) + fields_bytes(publication.fields)


def refused(event: object) -> tuple[int, str]:
    """The HTTP status and the reason for what came in place of an answer."""
    if isinstance(event, Status):
        return _OUTCOMES.get(event.status, ("FAILED", 503))[1], event.reason or ""
    if isinstance(event, Error):
        return 400, event.reason
    return 503, _NO_ANSWER


def _fetch(parameters: Parameters) -> Fetch:
    parameters.check()
    history = parameters.count("history")
    epoch, seq = parameters.count("epoch"), parameters.count("seq")
    if (epoch is None) != (seq is None):
        raise RequestRefusedError(400, "A position is `epoch` and `seq` together.")
    if history is not None and epoch is not None:
        raise RequestRefusedError(400, "Give either `history` or a position, not both.")
    after = None if epoch is None or seq is None else Position(epoch, seq)
    return Fetch(subject=parameters.required("subject"), history=history, after=after)


def _consumed(
    subject: str | None, messages: list[dict[str, Any]], status: int = 200, reason: str = ""
) -> Answer:
    said: dict[str, Any] = {"subject": subject, "messages": messages}
    return json_answer({**said, "reason": reason} if reason else said, status)


def _message(delivery: Delivery) -> dict[str, Any]:
    entry = delivery.entry
    publication = entry.publication
    message: dict[str, Any] = {"message_type": delivery.type.value}
    if publication.text:
        message["content"] = publication.content.decode()
    else:
        message["content_base64"] = publication.content
    if publication.fields:
        message["fields"] = publication.fields
    return {
        **message,
        "closure": publication.closure,
        "retained": publication.retained,
        "compressed": publication.compressed,
        "epoch": entry.epoch,
        "seq": entry.seq,
    }
