"""`ClusterDeliveryMode = Standard`: no votes, so that any single member left still serves.

Each group has one *leadership* at a time, as far as members see each other: a coordinator, an
epoch, and a history id under which it numbers. What it numbers is committed at once; no other
member is asked. So an acknowledged message is lost if its coordinator ends before another member
received it. Two invariants hold nevertheless: no position under a history id ever stands for two
publications, and all members in sight of each other end up with one log.

    from          what happens                                       to
    FOLLOWING     its coordinator goes out of sight                  LEADERLESS
    FOLLOWING     this member claimed the group, and gets it         COORDINATING, same history id
    LEADERLESS    it is this member's turn                           COORDINATING, new history id
    LEADERLESS    another member begins, or is seen to coordinate    FOLLOWING
    COORDINATING  a higher (epoch, coordinator) is seen              FOLLOWING
    COORDINATING  another member claims the group, and gets it       LEADERLESS, until that begins

Three events begin or end a leadership:

- *Claim and Yield.* A member that should coordinate a group, and holds all of its log, claims it.
  The coordinator stops and yields it. A link delivers in order, so everything that it numbered is
  at the claimant before the Yield, and the successor goes on under the same history id.
- *Succession.* A coordinator that is gone is succeeded by the next member in sight. It may have
  numbered entries that no other member received, so the successor takes a new history id: the same
  positions under the old one would stand for other content.
- *Conflict.* If two leaderships see each other (two sides of a cut that healed), the one with the
  higher (epoch, coordinator) prevails: the members of the other one take its log, and their clients
  get a reset. A successor raises the epoch by the number of members in sight, so that the larger
  side of a cut prevails.

docs/cluster.md, "Standard mode". The specification is about Guaranteed mode only.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from mdserver.cluster import messages as msg
from mdserver.cluster.coordinator import Coordinator
from mdserver.cluster.groups import new_history
from mdserver.cluster.part import MemberPart
from mdserver.cluster.placement import ranking
from mdserver.cluster.replies import Gap
from mdserver.cluster.settings import delay
from mdserver.limits import NS_PER_MS, NS_PER_S, STANDARD_ALONE_AFTER_S, STANDARD_PATIENCE_MS

if TYPE_CHECKING:
    import random

    from mdserver.cluster.coordinators import Coordinators
    from mdserver.cluster.following import Following
    from mdserver.cluster.group import Group
    from mdserver.cluster.learner import Learner

PATIENCE = STANDARD_PATIENCE_MS * NS_PER_MS
"""How long a coordinator may be out of sight (ns): a link that merely broke is dialled in that."""

CLAIM_EVERY = NS_PER_S


@define(eq=False)
class Standard(MemberPart):
    """The mode in which members in sight of each other coordinate, without votes.

    A `Mode`; `Guaranteed` is its counterpart. `_wait_until`: until when a member that holds nothing
    waits for members that hold something (ns), None before its first tick. `_sighted`: each member
    that was in sight -> since when it is not (ns), 0 while it is. `_next_claim`: when this member
    may claim groups again (ns).
    """

    _following: "Following"
    _learner: "Learner"
    sequencer: "Coordinators"
    _rng: "random.Random"
    _wait_until: int | None = field(init=False, default=None)
    _sighted: dict[str, int] = field(init=False, factory=dict)
    _next_claim: int = field(init=False, default=0)
    handlers: dict[type, Callable[[str, Any], None]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.handlers = {
            msg.Begin: self._on_begin,
            msg.Claim: self._on_claim,
            msg.Yield: self._on_yield,
            msg.Sync: self._on_sync,
            msg.Accept: self._on_accept,
            msg.SyncRequest: self._on_sync_request,
        }

    # Time

    def tick(self) -> None:
        """Look for leaderships that end, and for groups to claim; called a few times a second."""
        if self._wait_until is None:
            self._wait_until = self._outgoing.now + STANDARD_ALONE_AFTER_S * NS_PER_S
        self._raise_epochs()
        self._look()
        self._following.join()
        self._claim()

    def rebalance(self) -> None:
        """Claim groups without delay: members miss others that they did not miss before."""
        self._next_claim = 0

    def link_lost(self, peer: str) -> None:
        """Ask a coordinator again for what it may have sent meanwhile."""
        self._learner.link_lost(peer)

    def member_unreachable(self) -> None:
        """Look at once for groups whose coordinator is out of sight now."""
        self._look()

    def _look(self) -> None:
        """Succeed the coordinators that are out of sight, if it is this member's turn.

        A coordinator that other members still see keeps its groups, or yields them in order to a
        member that everybody sees: succession would cost its clients a reset for a broken link.
        One in sight that has a group no more may have yielded it to a member that is out of sight
        here, so it is not succeeded either; unless it restarted, and lost the group by that.
        Nor is anything succeeded by a member that does not see all who may have done so already,
        while one that sees them says that all groups go on.
        """
        now, members = self._outgoing.now, self._members
        reported = members.reported(now)
        hidden = [name for name in reported if not members.alive(name, now)]
        if members.vouched(hidden, now):
            for group in self.groups:
                group.ballots.leaderless_since = 0
            return
        claimed: dict[int, None] = {}
        for group in self.groups:
            kept = (
                group.leadership.coordinator in reported
                and not group.succession.coordinator_restarted
            )
            if group.coordinator is not None or kept:
                claimed[group.index] = None
        for name, peer in members.peers.items():
            if members.alive(name, now):
                claimed.update(dict.fromkeys(peer.leads))
        leaderless: list[Group] = []
        for group in self.groups:
            if group.index in claimed:
                group.ballots.leaderless_since = 0
            else:
                group.ballots.leaderless_since = group.ballots.leaderless_since or now
                leaderless.append(group)
        if not leaderless:
            return
        weights = self._successors()
        if self._settings.me not in weights:
            return
        mine = [group.index for group in leaderless if self._turn(group, weights, hidden) <= now]
        if mine:
            self._succeed(mine, len(weights))

    def _raise_epochs(self) -> None:
        """Raise the epochs of this member's leaderships when other members went out of sight.

        If those members are alive behind a cut, they succeed this coordinator. Of both sides the
        larger one is to prevail (docs/cluster.md, "When it heals"), so each side raises its epochs
        by the number of members that it still sees. The history id stays: nothing is missing here.
        """
        now, members, sighted = self._outgoing.now, self._members, self._sighted
        reported = members.reported(now)
        for name in members.peers:
            if members.alive(name, now) or name in reported:
                sighted[name] = 0
            elif sighted.get(name) == 0:
                sighted[name] = now
        gone = {n: since for n, since in sighted.items() if since and since + PATIENCE <= now}
        if not gone:
            return
        for name in gone:
            del sighted[name]
        raised, went = 1 + sum(not since for since in sighted.values()), max(gone.values())
        renewed: list[msg.BeginItem] = []
        for group in self.groups.coordinated:
            assert group.coordinator is not None
            # An epoch that was raised after they went, by `_succeed` here or by the member that
            # yielded the group, is not raised twice. A Yield by itself raises no epoch.
            if group.succession.raised_at <= went:
                epoch, length = group.coordinator.epoch + raised, group.log.length
                renewed.append(
                    msg.BeginItem(group.index, epoch, group.history, group.history, length)
                )
        if renewed:
            self._note_raised(renewed)
            self._lead(renewed)

    def _note_raised(self, begun: list[msg.BeginItem]) -> None:
        """Note that these epochs were raised by the number of members in sight."""
        for item in begun:
            self.groups[item.group].succession.raised_at = self._outgoing.now

    def _successors(self) -> dict[str, int]:
        """Return the members that may succeed a coordinator, with their weights.

        These are the members that serve already. If there is none (the cluster starts), they are
        all members in sight, but only once every configured member is there or `_wait_until` is
        over: a member that still comes may hold the log of a cluster that never stopped.
        """
        now, members, me = self._outgoing.now, self._members, self._settings.me
        weights = members.weights(now)
        if weights:
            return weights
        there = [
            name
            for name, peer in members.peers.items()
            if peer.greeted and members.alive(name, now)
        ]
        complete = all(name in there or name == me for name in members.listed)
        if not complete and (self._wait_until is None or now < self._wait_until):
            return {}
        return {me: members.weight} | {name: members.peers[name].weight for name in there}

    def _turn(self, group: "Group", weights: dict[str, int], hidden: list[str]) -> int:
        """Return when this member may succeed the coordinator of a group (ns).

        Each member before it in the order of placement has a suspicion time to begin. A member that
        knows its log to be incomplete comes after all others, so that the fullest log goes on.
        The order has `hidden` members, too, which others see and this one does not: so of two that
        do not see each other only one has the first turn.
        """
        me, incomplete = self._settings.me, group.succession.log_incomplete
        if hidden and group.leadership.coordinator == me and not incomplete:
            # It yielded the group to one of them, which did not get it: nobody else has a turn.
            return group.ballots.leaderless_since + PATIENCE
        order = dict.fromkeys(hidden, 1) | weights
        rank = ranking(group.index, order).index(me)
        rank += len(order) if incomplete else 0
        return group.ballots.leaderless_since + PATIENCE + rank * self._settings.suspect

    # Leaderships of this member

    def _succeed(self, groups: list[int], in_sight: int) -> None:
        """Go on from what is held here, under a new history id.

        The last coordinator may have numbered entries that did not come here; under the old history
        id their positions would be used again. The epoch rises by the number of members in sight,
        for the reason given in `_raise_epochs`.
        """
        history = new_history(self._rng)
        begun: list[msg.BeginItem] = []
        for index in groups:
            group = self.groups[index]
            epoch = (
                max(group.leadership.epoch, group.log.epoch, group.ballots.newest_epoch) + in_sight
            )
            begun.append(msg.BeginItem(index, epoch, history, group.history, group.log.length))
        self._rename(history, groups)
        self._note_raised(begun)
        self._lead(begun)

    def _rename(self, history: str, groups: list[int]) -> None:
        """Go on under another history id: subscribers and publishers begin anew.

        The last coordinator may have taken numbers of publishers that are not known here, so what
        is known of publishers says nothing any more.
        """
        self.groups.rename(history, groups)
        for index in groups:
            self.groups[index].log.forget_publishers()

    def _lead(self, begun: list[msg.BeginItem]) -> None:
        """Coordinate groups from now on, and tell all members."""
        # Entries numbered in the epoch before leave first: `Begin` states the length after them.
        self._outgoing.flush()
        me = self._settings.me
        for item in begun:
            group = self.groups[item.group]
            coordinator = Coordinator(item.group, item.epoch, group.log, (me,), 0)
            coordinator.assume()
            group.coordinator = coordinator
            group.log.epoch = item.epoch
            group.leadership.follow(me, item.epoch)
            group.succession.log_incomplete = False
        self._outgoing.send(self._outgoing.linked, msg.Begin(begun))
        for item in begun:
            self.groups[item.group].follow()
        self._outgoing.log("coordinates", groups=len(begun))

    def _claim(self) -> None:
        """Claim the groups that this member should coordinate by placement.

        Only groups that it follows: it then holds the log, and nothing is lost by the move.
        """
        now, me = self._outgoing.now, self._settings.me
        if now < self._next_claim or not self._members.joined:
            return
        self._next_claim = now + CLAIM_EVERY + delay(self._settings, self._rng, 1)
        weights = self._members.weights(now)
        wanted: dict[str, list[int]] = {}
        for group in self.groups:
            leadership = group.leadership
            if leadership.active and leadership.coordinator != me and group.succession.is_led:
                first = ranking(group.index, weights)[0]
                if first == me and weights[first]:
                    wanted.setdefault(leadership.coordinator, []).append(group.index)
        for member, groups in wanted.items():
            self._outgoing.send((member,), msg.Claim(groups))

    def _on_claim(self, peer: str, claim: msg.Claim) -> None:
        """Yield groups to the member that claims them.

        The link is in order, so that member holds everything numbered here once the Yield comes.
        """
        items = [
            msg.YieldItem(index, coordinator.epoch, coordinator.log.length)
            for index in claim.groups
            if (coordinator := self.groups[index].coordinator) is not None
        ]
        if not items:
            return
        self._outgoing.flush()  # what was numbered until now goes before it
        for item in items:
            self.groups[item.group].succession.stop(item.epoch)
        self._outgoing.send((peer,), msg.Yield(items))

    def _on_yield(self, peer: str, yielded: msg.Yield) -> None:
        """Coordinate the groups whose coordinator stopped in favour of this member."""
        replies = [self.groups[item.group].step(peer, item) for item in yielded.items]
        begun = [reply for reply in replies if isinstance(reply, msg.BeginItem)]
        if begun:
            self._lead(begun)

    # Leaderships of others

    def greeted(self, peer: str, hello: msg.Hello) -> None:
        """Do nothing: there is no vote record to compare."""

    def outdated(self, peer: str, hello: msg.Hello) -> None:
        """Do nothing: without votes an incarnation has no meaning."""

    def heartbeat(self, peer: str, heartbeat: msg.Heartbeat) -> None:
        """Follow the leaderships that a member's heartbeat names; ask for what is missing here."""
        self._ask(peer, self._gaps(peer, heartbeat.leads))

    def _gaps(self, peer: str, items: "Iterable[msg.LedGroup | msg.AcceptItem]") -> dict[int, int]:
        """Have groups take what a coordinator says; return where they lack something (-> epoch)."""
        gaps: dict[int, int] = {}
        for item in items:
            reply = self.groups[item.group].step(peer, item)
            if isinstance(reply, Gap):
                gaps[item.group] = reply.epoch
        return gaps

    def _on_begin(self, peer: str, begin: msg.Begin) -> None:
        """Follow a member that coordinates groups from now on; ask for logs that are not the same.

        All groups that get a new history id get it before one of them is followed, so that clients
        hear of it once.
        """
        same: list[msg.BeginItem] = []
        renamed: dict[str, list[int]] = {}
        behind: dict[int, int] = {}
        for item in begin.items:
            reply = self.groups[item.group].step(peer, item)
            if isinstance(reply, Gap):
                behind[item.group] = reply.epoch
            elif isinstance(reply, msg.BeginItem):
                same.append(reply)
                if reply.history != self.groups[item.group].history:
                    renamed.setdefault(reply.history, []).append(item.group)
        for history, groups in renamed.items():
            self._rename(history, groups)
        for item in same:
            self.groups[item.group].succession.follow(peer, item)
        self._note_leads(peer, same)
        self._ask(peer, behind)

    def _ask(self, peer: str, behind: dict[int, int]) -> None:
        """Ask a coordinator for what is missing of groups (-> their epochs), and note the lack."""
        for index in behind:
            self.groups[index].succession.log_incomplete = True
        if behind:
            self._learner.ask(peer, behind)

    def _on_sync(self, peer: str, sync: msg.Sync) -> None:
        """Take a coordinator's log, or what this member lacks of it."""
        prevailing = [
            item
            for item in sync.items
            if self.groups[item.group].succession.prevails(peer, item.epoch)
        ]
        taken = self._learner.renew(peer, prevailing)
        self._learner.take(peer, taken)
        self._note_leads(peer, taken)

    def _note_leads(self, peer: str, items: "Iterable[msg.BeginItem | msg.SyncItem]") -> None:
        """Take what a member just said as if its next heartbeat had said it.

        Until that heartbeat `Succession.is_led` would otherwise call its groups leaderless.
        """
        leads = self._members.peers[peer].leads
        for item in items:
            group = self.groups[item.group]
            group.succession.log_incomplete = False
            group.succession.note_start(peer)
            length = group.log.length
            leads[item.group] = msg.LedGroup(item.group, item.epoch, length, length)

    def _on_accept(self, peer: str, accept: msg.Accept) -> None:
        """Take new entries of a coordinator, and commit them at once: nobody votes on them."""
        self._ask(peer, self._gaps(peer, accept.items))

    def _on_sync_request(self, peer: str, request: msg.SyncRequest) -> None:
        """Give a member what it lacks of the groups that this member coordinates."""
        replies = [self.groups[item.group].step(peer, item, request) for item in request.items]
        items = [reply for reply in replies if isinstance(reply, msg.SyncItem)]
        for portion in msg.portions(items):
            self._outgoing.send((peer,), msg.Sync(portion))

    # What others ask

    def unready(self) -> str | None:
        """Return why this member serves no clients now; None if it does."""
        return self._following.joining() or self._following.unready()
