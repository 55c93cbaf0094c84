"""Which members are in sight, and what each says of itself.

Knows no protocol of a group: it remembers what links and heartbeats told, and answers who is alive
at a time. A member is in sight while its link is up and something came over it lately.
"""

from typing import TYPE_CHECKING

from mdserver.limits import NS_PER_S, PEER_FORGOTTEN_S

if TYPE_CHECKING:
    from mdserver.cluster.messages import Heartbeat, Hello, Led
    from mdserver.cluster.settings import ClusterSettings


class Peer:
    """Another member. `heard`: when something last came from it (ns); `greeted`: it said Hello."""

    __slots__ = ("admitted", "away", "client", "greeted", "heard", "incarnation", "known", "leads",
                 "lost", "promised", "ready", "sure", "up", "weight")  # fmt: skip

    def __init__(self) -> None:
        self.up = False
        self.heard = 0
        self.incarnation = 0
        self.client = ""
        self.known: dict[str, int] = {}
        self.forget()

    def forget(self) -> None:
        """Nothing that it said of itself holds any more."""
        self.greeted = False
        self.ready = False
        self.admitted = False
        self.sure = False
        self.lost = False
        self.weight = 1
        self.promised = 0
        self.away: list[int] | None = None
        self.leads: dict[int, Led] = {}


class Membership:
    """All other members, in a fixed order: the configured ones, then as they came.

    `listed` are the configured ones, with this member; the others are forgotten some time after
    they went.
    """

    __slots__ = ("_suspect", "listed", "me", "peers", "seeds")

    def __init__(self, settings: "ClusterSettings") -> None:
        self.me = settings.me
        self.seeds = settings.seeds
        self._suspect = settings.suspect
        self.listed = dict.fromkeys((*settings.members, self.me))
        self.peers = {name: Peer() for name in self.listed if name != self.me}

    def up(self, name: str, now: int) -> None:
        """A link is up; what the member is, its Hello says."""
        peer = self.peers.setdefault(name, Peer())
        peer.forget()
        peer.up = True
        peer.heard = now

    def down(self, name: str) -> None:
        """The link is gone."""
        peer = self.peers[name]
        peer.up = False
        peer.forget()

    def stranger(self, name: str) -> bool:
        """Whether it is in no list, and there is no link to it."""
        peer = self.peers.get(name)
        return name not in self.listed and (peer is None or not peer.up)

    def forget_gone(self, now: int) -> None:
        """Forget members beyond the list that went long ago."""
        if len(self.peers) < len(self.listed):
            return
        gone = [
            name for name, peer in self.peers.items()
            if self.stranger(name) and peer.heard + PEER_FORGOTTEN_S * NS_PER_S <= now
        ]  # fmt: skip
        for name in gone:
            del self.peers[name]

    def hello(self, name: str, hello: "Hello") -> bool:
        """Note who came; False for an incarnation older than one that is known.

        A member that lost its vote record starts counting anew: it is let in so that it can be
        told what is known of it, and comes back under a newer incarnation.
        """
        peer = self.peers[name]
        if hello.incarnation < peer.incarnation and hello.admitted:
            return False
        peer.greeted = True
        peer.incarnation = max(hello.incarnation, peer.incarnation)
        peer.admitted = hello.admitted
        peer.client = hello.client
        peer.known = hello.known
        return True

    def heartbeat(self, name: str, heartbeat: "Heartbeat") -> None:
        """Note what a member says of itself."""
        peer = self.peers[name]
        peer.ready = heartbeat.ready
        peer.admitted = heartbeat.admitted
        peer.sure = heartbeat.sure
        peer.lost = heartbeat.lost
        peer.weight = heartbeat.weight
        peer.promised = heartbeat.promised
        peer.away = heartbeat.away
        peer.leads = {led.group: led for led in heartbeat.leads}

    def linked(self) -> tuple[str, ...]:
        """The members that can be spoken to."""
        return tuple(name for name, peer in self.peers.items() if peer.up)

    def alive(self, name: str, now: int) -> bool:
        """Whether a member is in sight; this one always is."""
        peer = self.peers.get(name)
        if peer is None:
            return name == self.me
        return peer.up and peer.heard + self._suspect > now

    def quorum(self, now: int) -> bool:
        """Whether a majority of seeds is in sight."""
        return 2 * sum(self.alive(seed, now) for seed in self.seeds) > len(self.seeds)

    def voting(self, group: int, away: list[int], now: int) -> list[str]:
        """The seeds in sight that vote in a group; `away` is where this member does not."""
        found: list[str] = []
        for seed in self.seeds:
            if seed == self.me:
                absent: list[int] | None = away
            else:
                absent = self.peers[seed].away if self.alive(seed, now) else None
            if absent is not None and group not in absent:
                found.append(seed)
        return found

    def without_majority(self, groups: int, away: list[int], now: int) -> int:
        """In how many groups no majority of seeds votes."""
        whole = sum(
            self.alive(seed, now) and (away if seed == self.me else self.peers[seed].away) == []
            for seed in self.seeds
        )
        if 2 * whole > len(self.seeds):
            return 0
        return sum(
            2 * len(self.voting(group, away, now)) <= len(self.seeds) for group in range(groups)
        )

    def weights(self, now: int, ready: bool, weight: int) -> dict[str, int]:
        """Who may coordinate, with what share; `ready` and `weight` are this member's."""
        found = {self.me: weight} if ready else {}
        for name, peer in self.peers.items():
            if peer.ready and self.alive(name, now):
                found[name] = peer.weight
        return found
