"""A run of `ship`, and what is in the place that it sends to."""

from pathlib import Path

from mdserver.pipeline.common import shipped
from mdserver.pipeline.common.object_store import ObjectStore, RemoteStore
from mdserver.pipeline.ship.destination import SharedPlace, Shipped
from mdserver.pipeline.ship.job import run_ship


def ship(journal: Path, store: ObjectStore) -> list[Shipped]:
    told: list[Shipped] = []
    run_ship(journal, SharedPlace(store), told.append, once=True)
    return told


def lines_of(store: ObjectStore, stream: str = "messages") -> list[bytes]:
    """The lines in a place, those of each journal in their order."""
    found = []
    for each in shipped.found(store):
        if each.stream == stream:
            for name in sorted(store.sizes(each.folder)):
                found += store.content(f"{each.folder}/{name}").splitlines()
    return found


def delete(store: ObjectStore, name: str) -> None:
    """Delete an object, as a rule of the bucket does."""
    if isinstance(store, RemoteStore):
        store._store.delete(name)
    else:
        (Path(store.uri) / name).unlink()
