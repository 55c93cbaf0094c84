"""The encodings that can be measured, by their names on the command line."""

from collections.abc import Callable

from attrs import frozen

from mdserver.bench import wire
from mdserver.codec.binary_form import BINARY, BinaryClient
from mdserver.codec.encoding import ClientCodec, ServerCodec
from mdserver.codec.json_form import JSON, JsonClient
from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.limits import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON


@frozen
class Encoding:
    """Both sides of an encoding, and the subprotocol that asks for it."""

    name: str
    subprotocol: str
    client: Callable[[], ClientCodec]
    server: ServerCodec

    def message(self, subject: str, seq: int, content: str) -> bytes:
        """Return the WebSocket message with which a server delivers this message.

        Message 1 is preceded by the subject's alias, as the first message to each subscriber is.
        """
        publication = Publication(subject, content.encode())
        delivery = Delivery(Entry(1, seq, publication), MessageType.UPDATE)
        frames = [self.server.delivery(delivery)]
        if delivery.alias and seq == 1:
            frames.insert(0, BINARY.alias_frame(delivery.alias))
        opcode = wire.OPCODE_TEXT if self.server.text else wire.OPCODE_BINARY
        return wire.server_frame(self.server.join(frames), opcode)


ENCODINGS = {
    "binary": Encoding("binary", SUBPROTOCOL_BINARY, BinaryClient, BINARY),
    "json": Encoding("json", SUBPROTOCOL_JSON, JsonClient, JSON),
}
