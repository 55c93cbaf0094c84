"""How the list of seeds changes while the cluster runs (docs/cluster.md, "Changing the seeds").

    an operator's order --> a seed names the next list --> a majority has named it: it begins
        --> all members note it --> each group has an epoch elected by it: it is settled

`mdserver.cluster.seeds` has the rules. Seeds say in each heartbeat which list they have noted, and
which one they have named to follow it, both as their disks have it. So what anybody says of lists
is repeated until everybody knows it, and a member that was away learns the newest list at once. In
the specification `Relist`: `Name`, `Begin`, `Note`.

Nothing stops meanwhile. A coordinator that was elected by the list before goes on, and counts by
its own list, until it has itself elected anew. A member that is to become a seed takes the logs as
a seed does before its list is named (`TakeBack`): otherwise it would be one more seed that does not
vote, and the failure of another one could leave no majority that does. A member that is a seed no
more goes on until the list without it is settled, since older epochs count it until then.

Two operators could name two lists at the same time, and if either had half of the seeds, none would
ever begin. So one seed begins all changes, one after the other: the first of the list in sight.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import define, field

from mdserver.cluster.coordinator import CoordinatorState
from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import (
    ClosePeer,
    Heartbeat,
    PeerDiscovered,
    SeedOrder,
    TakePart,
)
from mdserver.cluster.part import MemberPart
from mdserver.cluster.seeds import SEEDS_MIN
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    from mdserver.cluster.election import Election
    from mdserver.cluster.stable_storage import StableStorage
    from mdserver.cluster.wal import WalBuffer

UNWRITTEN = (
    "this seed became one while it ran, so it does not write its log yet, and would recover from "
    "a crash as if it had no journal: drain it (`mdserver cluster drain`), then restart it"
)
"""What an operator has to know of a seed that ought to write its log, and does not."""

ORDER_PATIENCE = 30 * NS_PER_S
"""The time (ns) in which an order has to come to the name of a list; it ends otherwise."""

Told = tuple[int, tuple[str, ...], tuple[str, ...]]


@define(eq=False)
class Relisting(MemberPart):
    """What one member does about lists of seeds.

    `_told`: number, seeds and next list as the disk had them last. `_unnamed`: seeds -> the list
    of which they said that they named no next one. `_order`: what an operator wants of the list of
    `_order_number`, until `_order_until` (ns). `_invited`: the list whose seeds asked this member
    to take part, which counts until `_invited_until` (ns). `_settled`: the newest list that was
    settled.
    """

    _storage: "StableStorage"
    _wal: "WalBuffer"
    _election: "Election"
    _told: Told = field(init=False)
    _unnamed: dict[str, int] = field(init=False, factory=dict)
    _order: SeedOrder | None = field(init=False, default=None)
    _order_number: int = field(init=False, default=0)
    _order_until: int = field(init=False, default=0)
    _invited: int = field(init=False, default=0)
    _invited_until: int = field(init=False, default=0)
    _settled: int = field(init=False, default=1)

    def __attrs_post_init__(self) -> None:
        seeds = self._members.seeds
        self._told = (seeds.number, seeds.names, seeds.next)  # the record of a start is stored

    # What members say to each other

    @property
    def told(self) -> Told:
        """Return the list and the next one as the disk has them, which is what others may hear."""
        if self._storage.record_on_disk:
            seeds = self._members.seeds
            self._told = (seeds.number, seeds.names, seeds.next)
        return self._told

    def heard(self, peer: str, heartbeat: Heartbeat) -> bool:
        """Note which list another member has; return False if the link to it was closed."""
        seeds, number, names = self._members.seeds, heartbeat.list_number, tuple(heartbeat.seeds)
        if number > seeds.number:
            self._note(number, names)
        elif number == seeds.number > 1 and names != seeds.names:
            self._outgoing.refuse(Guard.LISTS_CONTRADICT)
            here, there = ", ".join(seeds.names), ", ".join(names)
            self._outgoing.log(
                "seeds contradict", member=peer, number=number, here=here, there=there
            )
            reason = f"list {number} of the seeds is {here}, and {there} at {peer}"
            self._outgoing.out.append(ClosePeer(peer, reason))
            return False
        if number == seeds.number and not heartbeat.next_seeds:
            self._unnamed[peer] = number
        else:
            self._unnamed.pop(peer, None)
        # Written with the next change of the record; a start that forgets it learns it again.
        seeds.named_none(name for name, told in self._unnamed.items() if told == seeds.number)
        return True

    def _note(self, number: int, names: tuple[str, ...]) -> None:
        """Go by a newer list, which has begun (spec: `Note`)."""
        self._members.seeds.note(number, names)
        for name in self._members.seat():
            self._outgoing.out.append(PeerDiscovered(name))
        for name in self._outgoing.linked:
            if not self._members.peers[name].relists:
                self.shut_out(name)
        self._outgoing.log("seeds changed", number=number, seeds=", ".join(names))
        for group in self.groups.coordinated:
            coordinator = group.coordinator
            assert coordinator is not None
            # Seeds that have noted the new list would refuse these.
            if coordinator.state in {CoordinatorState.PRE_VOTING, CoordinatorState.PREPARING}:
                group.ballots.depose()
        self._storage.store()

    def shut_out(self, peer: str) -> None:
        """Close the link to a member that would count majorities by the first list."""
        reason = f"{peer} is of an earlier version, and does not know that the seeds changed"
        self._outgoing.out.append(ClosePeer(peer, reason))

    # Names

    @property
    def settled(self) -> bool:
        """Return whether each group has had an active epoch by the present list."""
        number = self._members.seeds.number
        return all(group.list_number >= number for group in self.groups)

    def _named(self) -> dict[str, tuple[str, ...]]:
        """Return the next lists that seeds of the present list have on their disks."""
        seeds, peers = self._members.seeds, self._members.peers
        found = {
            seed: peers[seed].next_seeds
            for seed in seeds.others
            if peers[seed].up and peers[seed].list_number == seeds.number and peers[seed].next_seeds
        }
        number, _, mine = self.told
        return found | ({seeds.me: mine} if mine and number == seeds.number else {})

    def _name(self, names: tuple[str, ...]) -> None:
        """Name the next list, if the rules allow that now (spec: `Name`).

        With it goes the incarnation of a member that becomes a seed: a majority knows it then, and
        will notice if the member loses its record.
        """
        seeds, members = self._members.seeds, self._members
        if names == seeds.next:
            return
        if seeds.next:
            self._outgoing.refuse(Guard.NEXT_NAMED)
            return
        named = self._named()
        if not seeds.sure(names, named):
            self._outgoing.refuse(Guard.NEXT_UNSURE)
            return
        settled = self.settled
        if not settled:
            self._outgoing.refuse(Guard.NEXT_UNSETTLED)
            return
        joins = [name for name in names if name not in seeds.names]
        starts = {name: members.peers[name].incarnation for name in joins if name in members.peers}
        if len(starts) < len(joins) or not all(starts.values()) or self.groups.record_lost:
            return
        # Who named the list first looked at all seeds, also at those that are away.
        away = () if names in named.values() else self._away(names)
        relist = members.all_relist(self._outgoing.linked, away)
        if relist and seeds.name(names, named, settled=settled):
            self._outgoing.log("seeds named", number=seeds.number + 1, seeds=", ".join(names))
            if not self._storage.note(starts):
                self._storage.store()

    def _away(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the seeds whose version counts although they may be away.

        After a change no member of an earlier version gets a link, so it is of no account.
        """
        return () if self._members.seeds.changed else names

    def next_seeds(self) -> tuple[str, ...]:
        """Return the list that seeds in sight have named to follow, empty if they named none."""
        return self._members.seeds.next or next(iter(self._named().values()), ())

    def missing(self) -> list[str]:
        """Return what a change still lacks, in sentences."""
        members, number = self._members, self._members.seeds.number
        found = [
            f"{name} has not noted list {number} yet"
            for name, peer in members.peers.items()
            if peer.list_number and peer.list_number < number
        ]
        lacking = sum(group.list_number < number for group in self.groups)
        if lacking:
            found.append(f"{lacking} of {len(self.groups)} groups have no coordinator of the list")
        votes = [*(members.peers[seed] for seed in members.seeds.others)] if number > 1 else []
        found += [
            f"{peer.name or 'a seed'} does not vote in all groups yet"
            for peer in votes
            if peer.list_number and (peer.not_voting or not peer.takes_part)
        ]
        return found

    # A few times a second

    def look(self) -> None:
        """Go on with what is under way."""
        seeds = self._members.seeds
        if self._settings.learner or self._settings.single:
            return
        if seeds.include_me:
            named = self._named()
            begun = seeds.begun(named)
            if begun is not None:
                self._note(seeds.number + 1, begun)
            elif named:
                # The one that most have named: with the others this seed may make a majority of it.
                counts = {names: list(named.values()).count(names) for names in named.values()}
                self._name(max(counts, key=lambda names: (counts[names], names)))
        self._carry_out()
        self._elect_anew()
        if self._settled < seeds.number and self.settled:
            self._settled = seeds.number
            self._outgoing.log("seeds settled", number=seeds.number)
        self._leave()

    def may_join(self) -> bool:
        """Return whether this member is to take the logs as a seed does, and may begin to.

        If it lost its record, it may have been a seed that voted. A majority of the seeds of the
        list before has noted its incarnation then (`_name`), so enough of them have to be heard
        first that one of these is among them.
        """
        seeds, peers = self._members.seeds, self._members.peers
        if self.groups[0].acceptor is not None or not (seeds.include_me or self._is_invited):
            return False
        if not self.forgot:
            return self._enough(peers[seed].greeted for seed in seeds.others)
        return self.settled and self._in_no_newer_list

    @property
    def _in_no_newer_list(self) -> bool:
        """Return whether no list after the present one can have had this member at its loss.

        A majority of the present list would have named that one (spec: `NoneFollowed`).
        """
        seeds, peers = self._members.seeds, self._members.peers
        return self._enough(
            peers[seed].list_number == seeds.number
            and not peers[seed].next_seeds
            and peers[seed].may_name
            for seed in seeds.names
        )

    def _enough(self, heard: Iterable[bool]) -> bool:
        """Return whether these are so many seeds that no majority is without one of them."""
        said = list(heard)
        return sum(said) >= (len(said) + 1) // 2

    @property
    def forgot(self) -> bool:
        """Return whether this member was a seed, is none, and has a record that does not say so.

        It lost that record, and begins anew if it is to be a seed again: nobody has to take it back
        (spec: `ComeAnew`). What it promised it promised by lists that had it, and those elect
        nothing any more once one without it is settled. It must not be in a newer list, though, of
        which it has forgotten as well. So as many seeds as make that impossible have to say, on
        links that are newer than the loss, that they have named no list after the present one
        (`may_join`). Nor has an epoch to be elected for the loss: an epoch of a list without this
        member rests on no promise of it, so its coordinator may give it the log.
        """
        unlisted = not self._members.seeds.include_me
        return unlisted and not self._storage.votes.admitted and self._members.known_incarnation > 0

    def join(self) -> None:
        """Begin to take the logs as a seed does."""
        for group in self.groups:
            group.take_part()
        # What it does not write down from the beginning is no log to restore.
        self._storage.votes.recorded = False
        self._storage.admit()  # where this member coordinates all groups, nobody gives it a log
        self._storage.store()
        self._outgoing.log("takes part", seed=self._members.seeds.include_me)
        if self.unwritten:
            self._outgoing.log("log not written", reason=UNWRITTEN)

    @property
    def unwritten(self) -> bool:
        """Return whether this member is to write the log of a seed, and begins with its next start.

        A journal is opened for a log or without one, before a member knows that it becomes a seed.
        """
        part = self.groups[0].acceptor is not None
        return part and self._settings.wants_wal and not self._wal.enabled

    def joined(self) -> None:
        """Note that a new seed has named no list, if it takes part before any list has it.

        It cannot have named one then, unless it lost its record; but then it is LOST by now, or
        began anew, as enough seeds were heard (`may_join`). Without this it could name none while a
        seed is away that it has never heard, and no new seed could ever take the place of one that
        is gone.
        """
        if not self._members.seeds.include_me and not self.groups.record_lost:
            self._storage.votes.may_name = True
            self._storage.store()

    def _leave(self) -> None:
        """Hold no log that counts any more, once no epoch of an older list is needed."""
        seeds, groups = self._members.seeds, self.groups
        if groups[0].acceptor is None or seeds.include_me:
            return
        if self._is_invited and not groups.record_lost:  # a LOST one goes, and begins anew
            return
        if not self.settled or self._older():
            return
        for group in groups:
            group.acceptor = None
        self._wal.enabled = self._wal.acks_wait = False
        self._storage.votes.recorded = False
        self._storage.store()
        self._outgoing.log("takes part no more")

    def _older(self) -> list[int]:
        """Return the groups that this member coordinates by an older list."""
        number = self._members.seeds.number
        return [
            group.index
            for group in self.groups.coordinated
            if group.coordinator is not None
            and group.coordinator.state is CoordinatorState.ACTIVE
            and group.coordinator.list_number < number
        ]

    def _elect_anew(self) -> None:
        """Have groups elected by the present list that an older one has elected.

        Not before a majority has noted it and votes: others would refuse, and the group would be
        without a coordinator for nothing.
        """
        older = self._older()
        if not older:
            return
        seeds, peers = self._members.seeds, self._members.peers
        willing = [
            seed
            for seed in seeds.names
            if seed == seeds.me or peers[seed].list_number >= seeds.number
        ]
        not_voting = self.groups.not_voting if seeds.include_me else []
        ready = [
            index
            for index in older
            if index not in not_voting
            and len([s for s in self.groups[index].voting() if s in willing]) >= seeds.majority
        ]
        self._election.force(ready)

    # Orders

    def invited(self, peer: str, _: TakePart) -> None:
        """Take part from now on, since a seed says that this member is to become one."""
        if peer in self._members.seeds.names:
            self._invited = self._members.seeds.number
            self._invited_until = self._outgoing.now + ORDER_PATIENCE

    @property
    def _is_invited(self) -> bool:
        """Return whether this member is to become a seed; an order may have come to nothing."""
        invited = self._invited == self._members.seeds.number
        return invited and self._outgoing.now < self._invited_until

    def beginner(self) -> str | None:
        """Return the seed that begins changes, None if none is in sight that votes."""
        members, now = self._members, self._outgoing.now
        for seed in members.seeds.names:
            mine = seed == members.seeds.me
            lost = self.groups.record_lost if mine else members.peers[seed].record_lost
            if members.alive(seed, now) and not lost:
                return seed
        return None

    def ordered(self, _: str, order: SeedOrder) -> None:
        """Take an operator's order, unless it makes no sense any more or another one is on."""
        if self._order is not None:
            self._outgoing.log("seeds order given up", member=order.member, reason="another is on")
            return
        self._order = order
        self._order_number = self._members.seeds.number
        self._order_until = self._outgoing.now + ORDER_PATIENCE

    def _carry_out(self) -> None:
        """Name the list that an operator ordered, once the member is ready for it."""
        order, members = self._order, self._members
        if order is None:
            return
        seeds = members.seeds
        if self._order_number != seeds.number or seeds.next:
            self._order = None  # it is carried out, or another change came before it
            return
        names = (seeds.with_seed if order.votes else seeds.without_seed)(order.member)
        reason = self.refuses(order.member, votes=order.votes)
        if reason is None and order.votes and not self._takes_part(order.member):
            self._outgoing.send((order.member,), TakePart())
            reason = f"{order.member} has not taken the logs of all groups as a seed does"
        reason = reason or self.hinders(names)
        if self._order_until <= self._outgoing.now:
            self._order = None
            self._outgoing.log("seeds order given up", member=order.member, reason=reason)
        elif reason is None:
            self._name(names)

    def _takes_part(self, member: str) -> bool:
        """Return whether a member in sight that is to become a seed votes as one would.

        It is admitted on its disk by then: with the name of the list others note its incarnation,
        and a record that does not say so would look like one after a loss.
        """
        peer = self._members.peers.get(member)
        return peer is not None and peer.takes_part and not peer.not_voting and peer.admitted

    def hinders(self, names: tuple[str, ...]) -> str | None:
        """Return why this member must not name a list now, though the list is right; or None."""
        beginner, seeds = self.beginner(), self._members.seeds
        if beginner != seeds.me:
            return f"{beginner or 'a seed that votes'} is to begin it"
        if not seeds.sure(names, self._named()):
            return (
                f"{seeds.me} lost its vote record, and has to hear of every other seed that it has "
                "named no list: give the order while this member is down"
            )
        return None

    def refuses(self, member: str, *, votes: bool) -> str | None:
        """Return why a member cannot become a seed (`votes`), or cease to be one, now; or None."""
        seeds = self._members.seeds
        if (member in seeds.names) == votes:
            listed = ", ".join(seeds.names)
            return f"{member} is {'a seed already' if votes else 'no seed'}; the seeds are {listed}"
        names = seeds.with_seed(member) if votes else seeds.without_seed(member)
        if len(names) < SEEDS_MIN:
            return f"without {member} there would be {len(names)} seeds; {SEEDS_MIN} are the least"
        return (
            self._unfinished()
            or (self._unfit(member) if votes else None)
            or self._breaks(names, joining=votes)
        )

    def _unfinished(self) -> str | None:
        """Return why there can be no next list yet, whatever it is; None if there can be one."""
        number = self._members.seeds.number
        if self.next_seeds():
            return f"the change to list {number + 1} of the seeds is under way"
        lacking = [group for group in self.groups if group.list_number < number]
        if lacking:
            return (
                f"list {number} of the seeds is not settled: {len(lacking)} of {len(self.groups)} "
                "groups have no coordinator that it has elected"
            )
        return None

    def _unfit(self, member: str) -> str | None:
        """Return why a member cannot become a seed now; None if it can."""
        members = self._members
        if not members.alive(member, self._outgoing.now):
            return f"{member} is not in sight"
        serves = members.joined if member == members.me else members.peers[member].ready
        return None if serves else f"{member} does not serve yet"

    def _breaks(self, names: tuple[str, ...], *, joining: bool) -> str | None:
        """Return why a list could not take over now; None if it could."""
        if not self._members.all_relist(self._outgoing.linked, self._away(names)):
            return "a member is of a version that knows no changes of seeds, or a seed is away"
        present = self._members.seeds.names
        for group in self.groups:
            if 2 * len(group.voting()) <= len(present):
                voting = f"{len(group.voting())} of {len(present)} seeds"
                return f"only {voting} vote in group {group.index}: wait until the others are back"
            left = [seed for seed in group.voting() if seed in names]
            if 2 * (len(left) + joining) <= len(names):
                return (
                    f"only {len(left)} of {len(names)} seeds would vote in group {group.index}: "
                    "wait until the others are back"
                )
        return None
