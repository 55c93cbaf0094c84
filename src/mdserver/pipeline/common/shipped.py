"""The names of shipped segments, and the streams that a place has.

`STREAM/IDENTIFIER/seg-NUMBER.jsonl`, below the place that `mdserver ship` was given. A stream's
identifier is random, so journals of any number of members share a place. Nothing here needs Spark.
"""

import re
from collections.abc import Iterator

from attrs import frozen

from mdserver.journal.segments import SEGMENT
from mdserver.pipeline.common.object_store import ObjectStore

STREAMS = ("messages", "receipts", "stats", "access", "publish", "cache")
"""The streams of a journal that the archive has tables for."""
IDENTIFIER = re.compile(r"[0-9a-f]{32}\Z")


@frozen
class ShippedStream:
    """A stream of one member's journal, in the place that it was sent to."""

    store: ObjectStore
    stream: str
    identifier: str

    @property
    def folder(self) -> str:
        """The folder of its segments, below the place."""
        return f"{self.stream}/{self.identifier}"

    def __str__(self) -> str:
        return f"{self.store.uri}/{self.folder}"

    def sizes(self, first: int) -> dict[int, int]:
        """Return the sizes of the segments from `first` on, by their numbers."""
        after = _file_name(first - 1) if first > 1 else ""
        found = self.store.sizes(self.folder, after)
        numbers = ((number_of(name), size) for name, size in found.items())
        return {number: size for number, size in numbers if number is not None and number >= first}

    def last(self, first: int) -> int | None:
        """Return the greatest number of a segment from `first` on, None if there is none."""
        return max(self.sizes(first), default=None)


def _file_name(number: int) -> str:
    return f"seg-{number:012d}.jsonl"


def name_of(stream: str, identifier: str, number: int) -> str:
    """Return the name of a segment."""
    return f"{stream}/{identifier}/{_file_name(number)}"


def number_of(name: str) -> int | None:
    """Return the number of a segment, by the last part of its name; None if it is none."""
    match = SEGMENT.match(name)
    return int(match[1]) if match is not None and match[2] == "jsonl" else None


def found(store: ObjectStore) -> Iterator[ShippedStream]:
    """Yield the streams that a place has, in an order that stays the same."""
    for stream in STREAMS:
        for identifier in store.folders(stream):
            if IDENTIFIER.match(identifier):
                yield ShippedStream(store, stream, identifier)
