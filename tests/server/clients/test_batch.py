from collections.abc import Sequence

from mdserver.codec.binary_form import BinaryClient
from mdserver.core.events import Delivery, MessageEvent
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.core.outputs import Deliver
from mdserver.limits import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from mdserver.server.clients.batch import Batch
from mdserver.server.clients.forms import WEBSOCKET_FORMS
from mdserver.server.clients.outbox import Outbox
from mdserver.server.clients.traffic import Traffic

BINARY = WEBSOCKET_FORMS[SUBPROTOCOL_BINARY]
JSON = WEBSOCKET_FORMS[SUBPROTOCOL_JSON]


class Nowhere:
    """A socket and a connection that are never used."""

    def send(self, data: bytes | memoryview, /) -> int:
        raise AssertionError(data)

    def fileno(self) -> int:
        raise AssertionError

    def parked(self) -> None:
        raise AssertionError

    def lost(self, reason: str) -> None:
        raise AssertionError(reason)

    def outbox_overflow(self) -> None:
        raise AssertionError


def outbox() -> Outbox:
    return Outbox(1, BINARY, Nowhere(), Nowhere(), 1000, Traffic())


def run(subject: str, *positions: tuple[int, int]) -> list[Deliver]:
    return [
        Deliver(
            Delivery(Entry(epoch, seq, Publication(subject, b"price")), MessageType.UPDATE), [1]
        )
        for epoch, seq in positions
    ]


def positions_read(client: BinaryClient, frames: Sequence[bytes]) -> list[tuple[int, int]]:
    events = client.events(b"".join(frames))
    return [(event.epoch, event.seq) for event in events if isinstance(event, MessageEvent)]


def test_an_alias_is_introduced_once_to_each_client() -> None:
    first, second, client = outbox(), outbox(), BinaryClient()
    batch = Batch(BINARY, run("/batch/once", (1, 1), (1, 2)))
    introduced = batch.frames_for(first)
    assert len(introduced) == 3
    assert positions_read(client, introduced) == [(1, 1), (1, 2)]
    assert len(batch.frames_for(first)) == 2
    assert batch.frames_for(second) == introduced


def test_an_alias_that_is_agreed_anew_within_a_run_is_introduced_in_its_place() -> None:
    first, client = outbox(), BinaryClient()
    earlier = Batch(BINARY, run("/batch/anew", (1, 1)))
    positions_read(client, earlier.frames_for(first))
    batch = Batch(BINARY, run("/batch/anew", (1, 2), (2, 3), (3, 4)))
    expected = [(1, 2), (2, 3), (3, 4)]
    assert positions_read(client, batch.frames_for(first)) == expected
    assert positions_read(BinaryClient(), batch.frames_for(outbox())) == expected


def test_the_size_is_that_of_the_messages() -> None:
    batch = Batch(JSON, run("/batch/size", (1, 1), (1, 2)))
    assert batch.size == sum(map(len, batch.frames_for(outbox())))
