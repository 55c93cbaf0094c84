"""How the log of one group goes from one member to another: asked for, given, and taken.

    the member that lacks something                      the coordinator
    SyncRequestItem: what it holds           -->         compares that with its log
    takes the log, and acks it if it is a seed  <--  SyncItem: the log from there on, or a state

An elected coordinator gives its log to all members unasked. The taking side keeps what is committed
here: the log of another coordinator may replace the uncommitted tail only, and a log that lacks
what is committed here is refused. The giving side is where seeds that started again are taken back:
only the active coordinator of an epoch surely holds everything that is committed, and from then on
it counts acks of the new incarnation alone (spec: `Register`, "acks are fenced").

docs/cluster.md, "How it works" and "Lost memory"; in the specification `Sync`, `Install`,
`ColdSync`, `Register` and `Readmit`.
"""

from typing import TYPE_CHECKING, Any

from mdserver.cluster.acceptor import STEP_TRACES, AcceptorEvent, Standing
from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.guards import Guard
from mdserver.cluster.log import MISSING
from mdserver.cluster.messages import (
    AckItem,
    CopyItem,
    LedGroup,
    NackItem,
    SyncItem,
    SyncRequest,
    SyncRequestItem,
)
from mdserver.cluster.replies import Consequence, Gap, Reply, Unregistered
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer

TransferItem = LedGroup | SyncRequestItem | SyncItem
SYNC_REQUESTED_FOR = 2 * NS_PER_S
"""The time (ns) that a coordinator has to answer a request for what is missing, before the next."""


