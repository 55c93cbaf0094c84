"""The leadership of one group in Standard mode: which one prevails, and what it says here.

`mdserver.cluster.standard` has the theory, and decides for all groups together when a member
succeeds, claims or yields. This class is what an item about one group changes: a group has it in
Standard mode, as it has `Ballots` in Guaranteed mode. There is no vote and no ack here. What counts
instead is the order (epoch, coordinator) of leaderships, which is total and the same on all
members, so that members which disagreed for a while end up with one coordinator.

docs/cluster.md, "Standard mode".
"""

from typing import TYPE_CHECKING

from mdserver.cluster.messages import (
    AcceptItem,
    BeginItem,
    LedGroup,
    SyncItem,
    SyncRequestItem,
    YieldItem,
)
from mdserver.cluster.replies import Gap, Reply

if TYPE_CHECKING:
    from mdserver.cluster.group import Group
    from mdserver.cluster.membership import Membership
    from mdserver.cluster.outgoing import Outgoing

SuccessionItem = AcceptItem | LedGroup | SyncRequestItem | BeginItem | YieldItem


class Succession:
    """What a member knows and does about the leaderships of one group, without votes.

    `raised_at`: when the epoch was last raised by the number of members in sight (ns);
    `log_incomplete`: this member does not hold all of the coordinator's log. `_start`: the number
    of the start (`Hello.start`) in which the coordinator that is followed here began to lead.
    """

    __slots__ = ("_group", "_me", "_members", "_outgoing", "_start", "log_incomplete", "raised_at")

    def __init__(
        self, group: "Group", me: str, members: "Membership", outgoing: "Outgoing"
    ) -> None:
        self._group = group
        self._me = me
        self._members = members
        self._outgoing = outgoing
        self.raised_at = 0
        self.log_incomplete = False
        self._start = 0

    def step(self, sender: str, item: SuccessionItem) -> Reply:
        """Take an item about a leadership or its log; return the answer to it."""
        match item:
            case AcceptItem():
                return self._extend(sender, item)
            case LedGroup():
                return self._compare(sender, item)
            case SyncRequestItem():
                return self._give(item)
            case BeginItem():
                return self._begins(sender, item)
            case YieldItem():
                return self._yielded(sender, item)

    # Which leadership is followed

    @property
    def is_led(self) -> bool:
        """Return whether the coordinator followed here is in sight and claims this very epoch."""
        group, leadership = self._group, self._group.leadership
        if leadership.coordinator == self._me:
            return group.coordinator is not None
        if not self._members.alive(leadership.coordinator, self._outgoing.now):
            return False
        led = self._members.peers[leadership.coordinator].leads.get(group.index)
        return led is not None and led.epoch == leadership.epoch

    def note_start(self, peer: str) -> None:
        """Note in which of its starts a member leads, if it is the one that is followed here."""
        if self._group.leadership.coordinator == peer:
            self._start = self._members.peers[peer].start

    @property
    def coordinator_restarted(self) -> bool:
        """Return whether the coordinator followed here is known to have started again since.

        Between two links nothing is known of it: a link may break without a restart.
        """
        peer = self._members.peers.get(self._group.leadership.coordinator)
        return peer is not None and peer.greeted and peer.start != self._start

    def prevails(self, peer: str, epoch: int) -> bool:
        """Return whether a member's leadership is the one to follow; if so, end one of this member.

        The order (epoch, address) is total and the same on all members, so both sides of a cut
        choose alike. A leadership with a lower rank is followed only if the present one is gone.
        """
        leadership = self._group.leadership
        if leadership.coordinator == peer:
            return epoch >= leadership.epoch
        older = (epoch, peer) <= (leadership.epoch, leadership.coordinator)
        if older and self.is_led:
            return False
        if self._group.coordinator is not None:
            self.stop(epoch)
        return True

    def stop(self, epoch: int) -> None:
        """End a leadership of this member; `epoch` is the one that is known then."""
        self._group.ballots.depose(epoch)
        self._group.leadership.active = False

    def _begins(self, peer: str, item: BeginItem) -> Gap | BeginItem | None:
        """Judge a leadership that begins: return it if it can be followed, `follow` then does.

        A log with the same history id and length is the same log, since only one coordinator at a
        time numbers under a history id: such a group can be followed at once, renamed if need be.
        Otherwise return the gap.
        """
        group = self._group
        if not self.prevails(peer, item.epoch):
            return None
        # If another member begins under the same history id as before, it was yielded the group,
        # and its epoch is only the next one. In all other cases the epoch was raised by the number
        # of members in sight. This member has to know that, in case it is yielded the group within
        # the same `PATIENCE`.
        if item.history != item.before or group.leadership.coordinator == peer:
            self.raised_at = self._outgoing.now
        if (group.history, group.log.length) != (item.before, item.length):
            return Gap(item.epoch, item.length)
        return item

    def follow(self, peer: str, item: BeginItem) -> None:
        """Follow a leadership that began; the group stands under its history id already."""
        group = self._group
        group.log.epoch = item.epoch
        group.leadership.follow(peer, item.epoch)
        group.follow()

    def _yielded(self, peer: str, item: YieldItem) -> BeginItem | None:
        """Return the leadership with which this member goes on after the one that was yielded."""
        group, leadership, length = self._group, self._group.leadership, self._group.log.length
        whole = leadership.epoch == item.epoch and length == item.length
        # If entries were lost with a link, the same history cannot go on here. The Yield is
        # dropped, nobody coordinates the group, and `Standard` succeeds with a new history.
        if whole and leadership.coordinator == peer:
            epoch = item.epoch + 1
            return BeginItem(group.index, epoch, group.history, group.history, length)
        return None

    # Its log

    def _extend(self, peer: str, item: AcceptItem) -> Gap | None:
        """Take new entries of the coordinator, and commit them at once: nobody votes on them."""
        leadership, log = self._group.leadership, self._group.log
        # Nobody refuses entries of another leadership, as seeds do: its coordinator learns of the
        # one that prevails by the heartbeats of that.
        if leadership.coordinator != peer or leadership.epoch != item.epoch:
            return None
        if item.start != log.length:
            return Gap(item.epoch, item.committed)
        log.append(item.entries, item.runs)
        self._group.commit(log.length)
        return None

    def _compare(self, peer: str, led: LedGroup) -> Gap | None:
        """Compare what a coordinator says of the group with what is held here."""
        group, leadership = self._group, self._group.leadership
        if leadership.coordinator == peer and leadership.epoch == led.epoch:
            # A link that broke lost the end of what was sent: only the lengths show that.
            if led.length > group.log.length:
                return Gap(led.epoch, led.committed)
            self.log_incomplete = False
            leadership.maybe_behind = False
            if not leadership.active:
                group.follow()
            return None
        return Gap(led.epoch, led.committed) if self.prevails(peer, led.epoch) else None

    def _give(self, item: SyncRequestItem) -> SyncItem | None:
        """Give a member what it lacks.

        A member with another history id gets a state in place of entries (start -1): its clients
        get a reset and the snapshot, and not old entries as if they were new.
        """
        group, coordinator = self._group, self._group.coordinator
        if coordinator is None:
            return None
        same = item.history == group.history
        start = min(item.committed, coordinator.log.committed) if same else -1
        return group.transfer.synced(coordinator, start)
