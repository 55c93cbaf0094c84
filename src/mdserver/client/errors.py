"""What the Python client raises; all are `MdserverError`."""

from collections.abc import Sequence

from mdserver.client.core.values import PublishResult
from mdserver.errors import MdserverError


class ClientError(MdserverError):
    """Base of the client's errors."""


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
