"""The word and the HTTP status for each answer of the node to an HTTP request."""

from mdserver.core.events import StatusName

ANSWER_TIMEOUT_S = 15.0
NO_ANSWER = "The server has no answer in time; nobody knows what became of it."
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


def outcome_of(status: StatusName) -> tuple[str, int]:
    """Return the word and the HTTP status for a status of the protocol."""
    return _OUTCOMES.get(status, ("FAILED", 503))
