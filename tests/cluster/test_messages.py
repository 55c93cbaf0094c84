"""The numbers of the messages on the wire, and how logs are divided among them."""

from typing import get_args

from mdserver.cluster.messages import AnyPeerMessage, PromiseItem, portions
from mdserver.core.message import Entry, Publication
from mdserver.limits import MB, SYNC_BYTES_PER_MESSAGE, SYNC_ITEMS_PER_MESSAGE


def promised(group: int, content: bytes = b"") -> PromiseItem:
    entries = [Entry(1, 1, Publication("/a/b", content))] if content else []
    return PromiseItem(group, 1, 1, 1, 1, "h", 0, entries, [], None)


WIRE = (
    "Hello Heartbeat PreVote PreVoteGranted Prepare Promise Nack Sync Accept Ack Commit SyncRequest"
    " Forward ForwardReply HandOver StandardBatch Readmit SetWeight Begin Claim Yield"
    " CopyRequest CopyReply ServerState TakePart SeedOrder"
)


def test_messages_keep_their_numbers_whatever_they_are_called() -> None:
    """Members of different versions know a message by its number alone."""
    numbers = {kind.__struct_config__.tag: kind.__name__ for kind in get_args(AnyPeerMessage)}
    assert numbers == dict(enumerate(WIRE.split(), 1))


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
