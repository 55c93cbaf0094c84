"""The errors that the Python client raises; all are `MdserverError`."""

from collections.abc import Sequence

from mdserver.client.core.values import PublishResult
from mdserver.errors import MdserverError


class ClientError(MdserverError):
    """Base of the client's errors."""


class ArgumentError(ClientError, ValueError):
    """An argument is invalid; the message says what would be valid."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type."""


class NotOpenError(ClientError, RuntimeError):
    """The client is not entered yet, was left, or is used in another thread, loop or process."""


class ConnectError(ClientError):
    """No server was reached at all in `connect_timeout_s`; the client goes on trying."""


class ClientTimeoutError(ClientError, TimeoutError):
    """A result or reply did not come in time; a publication may still be taken."""


class PublishError(ClientError):
    """A publication was refused or failed.

    `result` is the `PublishResult`: its `status` and `reason`, and with `certain` whether the
    publication certainly left no trace.
    """

    def __init__(self, result: PublishResult) -> None:
        super().__init__(f"{result.status.value}: {result.reason}")
        self.result = result


class SubscribeError(ClientError):
    """The server refused these subjects; the other subjects of the subscription go on.

    `subjects` are the refused ones, `reason` is a sentence.
    """

    def __init__(self, subjects: Sequence[str], reason: str) -> None:
        super().__init__(f"{', '.join(subjects)}: {reason}")
        self.subjects = subjects
        self.reason = reason


class StoppedError(ClientError):
    """The client stopped reconnecting, because a server refused it or breaks the protocol.

    `code` is the close code (docs/protocol.md, "Closing"), `reason` a sentence. The client connects
    again after `connect`, or with another token.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} (close code {code})")
        self.code = code
        self.reason = reason


class TransportError(ClientError):
    """A transport could not be opened, or ended.

    `code` is the close code (docs/protocol.md, "Closing"), 1006 if there was none; `reason` is a
    sentence.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} (close code {code})")
        self.code = code
        self.reason = reason
