"""The names of shipped segments."""

from pathlib import Path

from mdserver.pipeline.common import rows, shipped
from mdserver.pipeline.common.object_store import FolderStore
from mdserver.pipeline.common.shipped import ShippedStream

IDENTIFIER = "0123456789abcdef" * 2


def test_the_archive_knows_the_same_streams() -> None:
    assert set(shipped.STREAMS) == set(rows.STREAMS)


def test_a_place_has_the_streams_whose_names_are_whole(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.create(shipped.name_of("stats", IDENTIFIER, 7), b"x")
    store.create(f"messages/{IDENTIFIER[1:]}/seg-000000000001.jsonl", b"x")
    store.create(f"others/{IDENTIFIER}/seg-000000000001.jsonl", b"x")
    (found,) = shipped.found(store)
    assert found == ShippedStream(store, "stats", IDENTIFIER)
    assert [shipped.number_of(name) for name in store.sizes(found.folder)] == [7]
    assert shipped.number_of("seg-000000000001.open") is None
