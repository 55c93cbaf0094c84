"""Counts the bytes that go through the sockets of clients."""


class Traffic:
    """Bytes since the start, without the overhead of TLS and below; one object for a server."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
