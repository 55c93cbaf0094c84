"""The messages of other servers, as events."""

from mdserver.bench.verify import NUMBER_DIGITS
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType
from mdserver.errors import RemoteProtocolError

_EPOCH = 1


def delivered(subject: str, content: str) -> MessageEvent:
    """Return the event of a message, which says in its content which one it is.

    Raises RemoteProtocolError if it does not: then nothing here has published it.
    """
    digits = content[:NUMBER_DIGITS]
    if not (digits.isascii() and digits.isdigit()):
        raise RemoteProtocolError(f"a message on {subject} has no number: {content[:40]!r}")
    return MessageEvent(subject, MessageType.UPDATE, _EPOCH, int(digits), content)
