"""What a member may say only once its vote record, and its log, are on the disk."""

from mdserver.cluster.messages import Ack, AckItem, HandOver, Persist, SendPeer
from mdserver.cluster.outgoing import Outgoing
from mdserver.cluster.settings import ClusterSettings
from mdserver.cluster.stable_storage import StableStorage
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.cluster.wal import NOTE_COMMITTED_EVERY, WalBuffer, WalCommitted
from tests.cluster.test_outgoing import ME, ONE, TWO, outgoing


def storage(*, acks_wait: bool = False) -> tuple[StableStorage, Outgoing, WalBuffer]:
    wal = WalBuffer(enabled=acks_wait, acks_wait=acks_wait)
    record = VoteRecord(ME, "test", 3, True, [Vote()])
    out = outgoing(wal, record)
    settings = ClusterSettings(ME, (ME, ONE, TWO))
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
    assert not stable.note({ONE: 4}), "the second time it is none"
    assert [type(one) for one in out.out] == [Persist]


def test_the_first_ack_of_an_epoch_waits_for_the_vote_that_it_implies() -> None:
    stable, out, _ = storage()
    stable.ack(ONE, AckItem(0, 5, 1), changed=True)
    assert [type(one) for one in out.out] == [Persist]
    assert sent(out) == []
    stable.stored(1)
    assert sent(out) == [Ack(3, [AckItem(0, 5, 1)])]


def test_an_ack_that_waits_for_both_writes_leaves_with_the_later_one() -> None:
    stable, out, wal = storage(acks_wait=True)
    wal.entries.append(WalCommitted(0, 1))
    stable.ack(ONE, AckItem(0, 5, 1), changed=True)
    stable.stored(1)
    assert sent(out) == []
    stable.wal_synced(1)
    assert sent(out) == [Ack(3, [AckItem(0, 5, 1)])]


def test_an_ack_of_an_earlier_incarnation_stays_one() -> None:
    stable, out, _ = storage()
    stable.ack(ONE, AckItem(0, 5, 1), changed=True)
    stable.votes.incarnation = 9
    stable.ack(TWO, AckItem(0, 6, 1), changed=False)
    stable.stored(1)
    assert sent(out) == [Ack(3, [AckItem(0, 5, 1)]), Ack(9, [AckItem(0, 6, 1)])]


def test_with_a_newer_incarnation_the_number_of_the_earlier_start_goes() -> None:
    stable, _, _ = storage()
    stable.votes.starts = {ONE: 77, TWO: 78}
    stable.note({ONE: 4})
    assert stable.votes.starts == {TWO: 78}


def test_a_seed_says_that_others_know_it_once_its_record_says_so_on_the_disk() -> None:
    stable, _, _ = storage()
    stable.votes.admitted = False
    stable.store()
    stable.stored(1)
    assert not stable.hello().admitted
    stable.votes.admitted = True
    stable.store()
    assert not stable.hello().admitted
    stable.stored(2)
    assert stable.hello().admitted


def test_a_commit_is_noted_once() -> None:
    """A note that came again behind a log that was replaced would say more than that log has."""
    wal = WalBuffer(enabled=True, acks_wait=True)
    wal.committed(1, 3)
    wal.note_committed(NOTE_COMMITTED_EVERY)
    assert wal.write().entries == [WalCommitted(1, 3)]
    wal.committed(2, 5)
    wal.note_committed(2 * NOTE_COMMITTED_EVERY)
    assert wal.write().entries == [WalCommitted(2, 5)]
