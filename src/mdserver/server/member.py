"""The place of a server in its cluster: settings, vote record and links to other members."""

import time
from collections.abc import Mapping, Sequence

import structlog
import trio
from attrs import Factory, define, frozen

from mdserver.cluster.admin import DRAINED
from mdserver.cluster.identity import Identity
from mdserver.cluster.messages import MembersListed
from mdserver.cluster.node import TICK, Node
from mdserver.cluster.settings import ClusterSettings
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.config import Config, DeliveryMode, JournalFsync, values
from mdserver.config.values import Address
from mdserver.core.inputs import TimerDue
from mdserver.core.outputs import Log
from mdserver.errors import ConfigError
from mdserver.limits import DRAIN_HAND_OVER_S, NS_PER_MS
from mdserver.server import cluster_log
from mdserver.server.disk.votes import VoteFile, VoteWriter
from mdserver.server.engine import Engine
from mdserver.server.logger import Logger
from mdserver.server.monitor.commands import OperatorCommands
from mdserver.server.peers.mutual import MutualIdentity
from mdserver.server.peers.peers import Peers, PeerSettings
from mdserver.server.tls import KeyStore

log = structlog.get_logger()


@define
class Member:
    """This server's place in its cluster.

    `votes` is the vote record of this start. `file` is None in Standard mode, which has no votes.
    `recorded` says that the previous start wrote a write-ahead log.
    """

    cluster: ClusterSettings
    peers: PeerSettings
    votes: VoteRecord
    file: VoteFile | None
    identity: Identity
    recorded: bool = False
    _drained: trio.Event = Factory(trio.Event)

    @property
    def seeds(self) -> tuple[str, ...]:
        """Return the seeds at this start: those of the vote file, if an operator changed them."""
        return self.votes.present(self.cluster.seeds)

    @property
    def votes_here(self) -> bool:
        """Return whether this member is a seed at its start."""
        return self.cluster.me in self.seeds

    def take(self, line: Log) -> None:
        """Write an event of the cluster to the server log."""
        if line.stream == cluster_log.STREAM and line.name == DRAINED:
            self._drained.set()
        cluster_log.write(line)

    def begin(self) -> None:
        """Store the vote record of this start. Raises StartError."""
        if self.file is None:
            return
        if self.seeds != self.cluster.seeds:
            listed, present = list(self.cluster.seeds), list(self.seeds)
            log.info("seeds by order", number=self.votes.number, seeds=present, listed=listed)
        damage = self.file.damage
        aside = self.file.begin(self.votes)
        if damage is not None:
            log.error("vote file damaged", problem=damage, kept_as=str(aside))

    async def hand_over(self, commands: OperatorCommands) -> None:
        """Have other members coordinate this one's groups; wait at most `DRAIN_HAND_OVER_S`."""
        self._drained = trio.Event()
        commands("drain", "", True)
        with trio.move_on_after(DRAIN_HAND_OVER_S):
            await self._drained.wait()

    @property
    def identities(self) -> list[MutualIdentity]:
        """The certificate for links to other members, if there is one."""
        return [] if self.peers.identity is None else [self.peers.identity]

    def check_list(self, config: Config) -> None:
        """Raise ConfigError if a configuration has other first seeds than this member runs with.

        Majorities of two lists of seeds need not have a seed in common, so what one of them has
        acknowledged could be unknown to the other: seeds change by orders only, one at a time.
        And a member that began alone is a server without links and votes for as long as it runs,
        whoever is listed later.
        """
        listed = listing(config)
        here, there = ", ".join(self.cluster.seeds), ", ".join(listed.seeds)
        if here != there:
            raise ConfigError(
                f"ClusterMembers and ClusterSeedMemberCount: the seeds are {there}, and this member"
                f" runs with {here}. The first seeds of a cluster, their order and their number"
                " stay in the list: for a machine at another address write NAME@ADDRESS, with other"
                " members more or fewer set ClusterSeedMemberCount, and have `mdserver cluster"
                " add-seed` and `remove-seed` change who votes"
            )
        if self.cluster.single and listed.names != self.cluster.members:
            raise ConfigError(
                "ClusterMembers: a cluster of one member takes others only after a restart"
            )

    def binds_as_listed(self, config: Config) -> bool:
        """Return whether this member listens where a list says that others find it.

        What it binds is fixed at its start, and with ClusterMemberBind it is not in the list.
        """
        listen = self.peers.listen
        listed = listing(config).moved.get(str(listen), listen)
        return config.cluster_member_bind is not None or listed == self.peers.bind

    def connect(self, node: Node, engine: Engine, log: Logger) -> "Links":
        """Make the links of this member to the others and to its vote file; `run` them."""
        file = self.file
        writer = None if file is None else VoteWriter(file, engine)
        return Links(node, engine, Peers(self.peers, engine, log), writer)


