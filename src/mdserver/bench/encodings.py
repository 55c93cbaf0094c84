"""The encodings and adapters that can be measured, by their names on the command line."""

from collections.abc import Callable

from attrs import frozen

from mdserver.bench import wire
from mdserver.bench.adapters.centrifugo import Centrifugo
from mdserver.bench.adapters.mqtt import Mqtt
from mdserver.bench.adapters.nats import Nats
from mdserver.bench.adapters.socketio import SocketIo
from mdserver.bench.adapters.websocket import PlainWebSocket
from mdserver.codec.binary_form import BINARY, BinaryClient
from mdserver.codec.encoding import ClientCodec, ServerCodec
from mdserver.codec.json_form import JSON, JsonClient
from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.limits import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON


@frozen
class Encoding:
    """Both sides of an encoding, and the subprotocol and path that ask for it.

    The server's side is None for that of another server (`adapters`), which is only spoken to.
    """

    name: str
    subprotocol: str
    client: Callable[[], ClientCodec]
    server: ServerCodec | None = None
    path: str = "/ws"

    def message(self, subject: str, seq: int, content: str) -> bytes:
        """Return the WebSocket message with which a server delivers this message.

        Message 1 is preceded by the subject's alias, as the first message to each subscriber is.
        """
        assert self.server is not None, "the floor speaks as mdserver does"
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

ADAPTERS = {
    "centrifugo": Encoding("centrifugo", "", Centrifugo, path="/connection/websocket"),
    "mqtt": Encoding("mqtt", "mqtt", Mqtt, path="/mqtt"),
    "nats": Encoding("nats", "", Nats, path="/"),
    "socketio": Encoding("socketio", "", SocketIo, path="/socket.io/?EIO=4&transport=websocket"),
    "websocket": Encoding("websocket", "", PlainWebSocket, path="/"),
}
