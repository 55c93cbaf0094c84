"""The learner: how a member takes a coordinator's log, from SYNC, ACCEPT and COMMIT messages.

Every member is a learner of every group: it takes the log and applies what is committed, in order.
On a seed the log counts besides, and is acknowledged (`mdserver.cluster.acceptor` says when).

Links are lost and epochs change, so an item that does not fit is no error of either side. There are
three cases, and one answer to each:

- *An older epoch than is known here.* A seed answers with a NACK that names the newer one, because
  the coordinator might not learn of it otherwise.
- *A gap*: a newer epoch than the log is of, or a place beyond its end. The member asks for what is
  missing (`SyncRequest`), or for a copy of what is committed if it lacks very much, and not again
  for a while.
- *A contradiction*: the coordinator's log lacks what is committed here. A majority held that, so
  some seeds came back with older copies of their disks and elected a log without it. It takes
  nothing, and says what it holds (`SyncRequest` again): the coordinator then starts a new history.

Whatever is committed here is never replaced. The uncommitted tail may be, by the log of a newer
epoch. Within one epoch nothing is ever replaced, because a coordinator only appends: so a log of
the same epoch is a prefix of the coordinator's, and its length alone says what is missing.

docs/cluster.md, "How it works"; in the specification `Sync`, `Install`, `ColdSync`, `Accept` and
`Learn`.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import define, field

from mdserver.cluster.copying import Copying, Gaps
from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import (
    Accept,
    Commit,
    Heartbeat,
    Nack,
    NackItem,
    Sync,
    SyncItem,
    SyncRequest,
    SyncRequestItem,
)
from mdserver.cluster.part import MemberPart
from mdserver.cluster.replies import Gap, Reply

if TYPE_CHECKING:
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer


@define(eq=False)
class Learner(MemberPart):
    """The receiving side of other members' coordinators, for all groups of one member."""

    _storage: "StableStorage"
    _wal: "WalBuffer"
    copying: Copying = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.copying = Copying(self.groups, self._settings, self._members, self._outgoing)

    # A coordinator's log

    def sync(self, peer: str, sync: Sync) -> None:
        """Take the logs of a coordinator (spec: `Sync`, `Install`; in a cold start `ColdSync`)."""
        # A coordinator shares its log with the learner of its member: the one has to stop before
        # the other takes a newer epoch. One that is no seed hears of that epoch here first.
        for item in sync.items:
            group = self.groups[item.group]
            if group.coordinator is not None and group.coordinator.epoch < item.epoch:
                group.ballots.depose(item.epoch)
        # Stored before anything of a cold start is acked. A majority thus knows the incarnations of
        # all seeds before anything is committed, and notices if one of them loses its record later.
        self._storage.note(sync.known)
        taken = [item for item in sync.items if self.groups[item.group].transfer.takes(peer, item)]
        self.take(peer, self.renew(peer, taken))

    def renew(self, peer: str, items: Iterable[SyncItem]) -> list[SyncItem]:
        """Start the groups over whose logs come under another history id: drop what they hold.

        All groups of one history id start over together, so that clients receive one reset. Returns
        the logs that can be taken now; the others came without their beginning, and the coordinator
        is asked for them as a whole.
        """
        whole: list[SyncItem] = []
        renewed: dict[str, list[int]] = {}
        for item in items:
            group = self.groups[item.group]
            if group.transfer.lacks_beginning(item):
                self._request(peer, group.transfer.refuse(item, Guard.LOG_GAP))
                continue
            whole.append(item)
            if item.history != group.history:
                renewed.setdefault(item.history, []).append(item.group)
        for history, groups in renewed.items():
            self.groups.reset(history, groups)
        return whole

    def take(self, peer: str, items: Iterable[SyncItem]) -> None:
        """Take logs of a coordinator whose history ids their groups have."""
        for item in items:
            self._request(peer, self.groups[item.group].step(peer, item))

    # Its entries, as they come

    def accept(self, peer: str, accept: Accept) -> None:
        """Take new entries of a coordinator.

        A seed whose disk is far behind takes none: it asks for what it lacks once the disk is not.
        """
        if self._wal.unsynced_bytes > self._settings.behind_bytes:
            self._outgoing.refuse(Guard.ENTRIES_DISK_BEHIND)
            return
        gaps: Gaps = {}
        for item in accept.items:
            gap = self.groups[item.group].step(peer, item)
            if isinstance(gap, Gap):
                gaps[item.group] = gap
        if gaps:
            self._fill(peer, gaps)

    def commit(self, peer: str, commit: Commit) -> None:
        """Commit what a majority holds (spec: `Learn`)."""
        gaps: Gaps = {}
        for item in commit.items:
            gap = self.groups[item.group].step(peer, item)
            if isinstance(gap, Gap):
                gaps[item.group] = gap
        if gaps:
            self._fill(peer, gaps)

    # What may be missing

    def heartbeat(self, peer: str, heartbeat: Heartbeat) -> None:
        """Compare what a coordinator says of its groups with what is held here."""
        behind: Gaps = {}
        over: list[NackItem] = []
        for led in heartbeat.leads:
            reply = self.groups[led.group].step(peer, led)
            if reply is None:
                continue  # nearly always, for each group of each heartbeat: no look at its class
            if isinstance(reply, Gap):
                behind[led.group] = reply
            elif isinstance(reply, NackItem):
                over.append(reply)
        if over:
            self._outgoing.send((peer,), Nack(over))
        if behind:
            self._fill(peer, behind)

    def _fill(self, peer: str, gaps: Gaps) -> None:
        """Have gaps filled: by a copy of what is committed, or by the coordinator."""
        if self._wal.unsynced_bytes > self._settings.behind_bytes:
            return  # what came would be refused again, as in `accept`
        left = self.copying.ask(peer, gaps)
        if left:
            self.ask(peer, left)

    def ask(self, peer: str, groups: dict[int, int]) -> None:
        """Ask a coordinator for what is missing of its groups (-> their epochs), not too often.

        A new coordinator is asked at once: it may give what the last one could not.
        """
        items: list[SyncRequestItem] = []
        for index, epoch in groups.items():
            item = self.groups[index].transfer.request(epoch)
            if item is not None:
                items.append(item)
        self._request(peer, *items)

    def _request(self, peer: str, *replies: Reply) -> None:
        """Send a coordinator what groups have to ask it, if anything."""
        items = [item for item in replies if isinstance(item, SyncRequestItem)]
        if items:
            votes = self._storage.votes
            returning, anew = self.groups.returning, self.groups.anew
            request = SyncRequest(votes.incarnation, votes.admitted, returning, items, anew)
            self._outgoing.send((peer,), request)

    def link_lost(self, peer: str) -> None:
        """Take what went to this coordinator, and what it sent, as possibly lost.

        Its groups are not active until its next heartbeat shows that nothing is missing, and what
        waits here is forwarded again. Nothing keeps this seed from voting for a successor either.
        """
        for group in self.groups:
            leadership = group.leadership
            if leadership.coordinator == peer:
                leadership.active = False
                leadership.maybe_behind = True
                leadership.forwarded_epoch = 0
                group.transfer.requested_until = 0
                group.ballots.no_vote_until = 0
