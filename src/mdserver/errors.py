"""The errors that cross the boundary of a layer.

As in h11, a `LocalProtocolError` is a bug of mdserver or of its caller, and a `RemoteProtocolError`
a fault of the other side. The latter is translated once, at the receive boundary of a session or a
peer link, into a close code and a reason.
"""

from typing import Any, TypeVar, overload

from mdserver.limits import CLOSE_PROTOCOL_ERROR

E = TypeVar("E", bound=BaseException)


class MdserverError(Exception):
    """Base of every error that mdserver raises deliberately; its message is for people."""


class LocalProtocolError(MdserverError):
    """This side used a state machine in a way that its transition table does not allow."""


class RemoteProtocolError(MdserverError):
    """The other side broke the protocol.

    `code` is the WebSocket close code (docs/protocol.md, "Closing"), `reason` one English sentence
    that says what was wrong and what would be right. Both are sent to the other side.
    """

    def __init__(self, reason: str, code: int = CLOSE_PROTOCOL_ERROR) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class InvalidSubjectError(MdserverError, ValueError):
    """A subject or pattern breaks the rules; the message names the rule and the subject."""


class StartError(MdserverError):
    """A server cannot start as it is configured; the message is one line with the reason."""


class ConfigError(MdserverError):
    """The configuration cannot be used; the message has a line with the place for each mistake."""


@overload
def leaves(error: BaseExceptionGroup[E]) -> list[E]: ...
@overload
def leaves(error: BaseException) -> list[BaseException]: ...
def leaves(error: BaseException) -> list[Any]:
    """Return the errors inside exception groups, at any depth, in order; a plain error alone.

    A nursery wraps even the single error of a task in a group, and nurseries nest.
    """
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]
