"""`ClusterDeliveryMode = Standard`: no votes, so that any one member left goes on serving.

Each group has one *reign* at a time, as far as members see each other: a coordinator, an epoch, and
a history id under which it numbers. What it numbers is committed at once. A member that should
coordinate a group, and holds all of its log, claims it; the coordinator then cedes it, and it goes
on under the same history id. A coordinator that is gone is succeeded by the next member in sight,
under a history id that is new, so that no position is ever used for two publications. Of two reigns
that see each other the one with the higher (epoch, coordinator) stays: the members of the other one
take its log, and their clients are told to forget their positions.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mdserver.cluster import messages as say
from mdserver.cluster.coordinator import Coordinator
from mdserver.cluster.election import Election
from mdserver.cluster.leading import Leading
from mdserver.cluster.learner import Learner
from mdserver.cluster.placement import ranking
from mdserver.limits import NS_PER_MS, NS_PER_S, STANDARD_ALONE_AFTER_S, STANDARD_PATIENCE_MS

if TYPE_CHECKING:
    from mdserver.cluster.ground import Ground

PATIENCE = STANDARD_PATIENCE_MS * NS_PER_MS
"""How long a coordinator may be out of sight: a link that merely broke is dialled anew in that."""

CLAIM_EVERY = NS_PER_S


class Standard:
    """Reigns of this member, and how it follows those of others. `Guaranteed` is its counterpart.

    `_begin`: until when a member that has nothing waits for others that have something (ns), None
    before its first tick. `_began`: when the reigns of this member began (ns). `_lacking`: the
    groups whose reign's log this member does not hold. `_sighted`: the members in sight -> since
    when they are not (ns), 0 while they are.
    """

    def __init__(self, ground: "Ground") -> None:
        self.ground = ground
        self.learner = Learner(ground)
        self.election = Election(ground)
        self.leading = Leading(ground, self.election, self.learner)
        self._begin: int | None = None
        self._began: dict[int, int] = {}
        self._lacking: dict[int, None] = {}
        self._sighted: dict[str, int] = {}
        self._next_claim = 0
        self.handlers: dict[type, Callable[[str, Any], None]] = {
            say.Begin: self._begun,
            say.Claim: self._claimed,
            say.Cede: self._ceded,
            say.Sync: self._sync,
            say.Accept: self._accept,
            say.Need: self._need,
        }

    # Time

    def tick(self) -> None:
        """What is done a few times a second."""
        ground = self.ground
        if self._begin is None:
            self._begin = ground.now + STANDARD_ALONE_AFTER_S * NS_PER_S
        self._outlast()
        self.look()
        ground.join()
        self._claim()

    def rebalance(self) -> None:
        """Members miss others that did not before: groups are claimed without delay."""
        self._next_claim = 0

    def look(self) -> None:
        """Succeed the coordinators that are out of sight, where it is this member's turn.

        One that other members see goes on, or leaves its groups to one whom everybody sees.
        """
        ground = self.ground
        reported = ground.members.reported(ground.now)
        claimed = dict.fromkeys(ground.coordinators)
        claimed.update((group, None) for group, view in enumerate(ground.views)
                       if view.coordinator in reported)  # fmt: skip
        for name, peer in ground.members.peers.items():
            if ground.members.alive(name, ground.now):
                claimed.update(dict.fromkeys(peer.leads))
        orphans: list[int] = []
        for group, view in enumerate(ground.views):
            if group in claimed:
                view.orphaned = 0
            else:
                view.orphaned = view.orphaned or ground.now
                orphans.append(group)
        if not orphans:
            return
        weights = self._heirs()
        mine = [
            group for group in orphans
            if ground.me in weights and self._turn(group, weights) <= ground.now
        ]  # fmt: skip
        if mine:
            self._succeed(mine, len(weights))

    def _outlast(self) -> None:
        """Renew the reigns of this member when others went out of sight.

        Where they went on without it they took its groups over meanwhile: of both sides the larger
        one is to stay. What began after they went was raised by that.
        """
        ground, members, sighted = self.ground, self.ground.members, self._sighted
        reported = members.reported(ground.now)
        for name in members.peers:
            if members.alive(name, ground.now) or name in reported:
                sighted[name] = 0
            elif sighted.get(name) == 0:
                sighted[name] = ground.now
        gone = {
            n: since for n, since in sighted.items() if since and since + PATIENCE <= ground.now
        }
        if not gone:
            return
        for name in gone:
            del sighted[name]
        raised, went = 1 + sum(not since for since in sighted.values()), max(gone.values())
        renewed = [
            say.Begun(group, coordinator.epoch + raised, ground.views[group].history,
                      ground.views[group].history, coordinator.log.length)
            for group, coordinator in ground.coordinators.items() if self._began[group] <= went
        ]  # fmt: skip
        if renewed:
            self._reign(renewed)

    def _heirs(self) -> dict[str, int]:
        """Who may succeed: those who have the groups' logs; if nobody has, all who are in sight.

        The latter only once everybody is there, or did not come for long.
        """
        ground, members = self.ground, self.ground.members
        weights = members.weights(ground.now, ground.joined, ground.weight)
        if weights:
            return weights
        there = [
            name for name, peer in members.peers.items()
            if peer.greeted and members.alive(name, ground.now)
        ]  # fmt: skip
        complete = all(name in there or name == ground.me for name in ground.settings.members)
        if not complete and (self._begin is None or ground.now < self._begin):
            return {}
        return {ground.me: ground.weight} | {name: members.peers[name].weight for name in there}

    def _turn(self, group: int, weights: dict[str, int]) -> int:
        """When this member may succeed: others before it in the order have their turn first, and
        all who hold more of the log.
        """
        ground = self.ground
        rank = ranking(group, weights).index(ground.me)
        rank += len(weights) if group in self._lacking else 0
        return ground.views[group].orphaned + PATIENCE + rank * ground.settings.suspect

    # Reigns of this member

    def _succeed(self, groups: list[int], in_sight: int) -> None:
        """Go on from what is held here, under a new history id.

        The epoch rises by the number of members in sight, see `_outlast`.
        """
        ground = self.ground
        history = ground.new_history()
        begun: list[say.Begun] = []
        for group in groups:
            view, log = ground.views[group], ground.logs[group]
            epoch = max(view.epoch, log.epoch, self.election.newest[group]) + in_sight
            begun.append(say.Begun(group, epoch, history, view.history, log.length))
        self._rename(history, groups)
        self._reign(begun)

    def _rename(self, history: str, groups: list[int]) -> None:
        """Go on under another history id: subscribers and publishers begin anew."""
        self.ground.rename(history, groups)
        for group in groups:
            self.ground.logs[group].forget_publishers()

    def _reign(self, begun: list[say.Begun]) -> None:
        """Coordinate groups from now on, and tell everybody."""
        ground = self.ground
        ground.flush()  # what was numbered until now goes before it
        for item in begun:
            log, view = ground.logs[item.group], ground.views[item.group]
            coordinator = Coordinator(item.group, item.epoch, log, (ground.me,), 0)
            coordinator.assume()
            ground.coordinators[item.group] = coordinator
            log.epoch = item.epoch
            view.follow(ground.me, item.epoch)
            self._lacking.pop(item.group, None)
            self._began[item.group] = ground.now
        ground.say(ground.linked(), say.Begin(begun))
        for item in begun:
            self.learner.follow(item.group)
        ground.log("reigns", groups=len(begun))

    def _claim(self) -> None:
        """Ask for the groups that this member should coordinate, and follows."""
        ground = self.ground
        if ground.now < self._next_claim or not ground.joined:
            return
        self._next_claim = ground.now + CLAIM_EVERY + self.election.delay(1)
        weights = ground.members.weights(ground.now, ground.joined, ground.weight)
        wanted: dict[str, list[int]] = {}
        for group, view in enumerate(ground.views):
            if view.active and view.coordinator != ground.me and self._led(group):
                first = ranking(group, weights)[0]
                if first == ground.me and weights[first]:
                    wanted.setdefault(view.coordinator, []).append(group)
        for member, groups in wanted.items():
            ground.say((member,), say.Claim(groups))

    def _claimed(self, peer: str, claim: say.Claim) -> None:
        """Leave groups to a member that holds all that came before this on its link."""
        ground = self.ground
        items = [
            say.Ceded(group, coordinator.epoch, coordinator.log.length)
            for group in claim.groups
            if (coordinator := ground.coordinators.get(group)) is not None
        ]
        if not items:
            return
        ground.flush()  # what was numbered until now goes before it
        for item in items:
            self._stop(item.group, item.epoch)
        ground.say((peer,), say.Cede(items))

    def _ceded(self, peer: str, cede: say.Cede) -> None:
        """A coordinator leaves groups to this member, which goes on where it stopped."""
        ground = self.ground
        begun: list[say.Begun] = []
        for item in cede.items:
            view, log = ground.views[item.group], ground.logs[item.group]
            whole = view.epoch == item.epoch and log.length == item.length
            if whole and view.coordinator == peer:
                epoch = item.epoch + 1
                begun.append(say.Begun(item.group, epoch, view.history, view.history, log.length))
        if begun:
            self._reign(begun)

    def _stop(self, group: int, epoch: int) -> None:
        self.election.depose(group, epoch)
        self.ground.views[group].active = False

    # Reigns of others

    def greeted(self, peer: str, hello: say.Hello) -> None:
        """A member said who it is; there is no vote record to compare."""

    def outdated(self, peer: str, hello: say.Hello) -> None:
        """A member came with an incarnation older than a known one: its link is closed."""

    def heartbeat(self, peer: str, heartbeat: say.Heartbeat) -> None:
        """Follow who coordinates; ask for what is missing here."""
        ground = self.ground
        behind: dict[int, int] = {}
        for led in heartbeat.leads:
            view = ground.views[led.group]
            if view.coordinator == peer and view.epoch == led.epoch:
                if led.length > ground.logs[led.group].length:
                    behind[led.group] = led.epoch
                    continue
                self._lacking.pop(led.group, None)
                view.stale = False
                if not view.active:
                    self.learner.follow(led.group)
            elif self._yields(peer, led.group, led.epoch):
                behind[led.group] = led.epoch
        if behind:
            self._ask(peer, behind)

    def _led(self, group: int) -> bool:
        """Whether the coordinator that this member follows is in sight and says that it is one."""
        ground = self.ground
        view = ground.views[group]
        if view.coordinator == ground.me:
            return group in ground.coordinators
        if not ground.members.alive(view.coordinator, ground.now):
            return False
        led = ground.members.peers[view.coordinator].leads.get(group)
        return led is not None and led.epoch == view.epoch

    def _yields(self, peer: str, group: int, epoch: int) -> bool:
        """Whether a member's reign is the one to follow; one of this member ends if so."""
        ground = self.ground
        view = ground.views[group]
        if view.coordinator == peer:
            return epoch >= view.epoch
        if (epoch, peer) <= (view.epoch, view.coordinator) and self._led(group):
            return False
        if group in ground.coordinators:
            self._stop(group, epoch)
        return True

    def _begun(self, peer: str, begin: say.Begin) -> None:
        """A member coordinates groups from now on; those whose logs are the same go on at once."""
        ground = self.ground
        same: list[say.Begun] = []
        renamed: dict[str, list[int]] = {}
        behind: dict[int, int] = {}
        for item in begin.items:
            if not self._yields(peer, item.group, item.epoch):
                continue
            view = ground.views[item.group]
            if (view.history, ground.logs[item.group].length) != (item.before, item.length):
                behind[item.group] = item.epoch
                continue
            same.append(item)
            if item.history != view.history:
                renamed.setdefault(item.history, []).append(item.group)
        for history, groups in renamed.items():
            self._rename(history, groups)
        for item in same:
            ground.logs[item.group].epoch = item.epoch
            ground.views[item.group].follow(peer, item.epoch)
            self.learner.follow(item.group)
        self._noted(peer, same)
        if behind:
            self._ask(peer, behind)

    def _ask(self, peer: str, behind: dict[int, int]) -> None:
        self._lacking.update(dict.fromkeys(behind))
        self.learner.ask(peer, behind)

    def _sync(self, peer: str, sync: say.Sync) -> None:
        """A coordinator's log, or what this member lacks of it."""
        ground = self.ground
        taken = [item for item in sync.items if self._yields(peer, item.group, item.epoch)]
        renewed: dict[str, list[int]] = {}
        for item in taken:
            if item.history != ground.views[item.group].history:
                renewed.setdefault(item.history, []).append(item.group)
        for history, groups in renewed.items():
            ground.renew(history, groups)
        for item in taken:
            self.learner.take(peer, item, None)
        self._noted(peer, taken)

    def _noted(self, peer: str, items: "Iterable[say.Begun | say.Synced]") -> None:
        """What a member just said is as good as its next heartbeat."""
        leads = self.ground.members.peers[peer].leads
        for item in items:
            self._lacking.pop(item.group, None)
            length = self.ground.logs[item.group].length
            leads[item.group] = say.Led(item.group, item.epoch, length, length)

    def _accept(self, peer: str, accept: say.Accept) -> None:
        """New entries: those of a coordinator are committed as they come."""
        ground = self.ground
        gaps: dict[int, int] = {}
        for item in accept.items:
            view, log = ground.views[item.group], ground.logs[item.group]
            if view.coordinator != peer or view.epoch != item.epoch:
                continue
            if item.start != log.length:
                gaps[item.group] = item.epoch
                continue
            log.append(item.entries, item.runs)
            ground.learn(item.group, log.length)
        if gaps:
            self._ask(peer, gaps)

    def _need(self, peer: str, need: say.Need) -> None:
        """A member lacks something; to clients of another history this is a new beginning."""
        ground = self.ground
        items: list[say.Synced] = []
        for item in need.items:
            coordinator = ground.coordinators.get(item.group)
            if coordinator is None:
                continue
            same = item.history == ground.views[item.group].history
            start = min(item.committed, coordinator.log.committed) if same else -1
            items.append(self.leading.synced(coordinator, start))
        for portion in say.portions(items):
            ground.say((peer,), say.Sync(portion))

    # What others ask

    def unready(self) -> str | None:
        """Why this member serves no clients now; None if it does."""
        return self.ground.joining() or self.ground.following.unready()
