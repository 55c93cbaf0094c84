"""How the logs of many groups are divided among messages."""

from mdserver.cluster.messages import Promised, portions
from mdserver.core.message import Entry, Publication
from mdserver.limits import MB, SYNC_BYTES_PER_MESSAGE, SYNC_ITEMS_PER_MESSAGE


def promised(group: int, content: bytes = b"") -> Promised:
    entries = [Entry(1, 1, Publication("/a/b", content))] if content else []
    return Promised(group, 1, 1, 1, 1, "h", 0, entries, [], None)


def test_small_logs_travel_together() -> None:
    sizes = [len(portion) for portion in portions(promised(group) for group in range(40))]
    assert sizes == [SYNC_ITEMS_PER_MESSAGE, SYNC_ITEMS_PER_MESSAGE, 8]


def test_large_logs_travel_alone() -> None:
    large = bytes(SYNC_BYTES_PER_MESSAGE + MB)
    logs = [promised(0), promised(1, large), promised(2, large), promised(3)]
    found = [[log.group for log in portion] for portion in portions(logs)]
    assert found == [[0, 1], [2], [3]]


def test_nothing_makes_no_message() -> None:
    assert not list(portions([]))
