"""The values of the core keep what they are given."""

import msgspec
import pytest

from mdserver.core.message import Entry, Position, Publication


def test_an_entry_survives_messagepack() -> None:
    entry = Entry(3, 7, Publication("/a/b", b"x\xff", text=False, fields={"bid": "1"}, number=4))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=Entry) == entry


def test_positions_order_by_epoch_then_seq() -> None:
    assert Position(1, 9) < Position(2, 1) < Position(2, 2)


def test_a_publication_is_frozen() -> None:
    publication = Publication("/a/b", b"x")
    with pytest.raises(AttributeError):
        publication.number = 3  # type: ignore[misc]
