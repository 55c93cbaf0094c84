"""`GET /rest/consume`: reading without a session."""

from collections.abc import Iterator, Sequence
from typing import Any

from mdserver import limits
from mdserver.codec.http import Request, RequestRefusedError
from mdserver.codec.streaming import PartedAnswer
from mdserver.core.commands import Fetch
from mdserver.core.events import Delivery, Error, Fetched, Status
from mdserver.core.message import Position
from mdserver.core.snapshot import fields_bytes
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import (
    JSON_TYPE,
    NO_STORE,
    Parameters,
    encode,
    json_answer,
    token_of,
)
from mdserver.server.http.outcomes import ANSWER_TIMEOUT_S, NO_ANSWER, outcome_of


async def consume(request: Request, exchange: Exchange) -> Answer | PartedAnswer:
    """Answer with the snapshot, the newest messages, or the messages after a position."""
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
    """Answer with messages. A long answer is encoded part by part, as the client takes it."""
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
    """Yield the JSON of an answer in parts of about `ANSWER_PART_BYTES`."""
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
    """Return the HTTP status and the reason for an event that is no answer, or for None."""
    if isinstance(event, Status):
        return outcome_of(event.status)[1], event.reason or ""
    if isinstance(event, Error):
        return 400, event.reason
    return 503, NO_ANSWER


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
    """Return a short answer: the messages, or none of them with the reason."""
    said: dict[str, Any] = {"subject": subject, "messages": messages}
    return json_answer({**said, "reason": reason} if reason else said, status)


def _message(delivery: Delivery) -> dict[str, Any]:
    """Return a message as a JSON object; content that is not text is in base64."""
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
