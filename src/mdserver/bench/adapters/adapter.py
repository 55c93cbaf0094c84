"""What the adapters share: commands out, events in, answers to the server's own pings."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from mdserver.bench import wire
from mdserver.core.commands import Connect, Ping, Publish, Subscribe, WireCommand
from mdserver.core.events import Connected, MessageEvent, Pong, WireEvent

MASK = b"mask"
CONNECTED = Connected("", "", 0, "", 1, 0, 0)
PONG = Pong(msgspec.Raw(b""))


class AdapterCodec(ABC):
    """A client of another server, with the state of one connection.

    It knows four commands: connect, subscribe, publish and ping. `answers` are messages that the
    server wants at once, for example to its pings. `rest` is the beginning of something that the
    next WebSocket message completes.
    """

    text = True
    greets = True
    """Whether the server has to answer `Connect` before it takes anything else."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.rest = b""

    @abstractmethod
    def connect(self, token: str | None) -> bytes:
        """Return the first message of a connection."""

    @abstractmethod
    def subscribe(self, subject: str) -> bytes:
        """Return the message that subscribes to a subject."""

    @abstractmethod
    def publish(self, subject: str, content: str) -> bytes:
        """Return the message that publishes."""

    @abstractmethod
    def ping(self) -> bytes:
        """Return the message whose answer says that everything before it was carried out."""

    @abstractmethod
    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode one WebSocket message. Raises RemoteProtocolError if it is not understood."""

    def command(self, command: WireCommand) -> bytes:
        """Encode one command."""
        if isinstance(command, Publish):
            return self.publish(command.subject, command.content or "")
        if isinstance(command, Subscribe):
            (subject,) = command.subjects
            return self.subscribe(subject)
        if isinstance(command, Connect):
            return self.connect(command.token)
        assert isinstance(command, Ping), f"no adapter knows {command}"
        return self.ping()

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Put several commands into one WebSocket message."""
        return b"".join(frames)

    def wire(self, commands: Sequence[WireCommand]) -> bytes:
        """Return commands on the wire, a WebSocket message each."""
        return b"".join([self.masked(self.command(each)) for each in commands])

    def masked(self, payload: bytes) -> bytes:
        """Return one WebSocket message."""
        return wire.masked(payload, wire.OPCODE_TEXT if self.text else wire.OPCODE_BINARY, MASK)

    def taken_answers(self) -> list[bytes]:
        """Return the answers that wait, as frames, and forget them."""
        answers, self.answers = [self.masked(each) for each in self.answers], []
        return answers
