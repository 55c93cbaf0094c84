"""What the Python client raises; all are `MdserverError`."""

from collections.abc import Sequence

import trio

from mdserver.client.core.values import PublishResult
from mdserver.errors import MdserverError


class ClientError(MdserverError):
    """Base of the client's errors."""


class ArgumentError(ClientError, ValueError):
    """An argument cannot be right; the message says what would be."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument is of a type that cannot be right."""


class NotOpenError(ClientError, RuntimeError):
    """The client is not entered, or left already, so that what was called could never work."""


class ConnectError(ClientError):
    """No server was reached at all in the time that the first connection may take."""


class ClientTimeoutError(ClientError, trio.TooSlowError):
    """What was waited for did not come in time. A publication may still be taken."""


class PublishError(ClientError):
    """A publication was refused or failed; `result` says how, and whether it is certain."""

    def __init__(self, result: PublishResult) -> None:
        super().__init__(f"{result.status.value}: {result.reason}")
        self.result = result


class SubscribeError(ClientError):
    """The server refused these subjects; the other subjects of the subscription go on."""

    def __init__(self, subjects: Sequence[str], reason: str) -> None:
        super().__init__(f"{', '.join(subjects)}: {reason}")
        self.subjects = subjects
        self.reason = reason


class StoppedError(ClientError):
    """The server does not want this client back unchanged; `code` is its close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} (close code {code})")
        self.code = code
        self.reason = reason


class TransportError(ClientError):
    """A transport could not be opened, or ended; `code` as in docs/protocol.md, "Closing"."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} (close code {code})")
        self.code = code
        self.reason = reason
