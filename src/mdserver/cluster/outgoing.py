"""The outputs of a step, with one message for each kind and receiver.

A step may touch many groups: a read of one link brings entries of twenty of them, the failure of a
member has a hundred elected anew. If each group sent its own message, the cost of a cluster would
grow with the number of groups, not with what there is to say. So a step only notes what it has to
say about a group (an *item*), and `flush` puts all items of one kind for one receiver into one
message. etcd's raft does the same with its `Ready`: nothing leaves while the state machine runs.

Some of it a member says to itself: as a contact to the coordinator beside it, as a candidate to its
own seed. These messages do not leave the process. They wait in `local`, and the same handlers take
them within the same step, so that a group whose coordinator is here needs no code of its own, and
a single server is a cluster of one.

The order within a flush is fixed, and it matters to the receiver. What goes to the write-ahead log
stands before the acks of the same step: an ack that has to wait for the disk then names a write
that the driver was already given. Entries go before the commit that covers them, since a link
delivers in order. What this member's clients publish to groups that it coordinates itself
(`forwards_here`) is numbered before anything is flushed, so its entries leave with the step that
brought it.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.guards import Guard, Refusals
from mdserver.cluster.messages import (
    Accept,
    AcceptItem,
    Ack,
    AckItem,
    AnyPeerMessage,
    Commit,
    CommitItem,
    Forward,
    ForwardItem,
    ForwardReply,
    ForwardReplyItem,
    SendPeer,
)
from mdserver.core.outputs import Log, Output

if TYPE_CHECKING:
    from mdserver.cluster.pending import PendingPublications
    from mdserver.cluster.votes import VoteRecord
    from mdserver.cluster.wal import WalBuffer


class Outgoing:
    """The outputs of the step under way, and the items that are still to become messages.

    `now` is the time of the step (ns), `out` are its outputs for the driver. `linked` are the
    members that have a link to this one, `workers` its own worker processes. `local` are messages
    of this member to itself, and `forwards_here` what its clients publish to groups that it
    coordinates itself. `collected`: there are items that `flush` has to send. `refusals` counts
    what was refused instead.
    """

    __slots__ = (
        "_accepts",
        "_acks",
        "_answers",
        "_commits",
        "_fed",
        "_forwards",
        "_pending",
        "_votes",
        "_wal",
        "collected",
        "forwards_here",
        "linked",
        "local",
        "me",
        "now",
        "out",
        "refusals",
        "workers",
    )

    def __init__(
        self, me: str, votes: "VoteRecord", pending: "PendingPublications", wal: "WalBuffer"
    ) -> None:
        self.me = me
        self.now = 0
        self.out: list[Output] = []
        self.linked: tuple[str, ...] = ()
        self.workers: tuple[str, ...] = ()
        self.local: deque[AnyPeerMessage] = deque()
        self.forwards_here: deque[ForwardItem] = deque()
        self.collected = False
        self._votes = votes
        self._pending = pending
        self._wal = wal
        self._accepts: list[AcceptItem] = []
        self._commits: list[CommitItem] = []
        self._fed: list[AcceptItem] = []
        self._acks: dict[str, list[AckItem]] = {}
        self._forwards: dict[str, list[ForwardItem]] = {}
        self._answers: dict[str, list[ForwardReplyItem]] = {}
        self.refusals = Refusals()

    def refuse(self, guard: Guard) -> None:
        """Count a refusal by a guard of the protocol."""
        self.refusals.note(guard)

    def send(self, peers: Sequence[str], message: AnyPeerMessage) -> None:
        """Send a message in this step; one to this member itself is handled later in the step."""
        if self.me in peers:
            self.local.append(message)
            if len(peers) == 1:
                return
            peers = [peer for peer in peers if peer != self.me]
        if peers:
            self.out.append(SendPeer(tuple(peers), message))

    # Items, which `flush` puts into messages

    def accept(self, item: AcceptItem) -> None:
        """Replicate new entries of a group to all members."""
        if self.linked:
            self._accepts.append(item)
            self.collected = True

    def commit(self, item: CommitItem) -> None:
        """Tell all members that entries of a group are committed."""
        if self.linked:
            self._commits.append(item)
            self.collected = True

    def feed(self, item: AcceptItem) -> None:
        """Give all workers entries of a group that are committed."""
        if self.workers:
            self._fed.append(item)
            self.collected = True

    def ack(self, coordinator: str, item: AckItem) -> None:
        """Ack a coordinator's log as this incarnation; what that waits for is on the disk."""
        self._acks.setdefault(coordinator, []).append(item)
        self.collected = True

    def forward(self, coordinator: str, item: ForwardItem) -> None:
        """Hand publications to a coordinator on another member."""
        self._forwards.setdefault(coordinator, []).append(item)
        self.collected = True

    def answer(self, contact: str, item: ForwardReplyItem) -> None:
        """Answer a contact, named by its contact name (`contact_name`)."""
        self._answers.setdefault(contact.partition("#")[0], []).append(item)
        self.collected = True

    def flush(self) -> None:
        """Put the items into messages. Those to this member are in `local` then."""
        self.collected = False
        if self._forwards:
            for coordinator, forwards in self._forwards.items():
                self.send((coordinator,), Forward(self._pending.contact, forwards))
            self._forwards.clear()
        if self._wal.entries:
            self.out.append(self._wal.write())
        if self._accepts:
            self.send(self.linked, Accept(self._accepts))
            self._accepts = []
        if self._acks:
            for coordinator, acks in self._acks.items():
                self.send((coordinator,), Ack(self._votes.incarnation, acks))
            self._acks.clear()
        if self._commits:
            self.send(self.linked, Commit(self._commits))
            self._commits = []
        if self._fed:
            self.send(self.workers, Accept(self._fed))
            self._fed = []
        if self._answers:
            for member, answers in self._answers.items():
                self.send((member,), ForwardReply(answers))
            self._answers.clear()

    def log(self, name: str, **values: str | int | bool | None) -> None:
        """Write an event to the server log."""
        self.out.append(Log("cluster", name, dict(values)))