class Transfer:
    """Both sides of handing on the log of one group.

    `requested_until`: until when (ns) the coordinator of `requested_epoch` is not asked again;
    `copy_requested_epoch`: the newest epoch in which another member was asked for a copy;
    `log_is_copy`: the log came so, of an epoch that is not known.
    """

    __slots__ = (
        "_group",
        "_outgoing",
        "_settings",
        "_storage",
        "_wal",
        "copy_requested_epoch",
        "log_is_copy",
        "requested_epoch",
        "requested_until",
    )

    def __init__(
        self,
        group: "Group",
        settings: "ClusterSettings",
        outgoing: "Outgoing",
        storage: "StableStorage",
        wal: "WalBuffer",
    ) -> None:
        self._group = group
        self._settings = settings
        self._outgoing = outgoing
        self._storage = storage
        self._wal = wal
        self.requested_until = 0
        self.requested_epoch = 0
        self.copy_requested_epoch = 0
        self.log_is_copy = False

    def step(self, sender: str, item: TransferItem, message: Any) -> Reply:
        """Take an item about what a log has or lacks; return the answer to it."""
        match item:
            case LedGroup():
                return self.compare(sender, item)
            case SyncRequestItem():
                return self.give(sender, item, message)
            case CopyItem():
                self.take_copy(item)
                return None
            case SyncItem():
                return self.take(sender, item)

    # Noticing and asking

    def compare(self, peer: str, led: LedGroup) -> Gap | NackItem | None:
        """Compare what a coordinator says of the group with what is held here.

        A link that breaks loses the end of what was sent, so only the lengths in heartbeats show
        that nothing is missing.
        """
        group, log, leadership = self._group, self._group.log, self._group.leadership
        acceptor = group.acceptor
        if self._outlived(led.epoch, led.list_number):
            return None
        group.list_number = max(group.list_number, led.list_number)
        older = led.epoch < log.epoch
        # Nothing is known to have come of a promise, and its candidate may be gone. As long as that
        # may be at work, the coordinator hears of the newer epoch from it.
        if older or (
            led.epoch < group.promised_epoch and group.ballots.no_vote_until <= self._outgoing.now
        ):
            # Its epoch is over and it does not know. Without publications no Accept would be
            # refused, and while its heartbeats say that it leads no member stands.
            self._outgoing.refuse(Guard.HEARTBEAT_OLDER if older else Guard.HEARTBEAT_PROMISED)
            return NackItem(led.group, led.epoch, *group.newest_known)
        if (
            led.epoch > log.epoch
            or led.length > log.length
            # More is committed here than the coordinator holds (docs/cluster.md, "Older copies").
            or log.committed > led.length
            # It was read from a disk and no coordinator has compared it yet, or it does not count.
            or (
                acceptor is not None
                and (acceptor.unverified or acceptor.standing is not Standing.NORMAL)
            )
        ):
            return Gap(led.epoch, led.committed)
        if leadership.coordinator in (peer, "") and leadership.epoch == led.epoch:
            leadership.coordinator = peer  # a log from the disk knows its epoch only
            # The epochs are equal and the log reaches `led.length`, so it holds these entries.
            if led.committed > log.committed:
                group.commit(led.committed)
            if leadership.maybe_behind:
                self._ack_again(peer, led)
            leadership.maybe_behind = False
            if not leadership.active:
                group.follow()
        return None

    def _ack_again(self, peer: str, led: LedGroup) -> None:
        """Ack entries that wait for a majority: an earlier ack may have been lost with a link.

        The coordinator sends such entries once, and nothing is missing here that would be asked
        for. If nobody publishes to the group, no other ack would follow.
        """
        acceptor, length = self._group.acceptor, self._group.log.length
        if acceptor is not None and acceptor.accepts(led.epoch) and led.committed < length:
            self._storage.ack(peer, AckItem(led.group, led.epoch, length), changed=False)

    def _outlived(self, epoch: int, list_number: int) -> bool:
        """Return whether an epoch is newer than the one held, and yet of an older list of seeds.

        There is none (spec: `ListsRise`), unless seeds that were left out began a cluster of their
        own after all their disks were emptied. What the present list committed is not given up for
        that.
        """
        outlived = epoch > self._group.log.epoch and list_number < self._group.list_number
        if outlived:
            self._outgoing.refuse(Guard.LOG_OLDER_LIST)
        return outlived

    def may_request(self, epoch: int) -> bool:
        """Return whether it is time to ask for what is missing; if so, note that it was asked.

        A newer epoch is asked at once: its coordinator may give what the last one could not.
        """
        now = self._outgoing.now
        if self.requested_until > now and self.requested_epoch >= epoch:
            return False
        self.requested_until = now + SYNC_REQUESTED_FOR
        self.requested_epoch = epoch
        return True

    def request(self, epoch: int) -> SyncRequestItem | None:
        """Return what to ask the coordinator of an epoch for; None if it was asked lately."""
        group, log = self._group, self._group.log
        if not self.may_request(epoch):
            return None
        return SyncRequestItem(
            group.index,
            log.committed,
            group.history,
            group.promised_epoch,
            group.acceptor is not None and not group.votes_here,
            0 if self.log_is_copy else log.epoch,  # a copy is of an unknown epoch
            log.length,
            log.checksum_at(log.committed - 1),
        )

    # Taking

    def takes(self, peer: str, item: SyncItem) -> bool:
        """Return whether a coordinator's log may be taken: its epoch is not over, and counts here.

        Not that of this member's own coordinator, which shares the group's log.
        """
        acceptor = self._group.acceptor
        if peer == self._settings.me or not self._group.is_current(peer, item.epoch):
            return False
        if self._outlived(item.epoch, item.list_number):
            return False
        if acceptor is None:
            return True
        # A seed whose record was lost may have noted lists that it does not know of any more. Who
        # takes it back was elected by one that is no older: by the other seeds alone, of whom a
        # majority has refused all older lists since. So this list is noted before the seed counts.
        if item.register and item.list_number > self._group.seeds.number:
            self._outgoing.refuse(Guard.LOG_NEWER_LIST)
            self.requested_until = 0
            return False
        return acceptor.takes(item.epoch, item.register, cold=item.cold) is not None

    def lacks_beginning(self, item: SyncItem) -> bool:
        """Return whether a log under another history id came without its beginning.

        Nothing that is held here belongs to that history, so the missing beginning is not here. The
        group keeps what it holds until it can take the other log as a whole: a seed that dropped
        its log now would vote with an empty one (in the specification `ColdSync` and `Sync` replace
        a log in one step).
        """
        return item.history != self._group.history and item.start > 0 and item.state is None

    def refuse(self, item: SyncItem, guard: Guard) -> SyncRequestItem | None:
        """Refuse a log; return what to ask its coordinator for, so that it sends another one.

        A coordinator answers only once it is active. Its heartbeats say when that is, and `compare`
        asks then.
        """
        self._outgoing.refuse(guard)
        self.requested_until = 0
        return self.request(item.epoch) if item.active else None

    def take(self, peer: str, item: SyncItem) -> SyncRequestItem | None:
        """Take what a coordinator sent of its log; if it does not fit, ask for what is missing.

        The caller has seen that it may be taken (`takes`), and that the group stands under its
        history id (`Learner.renew`).
        """
        group, log = self._group, self._group.log
        acceptor = group.acceptor
        step: AcceptorEvent | None = None
        if acceptor is not None:
            step = acceptor.takes(item.epoch, item.register, cold=item.cold)
            if step is None:
                return None  # an earlier item of the message was about this group as well
        # A log of the same epoch is a prefix of the coordinator's, tail included. Of another epoch
        # only the committed part surely is, so the entries have to begin within that.
        follows_on = log.epoch == item.epoch and item.start <= log.length
        gap = item.state is None and item.start > log.committed and not follows_on
        # Seeds whose disks are older copies elected a log that lacks what a majority held. Taking
        # it would take back what was delivered (I7): the coordinator has to learn of it instead.
        lacks = (
            self._compares(step)
            and item.history == group.history
            and not log.agrees(item.start, item.entries)
        )
        if gap or lacks:
            return self.refuse(item, Guard.LOG_GAP if gap else Guard.LOG_LACKS_COMMITTED)
        if item.state is not None and item.start > log.committed:
            group.state.install(item.start, item.state)
        log.take_over(item.epoch, item.start, item.entries, item.runs)
        self.log_is_copy = False
        changed = False
        if acceptor is not None and step is not None:  # both, or neither
            changed = acceptor.take(step, item.epoch, peer)
            group.trace(STEP_TRACES[step], item.epoch)
            changed = self._storage.admit() or changed
            self._wal.replaced(group, item.start, item.entries, item.runs, item.state)
        group.leadership.follow(peer, item.epoch, already_active=item.active)
        self.requested_until = 0
        # Until the coordinator is active its heartbeats do not name the group: without this a
        # pre-vote of another member could be granted, and would depose it.
        group.ballots.no_vote_until = self._outgoing.now + self._settings.suspect
        if acceptor is not None:
            self._storage.ack(peer, AckItem(item.group, item.epoch, log.length), changed)
        if item.committed > log.committed:
            group.commit(min(item.committed, log.length))
        if item.active:
            group.follow()
        return None

    def _compares(self, step: AcceptorEvent | None) -> bool:
        """Return whether what is committed here has to be in the log that a coordinator sends.

        It does not for a seed that recovers: what it holds counts for nothing until the coordinator
        has given it a log. Nor does it in Standard mode, in which no majority guards a log.
        """
        if self._group.acceptor is None:
            return self._settings.guaranteed
        return step is AcceptorEvent.SYNC

    def take_copy(self, item: CopyItem) -> None:
        """Take a copy that holds more than is here."""
        group = self._group
        same = item.history == group.history
        if same and item.state is not None and item.start > group.log.committed:
            group.state.install(item.start, item.state)
            # The epochs of copied entries say nothing of whose log this is a prefix of, so the
            # member claims no accepted epoch until a coordinator gave it entries.
            self.log_is_copy = True
        else:
            self._outgoing.refuse(Guard.COPY_OLDER)

    # Giving

    def copy(self) -> CopyItem:
        """Return the committed part as a state, without entries and without a coordinator."""
        group, log = self._group, self._group.log
        return CopyItem(
            group.index,
            log.epoch,
            group.history,
            log.committed,
            [],
            [],
            log.committed,
            active=False,
            cold=False,
            register=0,
            state=group.state.export(),
        )

    def synced(self, coordinator: Coordinator, start: int, register: int = 0) -> SyncItem:
        """Return the coordinator's log from `start` on, after a state if entries there are gone.

        A negative start asks for a state of all that is committed. `register` is the incarnation of
        the receiver that counts from now on, 0 if it is no seed that is taken back.
        """
        group, log = self._group, coordinator.log
        start, state = group.state.tail_or_state(start)
        return SyncItem(
            group.index,
            coordinator.epoch,
            group.history,
            start,
            log.since(start),
            log.runs_since(start),
            log.committed,
            coordinator.state is CoordinatorState.ACTIVE,
            coordinator.cold and coordinator.state is CoordinatorState.SYNCING,
            register,
            state,
            coordinator.list_number,
        )

    def give(
        self, peer: str, item: SyncRequestItem, request: SyncRequest
    ) -> SyncItem | Unregistered | Consequence | None:
        """Give a member what it lacks, and take a recovering seed back with it.

        Before that, what the member says is compared with what is known here. In the order of the
        checks: it may have promised a newer epoch, hold less than it acked, hold as committed what
        is missing here, or be an incarnation that may not count again. In the specification a seed
        that is taken back is `Register`, after a readmission `Readmit`.
        """
        group, coordinator = self._group, self._group.coordinator
        # Before it is active its log may lack a majority, and nobody may recover from it.
        if coordinator is None or coordinator.state is not CoordinatorState.ACTIVE:
            return None
        if item.promised > coordinator.epoch:
            # The seed promised a candidate that was not elected. It takes no lower epoch any more,
            # so this epoch could never count it again: only a newer one can.
            self._outgoing.refuse(Guard.SEED_PROMISED_NEWER)
            group.ballots.newest_epoch = max(group.ballots.newest_epoch, item.promised)
            return Consequence.STAND
        if not item.recovering:
            if self._holds_less(coordinator, peer, request.incarnation, item):
                return Unregistered(request.incarnation + 1)
            if self._lacks(coordinator, peer, item):
                return Consequence.RENEW
        register = self._register(coordinator, peer, item, request)
        if item.recovering and not register:
            # Its record is lost, or older than what was noted. With an operator's word it needs an
            # epoch that was elected for this very loss (spec: "readmission elects anew").
            returns = request.returning and coordinator.lacks(peer, request.incarnation)
            return Unregistered(coordinator.known.get(peer, 0), returns)
        same = item.history == group.history
        start = min(item.committed, coordinator.log.committed) if same else 0
        return self.synced(coordinator, start, register)

    def _holds_less(
        self, coordinator: Coordinator, peer: str, incarnation: int, item: SyncRequestItem
    ) -> bool:
        """Return whether a seed holds less than it acked, and log that.

        Its disk is an older copy then (docs/cluster.md, "Older copies").
        """
        if not coordinator.holds_less(peer, incarnation, item.accepted, item.length):
            return False
        self._outgoing.refuse(Guard.SEED_HOLDS_LESS)
        self._outgoing.log(
            "seed is an older copy",
            seed=peer,
            group=item.group,
            acked=coordinator.acked[peer],
            holds=item.length,
        )
        return True

    def _lacks(self, coordinator: Coordinator, peer: str, item: SyncRequestItem) -> bool:
        """Return whether a member has as committed what is not in this log, and log that.

        Acknowledged messages are missing here then: older copies elected this log. Clients have to
        learn that by a new history id.
        """
        same = item.history == self._group.history
        if not same or not coordinator.lacking(item.accepted, item.committed, item.last):
            return False
        self._outgoing.refuse(Guard.LEARNER_HOLDS_MORE)
        self._outgoing.log(
            MISSING,
            member=peer,
            group=item.group,
            committed=item.committed,
            base=coordinator.base,
        )
        return True

    def _register(
        self, coordinator: Coordinator, peer: str, item: SyncRequestItem, request: SyncRequest
    ) -> int:
        """Count a recovering seed from now on (spec: `Register`, after a readmission `Readmit`).

        One that is in no list of this epoch is given the log as well, since it becomes a seed: its
        acks count in epochs of a list that has it (spec: `Relist!TakeBack`).
        Return its incarnation, 0 if it does not count. It counts before it holds the log: its old
        acks are dropped at the same time, and it acks anew once it has taken the log.
        """
        if not item.recovering:
            return 0
        known = self._storage.votes.known
        # By a newer list than that of the epoch it may be a seed that promised.
        anew = request.anew and peer not in self._group.seeds.names
        incarnation = request.incarnation
        if not coordinator.may_register(peer, incarnation, request.admitted, known, anew=anew):
            return 0
        readmitted = coordinator.readmit.get(peer) == request.incarnation
        coordinator.register(peer, request.incarnation)
        self._group.trace(
            "Readmit" if readmitted else "Register",
            coordinator.epoch,
            seed=peer,
            registered=request.incarnation,
        )
        return request.incarnation
