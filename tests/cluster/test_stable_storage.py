"""What a member may say only once its vote record, and its log, are on the disk."""

from mdserver.cluster.messages import Ack, AckItem, HandOver, Persist, SendPeer
from mdserver.cluster.outgoing import Outgoing
from mdserver.cluster.settings import ClusterSettings
from mdserver.cluster.stable_storage import StableStorage
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.cluster.wal import WalBuffer, WalCommitted
from tests.cluster.test_outgoing import ME, ONE, TWO, outgoing


def storage(*, acks_wait: bool = False) -> tuple[StableStorage, Outgoing, WalBuffer]:
    wal = WalBuffer(enabled=acks_wait, acks_wait=acks_wait)
    out = outgoing(wal)
    settings = ClusterSettings(ME, (ME, ONE, TWO))
    record = VoteRecord(ME, "test", 3, True, [Vote()])
    return StableStorage(record, settings, out, wal, start=1), out, wal


def sent(out: Outgoing) -> list[object]:
    """What was sent since the last time."""
    out.flush()
    found = [one.message for one in out.out if isinstance(one, SendPeer)]
    out.out.clear()
    return found


def test_nothing_leaves_before_the_newest_vote_record_is_on_the_disk() -> None:
    stable, out, _ = storage()
    stable.send_stored(ONE, HandOver([0]))
    assert sent(out) == [HandOver([0])], "nothing is to be stored"
    stable.store()
    stable.send_stored(ONE, HandOver([1]))
    stable.store()
    stable.ack(TWO, AckItem(0, 5, 1), changed=False)
    assert [type(one) for one in out.out] == [Persist, Persist]
    assert sent(out) == []
    stable.stored(1)
    assert sent(out) == [HandOver([1])]
    assert not stable.on_disk
    stable.stored(2)
    assert sent(out) == [Ack(3, [AckItem(0, 5, 1)])]
    assert stable.on_disk


def test_acks_wait_for_the_log_if_they_are_to() -> None:
    stable, out, wal = storage(acks_wait=True)
    wal.entries.append(WalCommitted(0, 1))
    stable.ack(ONE, AckItem(0, 5, 1), changed=False)
    assert sent(out) == []
    stable.wal_synced(1)
    assert sent(out) == [Ack(3, [AckItem(0, 5, 1)])]


def test_what_is_withdrawn_is_never_said() -> None:
    stable, out, _ = storage()
    stable.store()
    stable.send_stored(ONE, HandOver([1]))
    stable.withdraw()
    stable.stored(1)
    assert sent(out) == []


def test_an_incarnation_that_is_news_is_stored() -> None:
    stable, out, _ = storage()
    assert stable.note({ONE: 4, ME: 9})
    assert stable.votes.known == {ONE: 4}, "of itself it knows better"
    assert not stable.note({ONE: 3})
    assert [type(one) for one in out.out] == [Persist]