@frozen
class Listing:
    """A list of members, as configured; `seeds` is whoever votes by it.

    `members` are their names, and `moved` says where those are found that are at another address.
    """

    members: tuple[Address, ...]
    moved: Mapping[str, Address]
    seeds: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the members are called."""
        return tuple(map(str, self.members))

    @property
    def told(self) -> dict[str, str]:
        """Return `moved` as text."""
        return {name: str(address) for name, address in self.moved.items()}


def listing(config: Config) -> Listing:
    """Return the list of members that a configuration has."""
    places = config.cluster_members
    names = tuple(str(place.name) for place in places)
    guaranteed = config.cluster_delivery_mode is DeliveryMode.GUARANTEED
    return Listing(
        tuple(place.name for place in places),
        {str(place.name): place.at for place in places if place.at != place.name},
        ClusterSettings("", names, config.cluster_seed_member_count, guaranteed).seeds,
    )


def with_seeds(listed: tuple[Address, ...], seeds: Sequence[str]) -> tuple[Address, ...]:
    """Return the members to dial: those that are listed, and seeds by order that are not."""
    parse = values.address(0).parse
    return tuple(dict.fromkeys((*listed, *map(parse, seeds))))


@frozen
class Links:
    """The tasks of a member: the links to others, and the writer of its vote file, if any."""

    node: Node
    engine: Engine
    peers: Peers
    votes: VoteWriter | None

    def relist(self, config: Config) -> None:
        """Take the list of members of a configuration that `Member.check_list` has passed."""
        listed = listing(config)
        self.engine.dispatch(MembersListed(listed.names, listed.told))
        self.peers.relist(with_seeds(listed.members, self.node.seeds.names), listed.moved)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the links and the vote file until cancelled. Raises StartError."""
        async with trio.open_nursery() as nursery:
            if self.votes is not None:
                nursery.start_soon(self.votes.run)
            await nursery.start(self.peers.run)
            self.engine.dispatch(TimerDue(TICK))
            nursery.start_soon(cluster_log.watch_service, self.node)
            task_status.started()


def open_member(config: Config, *, trace: bool = False) -> Member | None:
    """Read the settings and files of a cluster member; return None for a single server.

    The vote record is that of this start and is not stored yet (`Member.begin`). With `trace` the
    node reports its steps. Raises ConfigError and StartError.
    """
    if not config.cluster_members:
        return None
    listen = config.cluster_member_listen
    if listen is None or listen.host == "*":
        raise ConfigError("ClusterMemberListen is missing: this member's own address, not `*`")
    if not config.cluster_password:
        raise ConfigError("ClusterPassword is missing: members prove that they know it")
    listed = listing(config)
    mode = config.cluster_delivery_mode
    cluster = ClusterSettings(
        str(listen),
        listed.names,
        config.cluster_seed_member_count,
        mode is DeliveryMode.GUARANTEED,
        config.client_address or str(config.listen[0]),
        trace=trace,
        wants_wal=mode is DeliveryMode.GUARANTEED and commits(config),
        name=config.node_name,
        moved=listed.told,
    )
    identity = Identity(str(listen), cluster.seeds, config.cluster_subject_groups)
    links = load_identity(config)
    file = VoteFile(config.cluster_member_coordination_folder, str(listen))
    if cluster.guaranteed:
        votes = read_vote_record(identity, file)
    else:
        file.refuse_another_mode()
        # Nothing is stored in this mode. The incarnation only has to differ from those of other
        # starts, so the time is good enough.
        started = time.time_ns() // NS_PER_MS
        votes = VoteRecord(str(listen), "", started, False, [Vote()] * identity.groups, {})
    peers = PeerSettings(
        listen=listen,
        bind=config.cluster_member_bind or listed.moved.get(str(listen), listen),
        members=with_seeds(listed.members, votes.present(cluster.seeds)),
        moved=listed.moved,
        seeds=cluster.seeds,
        groups=identity.groups,
        mode=mode.value,
        password=config.cluster_password,
        identity=links,
    )
    recorded = votes.recorded
    votes.recorded = recorded and commits(config)
    voting = file if cluster.guaranteed else None
    return Member(cluster, peers, votes, voting, identity, recorded)


def commits(config: Config) -> bool:
    """Return whether seeds acknowledge only what is on their disks, and so write their logs."""
    return config.journal and config.journal_fsync is JournalFsync.COMMIT


def read_vote_record(identity: Identity, file: VoteFile) -> VoteRecord:
    """Return the record of this start. Raises ConfigError and StartError."""
    votes = file.read(identity)
    if len(identity.seeds) % 2 == 0:
        raise ConfigError(
            f"{len(identity.seeds)} seeds are no odd number: list more ClusterMembers, or set "
            "ClusterSeedMemberCount"
        )
    return votes


def load_identity(config: Config) -> MutualIdentity | None:
    """Read the certificate for links to other members; return None if links are not encrypted.

    Raises ConfigError if one of the two parameters is missing, StartError if a file cannot be used.
    """
    files, authority = config.cluster_member_key_store, config.cluster_member_certificate_authority
    if not files and authority is None:
        return None
    if not files or authority is None:
        raise ConfigError(
            "ClusterMemberKeyStore and ClusterMemberCertificateAuthority go together: set both, or "
            "none of them"
        )
    return MutualIdentity(KeyStore(*files), authority, config.cipher_list)
