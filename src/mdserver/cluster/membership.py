"""Which members are in sight, and what each says of itself.

This is a failure detector, and like all of them it may be wrong: a member out of sight may be alive
behind a broken link. So nothing that keeps messages safe depends on it; it decides when to try (to
stand for a group, to hand one over, to send clients elsewhere), and a wrong answer costs time.

A member is *in sight* while its link is up, something came over the link lately, and the member
says that something of this one came. The last condition is there because a link may carry one way
only: without it two members would never agree about which of them is gone.

A member that others see and this one does not is *missed*. Members tell each other whom they miss,
and all of them give groups only to coordinators that miss nobody, because entries go from the
coordinator to each member directly. If every member misses somebody, one of them coordinates
everything (`weights`). Being missed begins late and ends late, so that a link that comes and goes
does not move groups each time. docs/cluster.md, "Half-cut networks".
"""

from typing import TYPE_CHECKING

from mdserver.core.text import safe_text
from mdserver.limits import (
    MEMBER_NAME_CHARS_MAX,
    MISSED_AFTER_SUSPICIONS,
    MISSED_NEW_AFTER_SUSPICIONS,
    MISSED_UNTIL_SUSPICIONS,
    NS_PER_S,
    PEER_FORGOTTEN_S,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mdserver.cluster.messages import Heartbeat, Hello, LedGroup, MembersListed
    from mdserver.cluster.seeds import Seeds
    from mdserver.cluster.settings import ClusterSettings


class Peer:
    """Another member, as it describes itself (`messages.Heartbeat`, `messages.Hello`).

    `up`: there is a link; `greeted`: it said Hello on it; `heard`: when something last came from
    it (ns). `incarnation` is that of its present start, and `newest` the newest that it had when
    it said that others rely on it: one that was lost before anybody relied on it is none.
    `promised_at_first` is what it had promised, by group, when it said so first to this start of
    this member; a later link does not change it. None: it has not said so, or nobody relied on it
    yet; empty: it is of a version that does not say so. `hears`
    and `not_voting` are None until its first heartbeat on the link: until then
    nothing is known of them, which is not the same as an empty list.
    """

    __slots__ = (
        "admitted",
        "behind",
        "client",
        "follows",
        "forgets",
        "greeted",
        "heard",
        "hears",
        "incarnation",
        "known",
        "leads",
        "list_number",
        "may_name",
        "misses",
        "name",
        "newest",
        "next_seeds",
        "not_voting",
        "promised",
        "promised_at_first",
        "ready",
        "record_lost",
        "relists",
        "sees",
        "standing_known",
        "start",
        "takes_part",
        "unverified",
        "unwritten",
        "up",
        "weight",
    )

    def __init__(self) -> None:
        self.up = False
        self.heard = 0
        self.incarnation = 0
        self.newest = 0
        self.client = ""
        self.name = ""
        self.known: dict[str, int] = {}
        self.relists = False
        self.promised_at_first: Sequence[int] | None = None
        self.forget()

    def forget(self) -> None:
        """Forget what it said of itself: a new link begins with a new description."""
        self.greeted = False
        self.forgets = False
        self.ready = False
        self.admitted = False
        self.standing_known = False
        self.record_lost = False
        self.weight = 1
        self.promised = 0
        self.not_voting: list[int] | None = None
        self.leads: dict[int, LedGroup] = {}
        self.hears: Sequence[str] | None = None
        self.sees: Sequence[str] = ()
        self.misses: Sequence[str] = ()
        self.follows = False
        self.unverified = False
        self.behind: int | None = None
        self.start = 0
        self.list_number = 0  # of none: it has not said so
        self.next_seeds: tuple[str, ...] = ()
        self.takes_part = False
        self.unwritten = False
        self.may_name = False


class Membership:
    """Remembers all other members: the configured ones in their order, then as they came.

    `listed` are the configured ones, with this member; the others are forgotten some time after
    they went. `moved`: those that are at another address than the one that is their name -> that
    address. `joined`: this member serves clients; `weight`: its share of the groups, 0 while it
    is drained. `_unseen`: members that others see and this one does not -> since when (ns);
    `_missed`: those it misses -> until when it says so (ns); `_known`: those it saw, for as long as
    anybody sees them.
    """

    __slots__ = (
        "_known",
        "_missed",
        "_suspect",
        "_unseen",
        "joined",
        "listed",
        "me",
        "moved",
        "peers",
        "seeds",
        "weight",
    )

    def __init__(self, settings: "ClusterSettings", seeds: "Seeds") -> None:
        self.me = settings.me
        self.seeds = seeds
        self.joined = False
        self.weight = 0 if settings.learner else 1
        self._suspect = settings.suspect
        self.listed = dict.fromkeys((*seeds.names, *settings.members, self.me))
        self.moved: Mapping[str, str] = settings.moved
        self.peers = {name: Peer() for name in self.listed if name != self.me}
        self._unseen: dict[str, int] = {}
        self._missed: dict[str, int] = {}
        self._known: dict[str, None] = {}

    def relist(self, listed: "MembersListed") -> None:
        """Take a new list of members; those that are not in it any more are forgotten once gone.

        The seeds are not taken from it: who votes does not change while a member runs.
        """
        self.listed = dict.fromkeys((*self.seeds.names, *listed.members, self.me))
        self.moved = dict(listed.moved)
        for name in self.listed:
            if name != self.me and name not in self.peers:
                self.peers[name] = Peer()

    def seat(self) -> list[str]:
        """Know the seeds of a new list; return those of whom nothing was known."""
        found = [seed for seed in self.seeds.others if seed not in self.peers]
        for name in found:
            self.peers[name] = Peer()
        self.listed = dict.fromkeys((*self.seeds.names, *self.listed))
        return found

    def up(self, name: str, now: int) -> None:
        """Note a new link; its Hello will say what the member is."""
        peer = self.peers.setdefault(name, Peer())
        peer.forget()
        peer.up = True
        peer.heard = now

    def down(self, name: str) -> None:
        """Note that a link is gone."""
        peer = self.peers[name]
        peer.up = False
        peer.forget()

    def stranger(self, name: str) -> bool:
        """Return whether a member is in no list, and there is no link to it."""
        peer = self.peers.get(name)
        return name not in self.listed and (peer is None or not peer.up)

    def forget_gone(self, now: int) -> None:
        """Forget members beyond the list that went long ago."""
        if len(self.peers) < len(self.listed):
            return
        gone = [
            name
            for name, peer in self.peers.items()
            if self.stranger(name) and peer.heard + PEER_FORGOTTEN_S * NS_PER_S <= now
        ]
        for name in gone:
            del self.peers[name]

    def hello(self, name: str, hello: "Hello") -> bool:
        """Note who a member is; return False for an incarnation older than one that was relied on.

        A member that lost its vote record counts its starts from 1 again. It is let in all the
        same, so that it learns what is known of it, and takes a newer incarnation.
        """
        peer = self.peers[name]
        if hello.incarnation < peer.newest and hello.admitted:
            return False
        peer.greeted = True
        peer.forgets = hello.forgets
        peer.relists = hello.relists
        peer.incarnation = hello.incarnation
        peer.start = hello.start
        self._admit(peer, hello.admitted)
        peer.client = hello.client
        peer.name = safe_text(hello.name, MEMBER_NAME_CHARS_MAX)
        peer.known = hello.known
        return True

    def _admit(self, peer: Peer, admitted: bool) -> None:
        """Note whether others rely on a member, which makes its incarnation one that counts."""
        peer.admitted = admitted
        if admitted:
            peer.newest = max(peer.incarnation, peer.newest)

    @property
    def known_incarnation(self) -> int:
        """Return the newest incarnation of this member that others know; 0 if they know none."""
        return max((peer.known.get(self.me, 0) for peer in self.peers.values()), default=0)

    def all_forget(self, linked: "Sequence[str]", *, seeds: bool) -> bool:
        """Return whether all members that are linked, and all `seeds`, know what forgets subjects.

        A member of an earlier version would not raise the floor, and as a coordinator would give
        numbers a second time. A seed that is away may be of one.
        """
        others = dict.fromkeys((*self.seeds.names, *linked) if seeds else linked)
        return all(self.peers[name].forgets for name in others if name != self.me)

    def all_relist(self, linked: "Sequence[str]", seeds: "Sequence[str]") -> bool:
        """Return whether all members that are linked, and these seeds, know that lists change.

        A member of an earlier version would count majorities by the first list. What a member said
        that is away now still counts: once a list was named it is refused as another version.
        """
        others = dict.fromkeys((*linked, *seeds))
        return all(
            name in self.peers and self.peers[name].relists for name in others if name != self.me
        )

    def heartbeat(self, name: str, heartbeat: "Heartbeat") -> bool:
        """Note what a member says of itself; return whether it misses others than before."""
        peer = self.peers[name]
        changed = list(peer.misses) != list(heartbeat.misses)
        peer.ready = heartbeat.ready
        self._admit(peer, heartbeat.admitted)
        peer.standing_known = heartbeat.standing_known
        peer.record_lost = heartbeat.record_lost
        peer.weight = heartbeat.weight
        peer.promised = heartbeat.promised
        peer.not_voting = heartbeat.not_voting
        peer.hears = heartbeat.hears
        peer.sees = heartbeat.sees
        peer.misses = heartbeat.misses
        peer.follows = heartbeat.follows
        peer.unverified = heartbeat.unverified
        peer.behind = heartbeat.behind
        peer.list_number = heartbeat.list_number
        peer.next_seeds = tuple(heartbeat.next_seeds)
        peer.takes_part = heartbeat.takes_part
        peer.unwritten = heartbeat.unwritten
        peer.may_name = heartbeat.may_name
        peer.leads = {led.group: led for led in heartbeat.leads}
        self._note_promises(peer, heartbeat)
        return changed

    def _note_promises(self, peer: Peer, heartbeat: "Heartbeat") -> None:
        """Note what a seed had promised when it said so first.

        What a seed says on which nobody relies may lack what it promised before it lost its record.
        """
        said = () if heartbeat.promises is None else heartbeat.promises
        of_earlier_version = heartbeat.promises is None
        if peer.promised_at_first is None and heartbeat.admitted and (said or of_earlier_version):
            peer.promised_at_first = said

    @property
    def all_serve(self) -> bool:
        """Return whether all members that are linked serve clients."""
        return all(peer.ready for peer in self.peers.values() if peer.up)

    def none_newer(self, group: int, epoch: int, here: int | None) -> bool:
        """Return whether no epoch of a group newer than this one was active as this member started.

        That is certain once a majority of seeds said, after the start, that they have promised none
        (spec: `Delivery!Hear`). `here` is what this member promised, None if it is no seed that
        others rely on. A seed of an earlier version cannot say so, and counts as if it did: a
        cluster would otherwise take no members back while it is upgraded.
        """
        older = 0
        for seed in self.seeds.names:
            if seed == self.me:
                older += here is not None and here <= epoch
                continue
            promised = self.peers[seed].promised_at_first
            if promised is not None:
                older += max(promised[group : group + 1], default=0) <= epoch
        return older >= self.seeds.majority

    def linked(self) -> tuple[str, ...]:
        """Return the members that can be spoken to."""
        return tuple(name for name, peer in self.peers.items() if peer.up)

    def alive(self, name: str, now: int) -> bool:
        """Return whether a member is in sight; this one always is.

        Both directions count: a link that carries one way is none. Before its first heartbeat a
        member has not had a chance to say whom it hears.
        """
        peer = self.peers.get(name)
        if peer is None:
            return name == self.me
        heard = peer.up and peer.heard + self._suspect > now
        return heard and (peer.hears is None or self.me in peer.hears)

    def hears(self, now: int) -> list[str]:
        """Return the members from which something came within the last suspicion time."""
        return [
            name
            for name, peer in self.peers.items()
            if peer.up and peer.heard + self._suspect > now
        ]

    def sees(self, now: int) -> list[str]:
        """Return the members in sight, without this one."""
        return [name for name in self.peers if self.alive(name, now)]

    def reported(self, now: int) -> dict[str, None]:
        """Return the members that others in sight see."""
        found: dict[str, None] = {}
        for name, peer in self.peers.items():
            if peer.sees and self.alive(name, now):
                found.update(dict.fromkeys(peer.sees))
        found.pop(self.me, None)
        return found

    def vouched(self, hidden: "Sequence[str]", now: int) -> bool:
        """Return whether a member in sight follows all groups and sees one of these members."""
        return any(
            peer.follows and self.alive(name, now) and any(one in peer.sees for one in hidden)
            for name, peer in self.peers.items()
        )

    @property
    def misses(self) -> list[str]:
        """Return the members that others see and this one does not, for a while already.

        A member that was missed is named for a while longer, so that a link that comes and goes
        does not move groups each time.
        """
        return list(self._missed)

    def look(self, now: int) -> bool:
        """Note the members that this one misses; return whether there are more than before."""
        reported = self.reported(now)
        for gone in [name for name in self._known if name not in reported]:
            if not self.alive(gone, now):
                del self._known[gone]
        self._unseen = {
            name: self._unseen.get(name, now) for name in reported if not self.alive(name, now)
        }
        self._missed = {
            name: until for name, until in self._missed.items() if until > now and name in reported
        }
        before = len(self._missed)
        for name, since in self._unseen.items():
            # A member that was never in sight may have just started, and needs time to dial.
            patience = (
                MISSED_AFTER_SUSPICIONS if name in self._known else MISSED_NEW_AFTER_SUSPICIONS
            )
            if since + patience * self._suspect <= now:
                self._missed[name] = now + MISSED_UNTIL_SUSPICIONS * self._suspect
        self._known.update(dict.fromkeys(self.sees(now)))
        return len(self._missed) > before

    def quorum(self, now: int, seeds: "Sequence[str] | None" = None) -> bool:
        """Return whether a majority of these seeds is in sight, by default of the present ones."""
        names = self.seeds.names if seeds is None else seeds
        return 2 * sum([self.alive(seed, now) for seed in names]) > len(names)

    def voting(self, group: int, now: int, *, here: bool) -> list[str]:
        """Return the seeds in sight that vote in a group; `here`: this member does."""
        found: list[str] = []
        for seed in self.seeds.names:
            if seed == self.me:
                votes = here
            else:
                peer = self.peers[seed]
                away = peer.not_voting if self.alive(seed, now) and self._seated(peer) else None
                votes = away is not None and group not in away
            if votes:
                found.append(seed)
        return found

    def _seated(self, peer: Peer) -> bool:
        """Return whether a seed takes part: a new one names no groups before it has begun to."""
        return peer.takes_part or self.seeds.number == 1

    def without_majority(self, groups: int, away: list[int], now: int) -> int:
        """Count the groups in which no majority of seeds votes."""
        whole = sum(
            away == []
            if seed == self.me
            else self.alive(seed, now)
            and self.peers[seed].not_voting == []
            and self._seated(self.peers[seed])
            for seed in self.seeds.names
        )
        if 2 * whole > len(self.seeds.names):
            return 0
        return sum(
            2 * len(self.voting(group, now, here=group not in away)) <= len(self.seeds.names)
            for group in range(groups)
        )

    def weights(self, now: int) -> dict[str, int]:
        """Return the members that may coordinate, with their shares.

        The share of members that miss others is 0: their groups would not reach all members. If all
        of them miss somebody, one coordinates: the one that misses fewest seeds, then fewest
        members. Two members may get different results for a moment: that costs an election, and no
        message, since votes do not ask for weights.
        """
        found = {self.me: self.weight} if self.joined else {}
        missing = {self.me: self._missing(self._missed)}
        for name, peer in self.peers.items():
            if peer.ready and self.alive(name, now):
                found[name] = peer.weight
                missing[name] = self._missing(peer.misses)
        able = [name for name, share in found.items() if share]
        chosen = [name for name in able if missing[name] == (0, 0)]
        if able and not chosen:
            chosen = [min(able, key=lambda name: (missing[name], name))]
        return {name: share if name in chosen else 0 for name, share in found.items()}

    def _missing(self, names: "Iterable[str]") -> tuple[int, int]:
        """Count how many seeds and how many members these are."""
        missed = list(names)
        return sum(name in self.seeds.names for name in missed), len(missed)
