"""How much went through the sockets of clients."""


class Traffic:
    """Bytes since the start, without TLS and what is below it; one object for a whole server."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
