"""The encodings that can be measured, by their names on the command line."""

from collections.abc import Callable

from attrs import frozen

from mdserver.bench import wire
from mdserver.codec.encoding import ClientCodec, ServerCodec
from mdserver.codec.json_form import JSON, JsonClient
from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.limits import SUBPROTOCOL_JSON


@frozen
class Encoding:
    """Both sides of an encoding, and the subprotocol that asks for it."""

    name: str
    subprotocol: str
    client: Callable[[], ClientCodec]
    server: ServerCodec

    def message(self, subject: str, seq: int, content: str) -> bytes:
        """The WebSocket message with which a server delivers this."""
        publication = Publication(subject, content.encode())
        frame = self.server.delivery(Delivery(Entry(1, seq, publication), MessageType.UPDATE))
        opcode = wire.OPCODE_TEXT if self.server.text else wire.OPCODE_BINARY
        return wire.server_frame(self.server.join([frame]), opcode)


ENCODINGS = {"json": Encoding("json", SUBPROTOCOL_JSON, JsonClient, JSON)}
