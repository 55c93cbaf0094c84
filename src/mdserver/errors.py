"""The errors that cross a boundary of a layer.

As in h11: a `LocalProtocolError` is our bug or the caller's, a `RemoteProtocolError` the other
side's. They are translated once, at the receive boundary of a session or a peer link.
"""

from typing import Any, TypeVar, overload

from mdserver.limits import CLOSE_PROTOCOL_ERROR

E = TypeVar("E", bound=BaseException)


class MdserverError(Exception):
    """Base of every error that mdserver raises on purpose."""


class LocalProtocolError(MdserverError):
    """This side used a state machine in a way that its transition table does not allow."""


class RemoteProtocolError(MdserverError):
    """The other side broke the protocol.

    `code` is the WebSocket close code (docs/protocol.md, "Closing") and `reason` one English
    sentence that says what was wrong and what would be right; both go to the other side.
    """

    def __init__(self, reason: str, code: int = CLOSE_PROTOCOL_ERROR) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class InvalidSubjectError(MdserverError, ValueError):
    """A subject or a pattern breaks the rules; the message says which rule, and where."""


class StartError(MdserverError):
    """A server cannot start as it is configured; the message is one line that says why."""


class ConfigError(MdserverError):
    """The configuration cannot be used; the message is one line with file and line number."""


@overload
def leaves(error: BaseExceptionGroup[E]) -> list[E]: ...
@overload
def leaves(error: BaseException) -> list[BaseException]: ...
def leaves(error: BaseException) -> list[Any]:
    """Return the errors inside of exception groups, however deep, in order; else the error alone.

    A nursery wraps even a single error of a task in a group, and nurseries nest.
    """
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]
