"""What a step says: one message a kind and receiver, in an order on which receivers rely."""

from mdserver.cluster.messages import (
    Accept,
    AcceptItem,
    Ack,
    AckItem,
    Commit,
    CommitItem,
    Forward,
    ForwardItem,
    ForwardReply,
    ForwardReplyItem,
    HandOver,
    SendPeer,
)
from mdserver.cluster.outgoing import Outgoing
from mdserver.cluster.pending import PendingPublications
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.cluster.wal import WalBuffer, WalCommitted, WriteWal

ME, ONE, TWO = "m1:1", "m2:1", "m3:1"


def outgoing(wal: WalBuffer | None = None, record: VoteRecord | None = None) -> Outgoing:
    record = record or VoteRecord(ME, "test", 3, True, [Vote()])
    wal = wal or WalBuffer(enabled=False, acks_wait=False)
    made = Outgoing(ME, record, PendingPublications(f"{ME}#3"), wal)
    made.linked = (ONE, TWO)
    return made


def test_items_of_one_kind_go_together_and_kinds_in_their_order() -> None:
    wal = WalBuffer(enabled=True, acks_wait=True)
    out = outgoing(wal)
    for group in range(2):
        out.answer(f"{ONE}#9", ForwardReplyItem(group, 1, 0, 0, False, "no", None))
        out.commit(CommitItem(group, 1, 1))
        out.ack(ONE, AckItem(group, 1, 1))
        out.accept(AcceptItem(group, 1, 0, 0, [], []))
        out.forward(ONE, ForwardItem(group, 1, 1, []))
        wal.entries.append(WalCommitted(group, 1))
    assert out.collected
    out.flush()
    kinds = [type(one.message) if isinstance(one, SendPeer) else type(one) for one in out.out]
    assert kinds == [Forward, WriteWal, Accept, Ack, Commit, ForwardReply]
    assert all(len(one.message.items) == 2 for one in out.out if isinstance(one, SendPeer))  # type: ignore[union-attr]
    assert not out.collected, "all was said"
    out.flush()
    assert len(out.out) == len(kinds)


def test_what_it_says_to_itself_stays_within_the_step() -> None:
    out = outgoing()
    out.send((ME,), HandOver([1]))
    out.send((ONE, ME, TWO), HandOver([2]))
    out.ack(ME, AckItem(0, 1, 1))
    out.flush()
    assert out.out == [SendPeer((ONE, TWO), HandOver([2]))]
    assert list(out.local)[:2] == [HandOver([1]), HandOver([2])]
    assert out.local[2] == Ack(3, [AckItem(0, 1, 1)])
