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

from mdserver.cluster.acceptor import STEP_TRACES, AcceptorEvent
from mdserver.cluster.copying import Copying, Gaps
from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import (
    Accept,
    AckItem,
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

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
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
        # Stored before anything of a cold start is acked. A majority thus knows the incarnations of
        # all seeds before anything is committed, and notices if one of them loses its record later.
        self._storage.note(sync.known)
        taken: list[tuple[SyncItem, AcceptorEvent | None]] = []
        for item in sync.items:
            group = self.groups[item.group]
            # The coordinator of this member shares its log: there is nothing to take.
            if peer == self._settings.me or not group.is_current(peer, item.epoch):
                continue
            step: AcceptorEvent | None = None
            if group.acceptor is not None:
                step = group.acceptor.takes(item.epoch, item.register, cold=item.cold)
                if step is None:
                    continue
            if not self.lacks_beginning(peer, item):
                taken.append((item, step))
        self.renew(item for item, _ in taken)
        for item, step in taken:
            self.take(peer, item, step)

    def lacks_beginning(self, peer: str, item: SyncItem) -> bool:
        """Return whether a log under another history id came without its beginning.

        If so, ask the coordinator for the whole log.

        Nothing that is held here belongs to that history, so the missing beginning is not here. The
        group keeps what it holds until it can take the other log as a whole: a seed that dropped
        its log now would vote with an empty one (in the specification `ColdSync` and `Sync` replace
        a log in one step).
        """
        renews = item.history != self.groups[item.group].history
        if not renews or not item.start or item.state is not None:
            return False
        self._refuse(peer, item, Guard.LOG_GAP)
        return True

    def renew(self, items: Iterable[SyncItem]) -> None:
        """Start the groups over whose logs come under another history id: drop what they hold.

        All groups of one history id start over together, so that clients receive one reset.
        """
        renewed: dict[str, list[int]] = {}
        for item in items:
            if item.history != self.groups[item.group].history:
                renewed.setdefault(item.history, []).append(item.group)
        for history, groups in renewed.items():
            self.groups.reset(history, groups)

    def _refuse(self, peer: str, item: SyncItem, guard: Guard) -> None:
        """Refuse a log, and ask its coordinator for one that can be taken.

        A coordinator answers only once it is active. Its heartbeats say when that is, and
        `heartbeat` asks then.
        """
        self._outgoing.refuse(guard)
        self.groups[item.group].sync_requested_until = 0
        if item.active:
            self.ask(peer, {item.group: item.epoch})

    def take(self, peer: str, item: SyncItem, step: AcceptorEvent | None) -> None:
        """Take what a coordinator sent of its log; `step` is what a seed does with it."""
        group = self.groups[item.group]
        log = group.log
        # A log of the same epoch is a prefix of the coordinator's, tail included. Of another epoch
        # only the committed part surely is, so the entries have to begin within that.
        follows_on = log.epoch == item.epoch and item.start <= log.length
        gap = item.state is None and item.start > log.committed and not follows_on
        # Seeds whose disks are older copies elected a log that lacks what a majority held. Taking
        # it would take back what was delivered (I7): the coordinator has to learn of it instead.
        lacks = (
            self._compares(group, step)
            and item.history == group.history
            and not log.agrees(item.start, item.entries)
        )
        if gap or lacks:
            self._refuse(peer, item, Guard.LOG_GAP if gap else Guard.LOG_LACKS_COMMITTED)
            return
        if item.state is not None and item.start > log.committed:
            group.install(item.start, item.state)
        log.take_over(item.epoch, item.start, item.entries, item.runs)
        group.log_is_copy = False
        changed = False
        if group.acceptor is not None and step is not None:
            changed = group.acceptor.take(step, item.epoch, peer)
            group.trace(STEP_TRACES[step], item.epoch)
            changed = self.groups.admit() or changed
            self._wal.replaced(group, item.start, item.entries, item.runs, item.state)
        group.leadership.follow(peer, item.epoch)
        group.sync_requested_until = 0
        # Until the coordinator is active its heartbeats do not name the group: without this a
        # pre-vote of another member could be granted, and would depose it.
        group.no_vote_until = self._outgoing.now + self._settings.suspect
        if group.acceptor is not None:
            self._storage.ack(peer, AckItem(item.group, item.epoch, log.length), changed)
        if item.committed > log.committed:
            group.commit(min(item.committed, log.length))
        if item.active:
            group.follow()

    def _compares(self, group: "Group", step: AcceptorEvent | None) -> bool:
        """Return whether what is committed here has to be in the log that a coordinator sends.

        It does not for a seed that recovers: what it holds counts for nothing until the coordinator
        has given it a log. Nor does it in Standard mode, in which no majority guards a log.
        """
        if group.acceptor is None:
            return self._settings.guaranteed
        return step is AcceptorEvent.SYNC

    # Its entries, as they come

    def accept(self, peer: str, accept: Accept) -> None:
        """Take new entries of a coordinator.

        A seed whose disk is far behind takes none: it asks for what it lacks once the disk is not.
        """
        if self._wal.unsynced_bytes > self._settings.behind_bytes:
            self._outgoing.refuse(Guard.ENTRIES_DISK_BEHIND)
            return
        gaps: Gaps = {
            item.group: (item.epoch, item.committed)
            for item in accept.items
            if not self.groups[item.group].step(peer, item)
        }
        if gaps:
            self._fill(peer, gaps)

    def commit(self, peer: str, commit: Commit) -> None:
        """Commit what a majority holds (spec: `Learn`)."""
        gaps: Gaps = {
            item.group: (item.epoch, item.length)
            for item in commit.items
            if not self.groups[item.group].step(peer, item)
        }
        if gaps:
            self._fill(peer, gaps)

    # What may be missing

    def heartbeat(self, peer: str, heartbeat: Heartbeat) -> None:
        """Compare what a coordinator says of its groups with what is held here.

        A link that breaks loses the end of what was sent, so only the lengths in heartbeats show
        that nothing is missing.
        """
        not_voting = self.groups.not_voting
        behind: Gaps = {}
        over: list[NackItem] = []
        for led in heartbeat.leads:
            group = self.groups[led.group]
            log, leadership = group.log, group.leadership
            if led.epoch < log.epoch:
                # Its epoch is over and it does not know. Without publications no Accept would be
                # refused, and while its heartbeats say that it leads no member stands.
                self._outgoing.refuse(Guard.HEARTBEAT_OLDER)
                over.append(NackItem(led.group, led.epoch, log.epoch, leadership.coordinator))
                continue
            if (
                led.epoch > log.epoch
                or led.length > log.length
                or led.group in not_voting
                or self._differs(group, led.length)
            ):
                behind[led.group] = led.epoch, led.committed
            elif leadership.coordinator in (peer, "") and leadership.epoch == led.epoch:
                leadership.coordinator = peer  # a log from the disk knows its epoch only
                # The epochs are equal and the log reaches `led.length`, so it holds these entries.
                if led.committed > log.committed:
                    group.commit(led.committed)
                leadership.maybe_behind = False
                if not leadership.active:
                    group.follow()
        if over:
            self._outgoing.send((peer,), Nack(over))
        if behind:
            self._fill(peer, behind)

    def _differs(self, group: "Group", length: int) -> bool:
        """Return whether this member has to ask although its log seems long enough.

        It has to if its log was read from a disk and no coordinator has compared it yet, or if more
        is committed here than the coordinator holds (docs/cluster.md, "Older copies").
        """
        if group.acceptor is not None and group.acceptor.unverified:
            return True
        return group.log.committed > length

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
            group = self.groups[index]
            log = group.log
            if not group.request_sync(epoch):
                continue
            recovering = group.acceptor is not None and not group.votes_here
            items.append(
                SyncRequestItem(
                    index,
                    log.committed,
                    group.history,
                    group.promised_epoch,
                    recovering,
                    0 if group.log_is_copy else log.epoch,  # a copy is of an unknown epoch
                    log.length,
                    log.checksum_at(log.committed - 1),
                )
            )
        if items:
            votes = self._storage.votes
            request = SyncRequest(votes.incarnation, votes.admitted, self.groups.returning, items)
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
                group.sync_requested_until = 0
                group.no_vote_until = 0
