"""What a connection says until it is a subscriber, as generators without a socket.

A generator yields bytes to send and is resumed with the bytes that were received; it ends when its
part is done. So one loop can open very many connections at once.
"""

from collections.abc import Callable, Generator, Sequence

from attrs import frozen

from mdserver.bench import wire
from mdserver.bench.adapters.adapter import AdapterCodec
from mdserver.bench.processes import BenchError
from mdserver.bench.verify import ReceivedStream, Verifier
from mdserver.codec.encoding import ClientCodec
from mdserver.core.commands import Connect, Ping, WireCommand
from mdserver.core.events import Connected, Error, Pong, Status, StatusName

Talk = Generator[bytes, bytes, None]
Opening = Callable[[ReceivedStream, Verifier], Talk]

_MASK = b"mask"
_REFUSED = (StatusName.SUBSCRIBE_DENY, StatusName.CONNECT_DENY)


def sent(codec: ClientCodec, commands: Sequence[WireCommand], join: bool = True) -> bytes:
    """Return commands on the wire: in one WebSocket message or, without `join`, one each.

    Other servers get one each in any case: some of them take no more.
    """
    if isinstance(codec, AdapterCodec):
        return codec.wire(commands)
    opcode = wire.OPCODE_TEXT if codec.text else wire.OPCODE_BINARY
    frames = [codec.command(command) for command in commands]
    payloads = [codec.join(frames)] if join else frames
    return b"".join([wire.masked(payload, opcode, _MASK) for payload in payloads])


@frozen
class WebSocketOpening:
    """The upgrade, these commands, and a ping whose answer says that they were carried out."""

    upgrade: wire.Upgrade
    commands: Sequence[WireCommand] = ()

    def __call__(self, stream: ReceivedStream, verifier: Verifier) -> Talk:
        """Open one connection; raise BenchError if the server refuses anything."""
        received = yield self.upgrade.request
        while (rest := self.upgrade.rest(received)) is None:
            received += yield b""
        verifier.received(stream, rest)
        yield from pinged(stream, verifier, self.commands)


@frozen
class AdapterOpening:
    """How a client of another server opens: it may have to be greeted before it is told more."""

    upgrade: wire.Upgrade
    connect: Connect
    commands: Sequence[WireCommand] = ()

    def __call__(self, stream: ReceivedStream, verifier: Verifier) -> Talk:
        """Open one connection; raise BenchError if the server refuses anything."""
        codec = stream.codec
        assert isinstance(codec, AdapterCodec)
        received = yield self.upgrade.request
        while (rest := self.upgrade.rest(received)) is None:
            received += yield b""
        verifier.received(stream, rest)
        if codec.greets:
            yield from _greeted(stream, verifier, codec.wire([self.connect]))
            yield from pinged(stream, verifier, self.commands)
        else:
            yield from pinged(stream, verifier, [self.connect, *self.commands])


def _greeted(stream: ReceivedStream, verifier: Verifier, to_send: bytes) -> Talk:
    """Send the first message, until its answer."""
    while not stream.connected:
        verifier.received(stream, (yield to_send))
        to_send = b""
        answered(stream)


def plain(stream: ReceivedStream, verifier: Verifier) -> Talk:  # noqa: ARG001 - an Opening
    """Say nothing: a subscriber of the floor is every client that has connected."""
    yield from ()


def pinged(
    stream: ReceivedStream, verifier: Verifier, commands: Sequence[WireCommand] = ()
) -> Talk:
    """Send commands and a ping, until its answer: what was under way has then arrived.

    Raises BenchError if the server refuses a command.
    """
    to_send = sent(stream.codec, [*commands, Ping()])
    while not answered(stream):
        verifier.received(stream, (yield to_send))
        to_send = b""


def answered(stream: ReceivedStream) -> bool:
    """Take what is there beside messages; return whether the answer to a ping is among it."""
    events, stream.others = stream.others, []
    for event in events:
        if isinstance(event, Error):
            raise BenchError(f"the server answered {event.code}: {event.reason}")
        if isinstance(event, Status) and event.status in _REFUSED:
            raise BenchError(f"the server answered {event.status.value}: {event.reason}")
        if isinstance(event, Connected):
            stream.connected = event
        if isinstance(event, Pong):
            return True
    return False
