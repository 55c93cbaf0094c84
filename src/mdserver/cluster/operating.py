"""What an operator asks of a member: status, drain, readmit, cold start (docs/cluster.md)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdserver.cluster.messages import Operate, Operated, Readmit, Weigh
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    from mdserver.cluster.election import Election
    from mdserver.cluster.ground import Ground
    from mdserver.cluster.leading import Leading

DRAINED = "drained"
"""Logged once a member that is drained coordinates nothing any more."""

READMIT_PATIENCE = 10 * NS_PER_S
COLD_START_PATIENCE = 30 * NS_PER_S


class Operating:
    """The operator's side of one member. Every command may be given to any member."""

    __slots__ = (
        "_cold",
        "_cold_until",
        "_draining",
        "_readmitting",
        "election",
        "ground",
        "leading",
    )

    def __init__(self, ground: "Ground", election: "Election", leading: "Leading") -> None:
        self.ground = ground
        self.election = election
        self.leading = leading
        self._cold: dict[int, int] = {}
        """Groups that an operator wants started with what is left, until `_cold_until` (ns), each
        with its epoch when that was ordered.
        """
        self._cold_until = 0
        self._draining = False
        self._readmitting: dict[str, int] = {}
        """Seeds that an operator takes back -> how long they are told so (ns)."""

    def operate(self, operate: Operate) -> None:
        """Carry out a command; the answer is an output of the same step."""
        answer: dict[str, object] = {}
        refused: str | None = None
        match operate.action:
            case "status":
                answer = self.status()
            case "drain" | "undrain":
                member, refused = self.called(operate.member)
                refused = refused or self._drain(member, operate)
            case "readmit" | "cold-start" if not self.ground.settings.guaranteed:
                refused = f"nobody votes in Standard mode: there is nothing to {operate.action}"
            case "readmit":
                member, refused = self.called(operate.member)
                refused = refused or self._readmit(member)
            case "cold-start":
                answer = {"lost": self._silent()}
                refused = self._cold_start(operate.force)
            case _:
                refused = f"unknown action {operate.action}"
        self.ground.out.append(Operated(operate.request, answer, refused))

    def called(self, given: str) -> tuple[str, str | None]:
        """Return the address of the member that an operator means, or why that is not clear.

        Members are called by their address or their name; this one also by nothing.
        """
        ground = self.ground
        names = self._names()
        if not given or given in names:
            return given or ground.me, None
        found = [address for address, name in names.items() if name == given]
        if len(found) == 1:
            return found[0], None
        if found:
            return "", f"{given} is the name of {' and '.join(found)}: give the address"
        known = ", ".join(f"{name} ({address})" for address, name in names.items())
        return "", f"there is no member {given}; the members are {known}"

    def _names(self) -> dict[str, str]:
        """The addresses of all members with what people call them."""
        ground = self.ground
        peers = ground.members.peers.items()
        mine = {ground.me: ground.settings.name or ground.me}
        return mine | {address: peer.name or address for address, peer in peers}

    # Status

    def status(self) -> dict[str, object]:
        """Members, groups, quorum and trouble with the disk, as plain values."""
        ground = self.ground
        now = ground.now
        histories: dict[str, list[int]] = {}
        for group, view in enumerate(ground.views):
            histories.setdefault(view.history, []).append(group)
        return {
            "members": [self._member(*member) for member in self._names().items()],
            "groups": [self._group(group) for group in range(len(ground.views))],
            "mode": "Guaranteed" if ground.settings.guaranteed else "Standard",
            "quorum": not ground.settings.guaranteed or ground.members.quorum(now),
            "history": ground.views[0].history if len(histories) == 1 else None,
            "histories": histories,
            "trouble": ground.broker.trouble,
        }

    def _member(self, address: str, name: str) -> dict[str, object]:
        ground = self.ground
        led = sum(view.coordinator == address for view in ground.views)
        found: dict[str, object] = {"address": address, "name": name,
                                    "seed": address in ground.settings.seeds}  # fmt: skip
        if address == ground.me:
            away = ground.seed.away if ground.seed is not None else []
            lost = ground.seed is not None and ground.seed.lost
            state = standing(lost, away, ground.joined, ground.weight)
            return found | {"state": state, "incarnation": ground.votes.incarnation, "groups": led}
        peer = ground.members.peers[address]
        state = "unreachable"
        if ground.members.alive(address, ground.now) and peer.away is not None:
            state = standing(peer.lost, peer.away, peer.ready, peer.weight)
        return found | {"state": state, "incarnation": peer.incarnation, "groups": led}

    def _group(self, group: int) -> dict[str, object]:
        ground = self.ground
        view, log = ground.views[group], ground.logs[group]
        return {
            "group": group, "coordinator": view.coordinator if ground.led(group) else None,
            "epoch": view.epoch, "length": log.length, "committed": log.committed,
            "lag": log.length - log.committed,
        }  # fmt: skip

    # Drain

    def _drain(self, member: str, operate: Operate) -> str | None:
        ground = self.ground
        weight = 0 if operate.action == "drain" else 1
        if member != ground.me and not ground.members.alive(member, ground.now):
            return f"{member} is not in sight of {ground.me}"
        if weight == 0 and not operate.force:
            refused = self._needed(member)
            if refused:
                return refused
        ground.say((member,), Weigh(weight))
        if member != ground.me:
            # What it says of itself comes later than the next order may.
            ground.members.peers[member].weight = weight
        return None

    def _needed(self, member: str) -> str | None:
        """Why a member may not be drained beside those that are; None if it may.

        Who is drained is about to be stopped, so it is no vote to rely on.
        """
        ground, drained = self.ground, [name for name in self._drained_members() if name != member]
        if member in ground.settings.seeds:
            broken = self.breaks(member) or self.breaks(member, drained)
            if broken:
                return broken
        if not self._others(member):
            who = f": {' and '.join(drained)} drained already" if drained else ""
            return f"no other member would take the groups of {member}{who}; --force drains it"
        return None

    def _drained_members(self) -> list[str]:
        ground = self.ground
        mine = [] if ground.weight else [ground.me]
        peers = ground.members.peers.items()
        return mine + [
            name for name, peer in peers
            if not peer.weight and ground.members.alive(name, ground.now)
        ]  # fmt: skip

    def _others(self, member: str) -> list[str]:
        """The members in sight, without this one, that take groups."""
        ground = self.ground
        mine = [ground.me] if ground.joined and ground.weight and member != ground.me else []
        return mine + [
            name for name, peer in ground.members.peers.items()
            if name != member and peer.ready and peer.weight
            and ground.members.alive(name, ground.now)
        ]  # fmt: skip

    def breaks(self, member: str, drained: Sequence[str] = ()) -> str | None:
        """Why groups would have no majority without this seed and drained ones; None if they have.

        Drained seeds vote until they are stopped.
        """
        ground = self.ground
        away = ground.seed.away if ground.seed is not None else []
        gone = dict.fromkeys((member, *drained))
        for group in range(len(ground.views)):
            voting = ground.members.voting(group, away, ground.now)
            left = [seed for seed in voting if seed not in gone]
            if 2 * len(left) <= len(ground.settings.seeds):
                return (f"{' and '.join(drained)} drained already: " if drained else "") + (
                    f"without {member} only {len(left)} of {len(ground.settings.seeds)} seeds "
                    f"would vote in group {group}: wait until the others are back, or use --force"
                )
        return None

    def weighed(self, weigh: Weigh) -> None:
        """This member's share of the groups changed."""
        self.ground.weight = weigh.weight
        self._draining = not weigh.weight
        self.ground.log("drain" if self._draining else "undrain")

    def _drained(self) -> bool:
        """Whether it coordinates nothing any more, or nobody is there to coordinate instead."""
        return not self.ground.coordinators or not self._others(self.ground.me)

    # Readmission

    def _readmit(self, member: str) -> str | None:
        ground = self.ground
        if member not in ground.settings.seeds:
            return f"{member} is no seed; the seeds are {', '.join(ground.settings.seeds)}"
        if member == ground.me:
            if ground.seed is None or not ground.seed.lost:
                return f"{member} did not lose its vote record"
            return self._take_word()
        peer = ground.members.peers[member]
        if not ground.members.alive(member, ground.now) or not peer.lost:
            return f"{member} is not in sight, or did not lose its vote record"
        self._readmitting[member] = ground.now + READMIT_PATIENCE
        ground.say((member,), Readmit())
        return None

    def insist(self) -> None:
        """Go on with what an operator ordered: a link or a candidacy may have failed meanwhile."""
        ground = self.ground
        if self._draining and self._drained():
            self._draining = False
            ground.log(DRAINED)
        if self._cold:
            self._go_on_cold()
        for member, until in list(self._readmitting.items()):
            peer = ground.members.peers[member]
            told = peer.away is not None and ground.members.alive(member, ground.now)
            if until <= ground.now or (told and not peer.lost):
                del self._readmitting[member]
            elif told:
                ground.say((member,), Readmit())

    def _go_on_cold(self) -> None:
        """An order ends for each group as it has a coordinator: what fails later is a new loss."""
        ground = self.ground
        silent = dict.fromkeys(self._silent())
        if self._cold_until <= ground.now:
            self._cold = {}
        for group, epoch in list(self._cold.items()):
            view = ground.views[group]
            # What is known of the seeds may be older than the epoch that was just established.
            started = view.epoch > epoch or group not in silent
            if started and view.active and ground.led(group):
                del self._cold[group]
        self._start_cold([group for group in self._cold if group in silent])

    def readmitted(self) -> None:
        """Another member passes the operator's word on to this seed."""
        if self.ground.seed is not None and self.ground.seed.lost:
            self._take_word()

    def _take_word(self) -> str | None:
        """This seed has the operator's word: from now on its `Need` says so.

        The word stays with whom it is about, so whoever coordinates a group, now or later, hears it
        from the seed itself, until the seed votes again or ends. It has to have heard a majority
        of seeds first: at least one of them knows of the last loss, if there was one.
        """
        ground = self.ground
        assert ground.seed is not None
        seeds = [seed for seed in ground.settings.seeds if seed != ground.me]
        heard = sum(ground.members.peers[seed].greeted for seed in seeds)
        if heard + 1 < ground.settings.majority:
            return f"{ground.me} sees no majority of the seeds"
        ground.log("readmit", incarnation=ground.votes.incarnation)
        ground.seed.readmit()
        for group in ground.seed.away:
            ground.views[group].asked = 0
        return None

    # Cold start

    def _silent(self) -> list[int]:
        """The groups in which no majority of the seeds in sight votes, or soon will by itself."""
        return [
            group for group in range(len(self.ground.views))
            if not self.election.votable(group) and not self._recovers(group)
        ]  # fmt: skip

    def _recovers(self, group: int) -> bool:
        """Whether a group has a coordinator, and that may take a majority of the seeds back.

        It does so with seeds that restarted. Those that are LOST wait for an operator.
        """
        ground, now = self.ground, self.ground.now
        led = ground.led(group) or any(
            group in peer.leads and ground.members.alive(name, now)
            for name, peer in ground.members.peers.items()
        )
        voting, lost = self.election.voting(group), ground.seed is not None and ground.seed.lost
        hopeful = [
            seed for seed in ground.settings.seeds
            if ground.members.alive(seed, now) and (
                seed in voting
                or not (lost if seed == ground.me else ground.members.peers[seed].lost)
            )
        ]  # fmt: skip
        return led and len(hopeful) >= ground.settings.majority

    def _start_cold(self, silent: list[int]) -> str | None:
        """Start groups with the seeds in sight; returns why that cannot be."""
        ground = self.ground
        left = sum(ground.members.alive(seed, ground.now) for seed in ground.settings.seeds)
        if left < ground.settings.majority:
            return f"only {left} seeds are in sight: a majority is needed to start anything"
        self.election.cold_start(silent, left)
        return None

    def _cold_start(self, accepted: bool) -> str | None:
        ground, silent = self.ground, self._silent()
        if not silent:
            return "every group has a coordinator or can elect one: there is nothing to start"
        if not accepted:
            return (
                f"{len(silent)} groups would start with the best log that a seed in sight still "
                "holds; acknowledged messages that only others hold would be lost"
            )
        if ground.seed is None:
            return f"{ground.me} is no seed: give the command to a seed"
        refused = self._start_cold(silent)
        if refused is None:
            self._cold = {group: ground.views[group].epoch for group in silent}
            self._cold_until = ground.now + COLD_START_PATIENCE
        return refused


def standing(lost: bool, away: list[int], ready: bool, weight: int) -> str:
    """A member's state in one word."""
    if lost:
        return "LOST"
    if away:
        return "RECOVERING"
    if not weight:
        return "DRAINED"
    return "NORMAL" if ready else "JOINING"
