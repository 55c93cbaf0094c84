"""The vote record on the disk, and what a member may say only after which write.

A promise is worth nothing if a crash can make its seed forget it: a second candidate would get the
same vote, and two coordinators would number one group. The same holds for the first ack of a newer
epoch (it implies a promise of that epoch), for the incarnations below which nothing of another
seed counts any more, and for every ack if seeds ack only what is in their write-ahead log.

This module keeps two rules:

1. Code that changes the vote record calls `store`. From then on everything that depends on the
   record goes through `send_stored` or `ack`, and waits until the driver has said that the newest
   record is on the disk. (Waiting for the newest is more than needed, but simple: a record is
   written whole, so the newest one on the disk has all that went before.)
2. If acks wait for the write-ahead log too, they name the newest write of it in the same way.

What waits is sent in the order in which it was said. A message of a member to itself also waits:
the seed beside a candidate counts for nothing before its promise is on the disk. docs/cluster.md,
"Vote file". In `GroupLog.tla` a promise and its write are one action (`Promise`); `Candidates.tla`
has them apart (`Decide`, `Write`, `Answer`), and is refuted without the rule "the vote file is
written first".
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import Ack, AckItem, AnyPeerMessage, Hello, Persist

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.votes import VoteRecord
    from mdserver.cluster.wal import WalBuffer


class StableStorage:
    """The vote record of a member, and the messages that wait until it is on the disk.

    `groups` are the groups for which this member votes, if it is a seed. `start` is a random number
    of this start of the member. `record_on_disk`: the newest vote record is on the disk.
    `write_time`: how long it last took to get there (ns); elections allow candidates that much
    longer.
    """

    __slots__ = (
        "_admitting",
        "_outgoing",
        "_requested",
        "_requested_at",
        "_settings",
        "_stored",
        "_waiting",
        "_wal",
        "groups",
        "record_on_disk",
        "start",
        "votes",
        "write_time",
    )

    def __init__(
        self,
        votes: "VoteRecord",
        settings: "ClusterSettings",
        outgoing: "Outgoing",
        wal: "WalBuffer",
        start: int,
    ) -> None:
        self.votes = votes
        self.groups: Sequence[Group] = ()
        self.start = start
        self.write_time = 0
        self.record_on_disk = True
        self._settings = settings
        self._outgoing = outgoing
        self._wal = wal
        self._requested = 0
        self._requested_at = 0
        self._stored = 0
        self._admitting = 0 if votes.admitted else None
        """The first request whose record says `votes.admitted`, None if the record does not."""
        self._waiting: deque[tuple[int, int, str, AnyPeerMessage]] = deque()
        """Messages with their receiver, and the requests of record and log that they wait for."""

    def store(self) -> None:
        """Request a write of the vote record.

        A single server needs none: nobody else votes, so there is nobody to break a promise to.
        """
        if self._settings.single:
            return
        if self._stored == self._requested:
            self._requested_at = self._outgoing.now
        self._requested += 1
        self.record_on_disk = False
        if not self.votes.admitted:
            self._admitting = None
        elif self._admitting is None:
            self._admitting = self._requested
        self._outgoing.out.append(Persist(self._requested, self.votes.encode()))

    def send_stored(self, peer: str, message: AnyPeerMessage) -> None:
        """Send a message once the record, and the log if acks wait for it, are on the disk."""
        if self.on_disk:
            self._outgoing.send((peer,), message)
        else:
            unstored = self._requested != self._stored
            self._outgoing.refuse(Guard.ANSWER_UNSTORED if unstored else Guard.ACK_UNSYNCED)
            self._waiting.append((self._requested, self._wal_needed, peer, message))

    def ack(self, coordinator: str, item: AckItem, changed: bool) -> None:
        """Ack a coordinator's log.

        `changed`: the vote record changed by what is acked, and has to be on the disk before. That
        is so for the first ack of an epoch, which implies a promise of it.
        """
        if changed:
            self.store()
        if self.on_disk:
            self._outgoing.ack(coordinator, item)
        else:
            self.send_stored(coordinator, Ack(self.votes.incarnation, [item]))

    @property
    def on_disk(self) -> bool:
        """Return whether all is on the disk that has to be there before this member says more."""
        if not self.record_on_disk:
            return False
        return not self._wal.acks_wait or self._wal.needed <= self._wal.synced

    @property
    def _wal_needed(self) -> int:
        """Return the write of the log that an ack has to wait for; 0 if acks wait for none."""
        return self._wal.needed if self._wal.acks_wait else 0

    @property
    def admitted(self) -> bool:
        """Return whether the record on the disk says that others know this seed.

        What the record in memory says does not count: after a crash the seed would deny it, and
        could pass for a new one although others rely on its promises.
        """
        return self._admitting is not None and self._admitting <= self._stored

    def admit(self) -> bool:
        """Mark the vote record as one that others rely on, once this seed votes in every group.

        Return whether it changed; the caller stores the record.
        """
        if self.votes.admitted or not all(group.votes_here for group in self.groups):
            return False
        self.votes.admitted = True
        return True

    def stored(self, request: int) -> None:
        """Send what waited for the vote record of a request, which is on the disk now."""
        self._stored = max(self._stored, request)
        if self._stored == self._requested:
            self.record_on_disk = True
            self.write_time = self._outgoing.now - self._requested_at
        self._send_waiting()

    def wal_synced(self, request: int) -> None:
        """Send what waited for a write of the log, which is on the disk now."""
        self._wal.on_synced(request)
        self._send_waiting()

    def withdraw(self) -> None:
        """Drop the messages that wait for the disk: the entries that they ack are taken back."""
        self._waiting.clear()

    def _send_waiting(self) -> None:
        """Send the messages whose writes are on the disk, in the order in which they came."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._stored and waiting[0][1] <= self._wal.synced:
            _, _, peer, message = waiting.popleft()
            if type(message) is Ack and message.incarnation == self.votes.incarnation:
                for item in message.items:  # together with the other acks of this step
                    self._outgoing.ack(peer, item)
            else:
                # An ack of an earlier incarnation stays one: its receiver has to be able to tell.
                self._outgoing.send((peer,), message)

    def note(self, incarnations: dict[str, int]) -> bool:
        """Note below which incarnations nothing of a seed counts any more; return if it is news.

        The vote record is stored with it: what is acked after this waits for that.
        """
        known, starts = self.votes.known, self.votes.starts
        news = {
            seed: incarnation
            for seed, incarnation in incarnations.items()
            if seed != self._settings.me and incarnation > known.get(seed, 0)
        }
        known.update(news)
        for seed in news:
            starts.pop(seed, None)  # it is the number of an earlier start
        if news:
            self.store()
        return bool(news)

    def hello(self) -> Hello:
        """Return what this member says first on a link: who it is, and what it has on its disk."""
        votes = self.votes
        return Hello(
            votes.incarnation,
            self.admitted,
            self._settings.client,
            dict(votes.known),
            self._outgoing.linked,
            self.start,
            self._settings.name,
            forgets=True,
            relists=True,
        )
