"""Segments in an object store, whose lists may lack what is added meanwhile."""

from typing import ClassVar

from mdserver.pipeline.common.numbered import Missing
from mdserver.pipeline.common.object_store import ObjectStore
from mdserver.pipeline.common.shipped import ShippedStream
from mdserver.pipeline.common.stream_segments import Listed, StoredSegments


def test_a_list_that_lacks_a_segment_is_no_hole() -> None:
    """A store makes its list while the next segments are added."""

    class Listing:
        uri = "s3://b"
        lists: ClassVar = [["1", "3"], ["1", "2", "3", "4"]]

        def sizes(self, folder: str, after: str = "") -> dict[str, int]:
            assert folder == f"messages/{'0' * 32}"
            return {f"seg-00000000000{number}.jsonl": 5 for number in self.lists.pop(0)}

    store: ObjectStore = Listing()  # type: ignore[assignment]
    found = StoredSegments(ShippedStream(store, "messages", "0" * 32)).walk(1)
    assert list(found) == [Listed(1, 5), Listed(2, 5), Listed(3, 5)]


def test_a_segment_that_no_list_has_is_a_hole() -> None:
    class Listing:
        uri = "s3://b"

        def sizes(self, folder: str, after: str = "") -> dict[str, int]:
            return {"seg-000000000002.jsonl": 5, "seg-000000000004.jsonl": 6, "other": 7}

    store: ObjectStore = Listing()  # type: ignore[assignment]
    segments = StoredSegments(ShippedStream(store, "messages", "0" * 32))
    assert list(segments.walk(1)) == [Missing(1, 1), Listed(2, 5), Missing(3, 3), Listed(4, 6)]
    assert list(segments.walk(4)) == [Listed(4, 6)]
    assert list(segments.walk(5)) == []
