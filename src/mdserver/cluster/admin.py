"""Commands of operators: status, drain, readmit, cold start, seeds (docs/cluster.md, "Operating").

An operator speaks to any member, about any member. What a command sets in motion may take several
attempts, because links break and candidacies fail; so a command is answered at once, with a refusal
if it makes no sense now, and `tick` goes on with what was accepted until it is done or its patience
ends. Three of them could do harm, and are refused unless they are forced or the loss is accepted:

- *drain* takes a member out of service before it is stopped. If too few seeds would be left then,
  nothing could be committed any more.
- *readmit* says that the lost promises of a seed no longer matter. The word is kept by the seed
  that it is about, so a seed that was not lost cannot be given it by mistake.
- *cold-start* begins with the seeds that are left. What only the others hold is given up.

*add-seed* and *remove-seed* change who votes (`mdserver.cluster.relisting`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from mdserver.cluster.messages import AdminCommand, AdminReply, Readmit, SeedOrder, SetWeight
from mdserver.cluster.part import MemberPart
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    from mdserver.cluster.election import Election
    from mdserver.cluster.following import Following
    from mdserver.cluster.relisting import Relisting
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.core.broker import Broker

DRAINED = "drained"
"""Logged once a member that is drained coordinates nothing any more."""

READMIT_PATIENCE = 10 * NS_PER_S
COLD_START_PATIENCE = 30 * NS_PER_S


@define(eq=False)
class AdminCommands(MemberPart):
    """Carries out the commands of operators on one member.

    `_cold`: the groups that an operator wants started with what is left, until `_cold_until` (ns),
    each with its epoch when that was ordered. `_readmitting`: the seeds that an operator takes
    back -> until when the order is repeated to them (ns).
    """

    _broker: "Broker"
    _storage: "StableStorage"
    _election: "Election"
    _following: "Following"
    _relisting: "Relisting"
    _cold: dict[int, int] = field(init=False, factory=dict)
    _cold_until: int = field(init=False, default=0)
    _draining: bool = field(init=False, default=False)
    _readmitting: dict[str, int] = field(init=False, factory=dict)

    def carry_out(self, command: AdminCommand) -> None:
        """Carry out a command; the answer is an output of the same step."""
        answer: dict[str, object] = {}
        refused: str | None = None
        match command.action:
            case "status":
                answer = self.status()
            case "drain" | "undrain":
                member, refused = self.called(command.member)
                refused = refused or self._drain(member, command)
            case "readmit" | "cold-start" | "add-seed" | "remove-seed" if (
                not self._settings.guaranteed
            ):
                refused = f"nobody votes in Standard mode: there is nothing to {command.action}"
            case "readmit":
                member, refused = self.called(command.member)
                refused = refused or self._readmit(member)
            case "add-seed" | "remove-seed":
                member, refused = self.called(command.member)
                refused = refused or self._seat(member, votes=command.action == "add-seed")
                answer = {"seeds": self._seeds()}
            case "cold-start":
                answer = {"lost": self._silent()}
                refused = self._order_cold_start(command.force)
            case _:
                refused = f"unknown action {command.action}"
        self._outgoing.out.append(AdminReply(command.request, answer, refused))

    def called(self, given: str) -> tuple[str, str | None]:
        """Return the address of the member that an operator means, or why that is not clear.

        Members are called by their address or their name; an empty name means this one.
        """
        names = self._names()
        if not given or given in names:
            return given or self._settings.me, None
        found = [address for address, name in names.items() if name == given]
        if len(found) == 1:
            return found[0], None
        if found:
            return "", f"{given} is the name of {' and '.join(found)}: give the address"
        known = ", ".join(f"{name} ({address})" for address, name in names.items())
        return "", f"there is no member {given}; the members are {known}"

    def _names(self) -> dict[str, str]:
        """Return the addresses of all members, each with what people call the member."""
        peers = self._members.peers.items()
        mine = {self._settings.me: self._settings.name or self._settings.me}
        return mine | {address: peer.name or address for address, peer in peers}

    def _called(self, *addresses: str) -> str:
        """Return what people call these members, as `called` takes it."""
        names = self._names()
        taken = list(names.values())
        return " and ".join(
            name if taken.count(name) == 1 and name not in names else address
            for address, name in ((one, names.get(one, one)) for one in addresses)
        )

    # Status

    def status(self) -> dict[str, object]:
        """Return members, groups, quorum and trouble with the disk, as plain values."""
        now = self._outgoing.now
        histories: dict[str, list[int]] = {}
        for group in self.groups:
            histories.setdefault(group.history, []).append(group.index)
        return {
            "members": [self._member(*member) for member in self._names().items()],
            "groups": [self._group(index) for index in range(len(self.groups))],
            "mode": "Guaranteed" if self._settings.guaranteed else "Standard",
            "quorum": not self._settings.guaranteed or self._members.quorum(now),
            "history": self.groups[0].history if len(histories) == 1 else None,
            "histories": histories,
            "trouble": self._broker.trouble,
        } | ({"seeds": self._seeds()} if self._settings.guaranteed else {})

    def _seeds(self) -> dict[str, object]:
        """Return the present list of seeds, and what a change of it lacks, as plain values."""
        seeds, settled = self._members.seeds, self._relisting.settled
        next_seeds = self._relisting.next_seeds()
        return {
            "number": seeds.number,
            "seeds": list(seeds.names),
            "next": list(next_seeds) or None,
            "missing": self._relisting.missing(),
            "settled": settled,
        }

    def _member(self, address: str, name: str) -> dict[str, object]:
        """Return what the status says of a member."""
        led = sum(group.leadership.coordinator == address for group in self.groups)
        found: dict[str, object] = {
            "address": address,
            "at": self._members.moved.get(address, address),
            "name": name,
            "seed": address in self._members.seeds.names,
        }
        if address == self._settings.me:
            groups, members = self.groups, self._members
            state = standing(groups.record_lost, groups.not_voting, members.joined, members.weight)
            return found | {
                "state": state,
                "incarnation": self._storage.votes.incarnation,
                "groups": led,
                "behind": self._following.behind_in_all(),
                "unwritten": self._relisting.unwritten,
            }
        peer = self._members.peers[address]
        state, behind = "unreachable", None
        if self._members.alive(address, self._outgoing.now) and peer.not_voting is not None:
            state = standing(peer.record_lost, peer.not_voting, peer.ready, peer.weight)
            behind = peer.behind
        return found | {
            "state": state,
            "incarnation": peer.incarnation,
            "groups": led,
            "behind": behind,
            "unwritten": peer.unwritten,
        }

    def _group(self, group: int) -> dict[str, object]:
        """Return what the status says of a group."""
        leadership, log = self.groups[group].leadership, self.groups[group].log
        coordinator = leadership.coordinator if self.groups[group].led else None
        return {
            "group": group,
            "coordinator": coordinator,
            "epoch": leadership.epoch,
            "length": log.length,
            "committed": log.committed,
            "lag": log.length - log.committed,
            "behind": self._following.behind(self.groups[group]),
        }

    # Drain

    def _drain(self, member: str, command: AdminCommand) -> str | None:
        """Drain a member, or take that back; return why that is refused, None if it is not."""
        weight = 0 if command.action == "drain" else 1
        if member != self._settings.me and not self._members.alive(member, self._outgoing.now):
            return f"{self._called(member)} is not in sight of {self._called(self._settings.me)}"
        if weight == 0 and not command.force:
            refused = self._needed(member)
            if refused:
                return refused
        self._outgoing.send((member,), SetWeight(weight))
        if member != self._settings.me:
            # What it says of itself comes later than the next order may.
            self._members.peers[member].weight = weight
        return None

    def _needed(self, member: str) -> str | None:
        """Return why a member may not be drained in addition to others; None if it may.

        A member that is drained is about to be stopped, so its vote is not relied on.
        """
        drained = [name for name in self._drained_members() if name != member]
        if member in self._members.seeds.names:
            broken = self.breaks(member) or self.breaks(member, drained)
            if broken:
                return broken
        if not self._others(member):
            who = f": {self._called(*drained)} drained already" if drained else ""
            called = self._called(member)
            return f"no other member would take the groups of {called}{who}; --force drains it"
        return None

    def _drained_members(self) -> list[str]:
        """Return the members in sight that an operator drained."""
        mine = [] if self._members.weight else [self._settings.me]
        peers = self._members.peers.items()
        return mine + [
            name
            for name, peer in peers
            if not peer.weight and self._members.alive(name, self._outgoing.now)
        ]

    def _others(self, member: str) -> list[str]:
        """Return the members in sight, without this one, that take groups."""
        mine = (
            [self._settings.me]
            if self._members.joined and self._members.weight and member != self._settings.me
            else []
        )
        return mine + [
            name
            for name, peer in self._members.peers.items()
            if name != member
            and peer.ready
            and peer.weight
            and self._members.alive(name, self._outgoing.now)
        ]

    def breaks(self, member: str, drained: Sequence[str] = ()) -> str | None:
        """Return why groups would have no majority without some seeds; None if all would have one.

        Drained seeds vote until they are stopped.
        """
        gone = dict.fromkeys((member, *drained))
        for group in self.groups:
            left = [seed for seed in group.voting() if seed not in gone]
            if 2 * len(left) <= len(self._members.seeds.names):
                before = f"{self._called(*drained)} drained already: " if drained else ""
                return (
                    f"{before}without {self._called(member)} only {len(left)} of "
                    f"{len(self._members.seeds.names)} seeds would vote in group {group.index}: "
                    "wait until the others are back, or use --force"
                )
        return None

    def set_weight(self, order: SetWeight) -> None:
        """Take an operator's order to coordinate more or fewer groups."""
        self._members.weight = order.weight
        self._draining = not order.weight
        self._outgoing.log("drain" if self._draining else "undrain")

    def _drained(self) -> bool:
        """Return whether this member coordinates nothing any more, or no other could take over."""
        return not self.groups.coordinated or not self._others(self._settings.me)

    # Readmission

    def _readmit(self, member: str) -> str | None:
        """Give a LOST seed the operator's word; return why that is refused, None if it is not."""
        if member not in self._members.seeds.names:
            seeds = ", ".join(self._called(seed) for seed in self._members.seeds.names)
            return f"{self._called(member)} is no seed; the seeds are {seeds}"
        if member == self._settings.me:
            if not self.groups.record_lost:
                return f"{self._called(member)} did not lose its vote record"
            return self._take_word()
        peer = self._members.peers[member]
        if not self._members.alive(member, self._outgoing.now) or not peer.record_lost:
            return f"{self._called(member)} is not in sight, or did not lose its vote record"
        self._readmitting[member] = self._outgoing.now + READMIT_PATIENCE
        self._outgoing.send((member,), Readmit())
        return None

    def tick(self) -> None:
        """Go on with what an operator ordered, since a link or a candidacy may have failed."""
        if self._draining and self._drained():
            self._draining = False
            self._outgoing.log(DRAINED)
        if self._cold:
            self._go_on_cold()
        for member, until in list(self._readmitting.items()):
            peer = self._members.peers[member]
            told = peer.not_voting is not None and self._members.alive(member, self._outgoing.now)
            if until <= self._outgoing.now or (told and not peer.record_lost):
                del self._readmitting[member]
            elif told:
                self._outgoing.send((member,), Readmit())

    def _go_on_cold(self) -> None:
        """Try again to start the groups of an order that have no coordinator yet.

        The order ends for each group once it has one: what fails later is a new loss, for which
        the operator did not answer.
        """
        silent = dict.fromkeys(self._silent())
        if self._cold_until <= self._outgoing.now:
            self._cold = {}
        for group, epoch in list(self._cold.items()):
            leadership = self.groups[group].leadership
            # What is known of the seeds may be older than the epoch that was just established.
            started = leadership.epoch > epoch or group not in silent
            if started and leadership.active and self.groups[group].led:
                del self._cold[group]
        self._start_cold([group for group in self._cold if group in silent])

    def readmitted(self) -> None:
        """Take the operator's word from the member that it was given to."""
        if self.groups.record_lost:
            self._take_word()

    def _take_word(self) -> str | None:
        """Say in each `SyncRequest` from now on that an operator takes this seed back.

        The word stays with the seed that it is about, so that every coordinator, present or later,
        hears it from the seed itself, until the seed votes again or ends. The seed has to have
        heard a majority of seeds first: at least one of them knows of its last loss, if there was
        one, so the word is about that loss and about no earlier one.
        """
        seeds = self._members.seeds.others
        heard = sum(self._members.peers[seed].greeted for seed in seeds)
        if heard + 1 < self._members.seeds.majority:
            return f"{self._called(self._settings.me)} sees no majority of the seeds"
        self._outgoing.log("readmit", incarnation=self._storage.votes.incarnation)
        self.groups.readmit()
        for index in self.groups.not_voting:
            self.groups[index].transfer.requested_until = 0
        return None

    # Seeds

    def _seat(self, member: str, *, votes: bool) -> str | None:
        """Have a member become a seed, or cease to be one; return why that is refused, or None."""
        if self._settings.single:
            return "a single server votes alone: list more ClusterMembers, and start again"
        beginner = self._relisting.beginner()
        if beginner is None:
            return f"no seed is in sight of {self._called(self._settings.me)}"
        refused = self._relisting.refuses(member, votes=votes)
        if refused is None:
            self._outgoing.send((beginner,), SeedOrder(member, votes))
        return refused

    # Cold start

    def _silent(self) -> list[int]:
        """Return the groups in which no majority votes, nor will soon without an operator."""
        return [
            group
            for group in range(len(self.groups))
            if not self.groups[group].votable and not self._recovers(group)
        ]

    def _recovers(self, group: int) -> bool:
        """Return whether a group has a coordinator that may take a majority of the seeds back.

        It takes seeds back that restarted. Those that are LOST wait for an operator.
        """
        now = self._outgoing.now
        led = self.groups[group].led or any(
            group in peer.leads and self._members.alive(name, now)
            for name, peer in self._members.peers.items()
        )
        voting, lost = self.groups[group].voting(), self.groups.record_lost
        hopeful = [
            seed
            for seed in self._members.seeds.names
            if self._members.alive(seed, now)
            and (
                seed in voting
                or not (
                    lost if seed == self._settings.me else self._members.peers[seed].record_lost
                )
            )
        ]
        return led and len(hopeful) >= self._members.seeds.majority

    def _start_cold(self, silent: list[int]) -> str | None:
        """Start groups with the seeds in sight; return why that is refused, None if it is not."""
        left = sum(
            self._members.alive(seed, self._outgoing.now) for seed in self._members.seeds.names
        )
        if left < self._members.seeds.majority:
            return f"only {left} seeds are in sight: a majority is needed to start anything"
        self._election.cold_start(silent, left)
        return None

    def _order_cold_start(self, accepted: bool) -> str | None:
        """Order a cold start; return why that is refused, None if it is not.

        `accepted`: the operator accepts the loss of what only seeds out of sight hold.
        """
        silent = self._silent()
        if not silent:
            return "every group has a coordinator or can elect one: there is nothing to start"
        if not accepted:
            return (
                f"{len(silent)} groups would start with the best log that a seed in sight still "
                "holds; acknowledged messages that only others hold would be lost"
            )
        if not self._members.seeds.include_me:
            return f"{self._called(self._settings.me)} is no seed: give the command to a seed"
        refused = self._start_cold(silent)
        if refused is None:
            self._cold = {group: self.groups[group].leadership.epoch for group in silent}
            self._cold_until = self._outgoing.now + COLD_START_PATIENCE
        return refused


def standing(lost: bool, away: list[int], ready: bool, weight: int) -> str:
    """Return a member's state in one word."""
    if lost:
        return "LOST"
    if away:
        return "RECOVERING"
    if not weight:
        return "DRAINED"
    return "NORMAL" if ready else "JOINING"
