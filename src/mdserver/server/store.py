"""Opens the journal and the vote file at a start, and decides what of the logs can be used.

The question is the same for a single server and for a seed: may something be missing that was
acknowledged? The answers differ, because a seed has others to ask:

- A single server uses all that it finds, up to the first damage. If the end of its log may be
  missing (`_gap`), it renames the history: clients then learn that their positions do not continue
  what they have, instead of waiting for messages that nobody has.
- A seed uses its log only if it is certainly complete (`_misfit`). Otherwise it sets the log aside
  and gets its logs from the other seeds. A log that lacks an entry which the seed acknowledged
  could make a majority forget a committed message (docs/cluster.md, "Older copies").

The vote file and the log of a seed check each other: both record the seed's incarnations, in a
fixed order (`_begin`). So an older copy of one of them, from a backup for instance, is noticed.
"""

import random
import time
from pathlib import Path

import attrs
import structlog
from attrs import define

from mdserver.cluster.kafka_node import KafkaNode
from mdserver.cluster.node import Node
from mdserver.cluster.settings import alone, with_workers
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.cluster.wal import AnyWalEntry, WalBegun, WalRenamed
from mdserver.cluster.wal_replay import WalError
from mdserver.config import Config, JournalFsync, KafkaAway
from mdserver.errors import StartError
from mdserver.journal.rows import written
from mdserver.journal.segments import JournalError, StreamWriter
from mdserver.journal.wal_lines import LOG, Replacements, WalFound, cut, line_of, read
from mdserver.journal.writer import JournalWriter
from mdserver.server.clock import process_clock
from mdserver.server.disk.journalling import STREAMS, Journal
from mdserver.server.disk.wal_writer import MESSAGES, WalWriter, ends_of, tail_of
from mdserver.server.engine import Engine
from mdserver.server.log_identity import check_begun, check_log
from mdserver.server.member import Member, commits
from mdserver.server.ownership import give_folder, give_tree, unusable_folder
from mdserver.server.privileges import acting_as
from mdserver.server.publisher_secret import publisher_secret
from mdserver.server.settings import broker_settings, worker_count, writer_settings

log = structlog.get_logger()
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""A file that has the same text until the machine starts again (Linux, random(4))."""


@define
class Store:
    """An opened journal, and what was found in it.

    `begun` is the entry with which this run begins its part of the log, None if the member writes
    no log; with `has_begun` it is on the disk already. `wal` has the entries that can be used.
    `renewed` gives them a new history id, if they need one.
    """

    config: Config
    writer: JournalWriter
    begun: WalBegun | None = None
    wal: list[AnyWalEntry] = attrs.Factory(list)
    has_begun: bool = False
    renewed: WalRenamed | None = None
    replacements: Replacements = attrs.Factory(Replacements)

    def journal(self, node: Node, engine: Engine) -> Journal:
        """Make the journal that the running server writes."""
        wal = None
        if self.begun is not None:
            wal = WalWriter(
                self.writer,
                engine,
                self.begun,
                self.config.journal_fsync,
                begins=not self.has_begun,
                renewed=self.renewed,
                replacements=self.replacements,
            )
        # Nobody gives a single server again what its log does not hold.
        ends = {} if wal is None or node.settings.single else ends_of(node)
        rows = written(self.writer.stream(MESSAGES).sealed, tail_of(node), ends)
        return Journal(self.writer, self.config.node_name, engine, wal, rows)


def open_store(config: Config, member: Member | None) -> Store | None:
    """Open and read the journal, and store the vote record; return None if the journal is off.

    Raises StartError and JournalError if one of them cannot be used. If it belongs to another
    member or cluster, nothing was written.
    """
    check_log(config, member)
    _give_folders(config, member)
    with acting_as(config.run_as_user):
        return _opened(config, member)


def _give_folders(config: Config, member: Member | None) -> None:
    """Give the folders that the server writes to the user that it runs as. Raises StartError."""
    user = config.run_as_user
    try:
        if config.journal:
            name, folder = "JournalFolder", config.journal_folder
            give_tree(folder, user)
        if member is not None and member.file is not None:
            path = member.file.path
            name, folder = "ClusterMemberCoordinationFolder", path.parent
            give_folder(folder, user, (f"{path.stem}.*",))
    except OSError as error:
        raise unusable_folder(name, folder, error, user) from None


def _opened(config: Config, member: Member | None) -> Store | None:
    """Open the journal and store the vote record, with the rights that the server will have."""
    if not config.journal:
        if member is not None:
            member.begin()
        return None
    wal = writes_wal(config, member)
    streams = (*STREAMS, LOG) if wal else STREAMS
    last = LOG if wal else ""
    # A member that writes a log takes publications no faster than its disk does. These streams
    # are therefore bounded already, and none of their lines is dropped.
    kept = (MESSAGES, LOG) if wal else ()
    # If the disk of a single server refuses an entry, no other disk has it. So the server can tell
    # its publisher for certain that the publication failed.
    withdraws = wal and member is None
    try:
        writer = JournalWriter(
            config.journal_folder,
            streams,
            writer_settings(config),
            last,
            kept,
            withdraws,
            process_clock(),
        )
    except JournalError as error:
        cause = error.__cause__
        # A call on a descriptor names no file: then the error of the journal knows more.
        if isinstance(cause, OSError) and not isinstance(cause, BlockingIOError) and cause.filename:
            raise _unusable(config, cause) from None
        raise
    if member is not None:
        # Before `_begin` writes to the log, which must never have a newer incarnation than the
        # vote file.
        member.begin()
    for stream, repair in writer.repairs.items():
        log.warning(
            "journal repaired",
            stream=stream,
            torn_lines=repair.torn_lines,
            torn_bytes=repair.torn_bytes,
        )
    store = Store(config, writer)
    if wal:
        try:
            if member is None:
                _find_alone(store)
            else:
                _find_seed(store, member)
        except OSError as error:
            raise _unusable(config, error) from None
    return store


def _unusable(config: Config, error: OSError) -> StartError:
    folder = config.journal_folder
    return unusable_folder("JournalFolder", folder, error, config.run_as_user)


def writes_wal(config: Config, member: Member | None) -> bool:
    """Return whether this server writes a write-ahead log.

    A single server does if it has a journal. A seed does if it acknowledges only what is on its
    disk (`JournalFsync = commit`). With another setting its log could lack entries that it had
    acknowledged, and no start could tell; so the log would be of no use.
    """
    if not config.journal:
        return False
    if member is None:
        return True
    return member.votes_here and commits(config)


def build_node(
    config: Config, member: Member | None, store: Store | None, partitioner: str | None = None
) -> Node:
    """Make the node, with the logs that the journal holds. Raises StartError.

    With a `partitioner` its log is Kafka.
    """
    cluster = alone(config.node_name) if member is None else member.cluster
    if worker_count(config):
        cluster = with_workers(cluster)
    votes = None if member is None else member.votes
    rng = random.SystemRandom()
    with acting_as(config.run_as_user):
        secret = publisher_secret(config)
    broker = attrs.evolve(broker_settings(config), publisher_secret=secret)
    if partitioner is not None:
        holds = config.kafka_away is KafkaAway.HOLD
        return KafkaNode(broker, rng, cluster, partitioner, holds=holds)
    if store is None or store.begun is None:
        return Node(broker, rng, cluster, votes)
    if votes is None:
        none = [Vote() for _ in range(config.cluster_subject_groups)]
        votes = VoteRecord(cluster.me, "", store.begun.incarnation, False, none, {})
    # Even if the policy syncs nothing: a result that a client got has to survive the end of the
    # process, so acks wait until the operating system has the entries.
    cluster = attrs.evolve(cluster, writes_wal=True, acks_wait_for_wal=True)
    began = time.monotonic()
    try:
        node = Node(broker, rng, cluster, votes, store.wal, time.time_ns())
    except WalError as error:
        raise StartError(
            f"JournalFolder = {config.journal_folder}: the stream `{LOG}` cannot be used: {error}. "
            "Move its folder away to start without what it holds"
        ) from None
    if store.wal:
        counts = node.broker.counts()
        log.info(
            "journal restored",
            subjects=counts.subjects,
            messages=counts.cached_messages,
            records=len(store.wal),
            history=node.history,
            seconds=round(time.monotonic() - began, 3),
        )
    store.wal = []
    return node


def _find_seed(store: Store, member: Member) -> None:
    """Take over the log of a seed, if it certainly has all that the seed acknowledged."""
    stream, votes = store.writer.stream(LOG), member.votes
    found = read(stream.sealed)
    if found.begun is not None:
        check_begun(store.config, member, found.begun)
    reason = _misfit(stream, votes, found)
    if reason is not None:
        if stream.sealed:
            aside = stream.set_aside(stream.sealed)
            log.warning(
                "journal not used: this seed takes its logs from others",
                reason=reason,
                kept_in=str(aside),
            )
        found = WalFound([], None, 0)
    store.wal = found.entries
    store.replacements = Replacements(found.entries)
    store.begun = WalBegun(
        member.cluster.me,
        votes.cluster,
        store.config.cluster_subject_groups,
        votes.incarnation,
        boot_id(),
        True,
        list(member.cluster.seeds),
    )
    _begin(store, member)


def _begin(store: Store, member: Member) -> None:
    """Record in the log and then in the vote file that this incarnation has begun.

    The order matters. The vote file has had this incarnation since `Member.begin`, so the log never
    has a newer one than the vote file, unless the vote file is an older copy. And `votes.logged` is
    stored only when the log has the incarnation, so the log never has an older one than
    `votes.logged`, unless the log is an older copy. `_misfit` relies on both.
    """
    stream, votes = store.writer.stream(LOG), member.votes
    assert store.begun is not None
    assert member.file is not None, "a seed has a vote file"
    try:
        stream.append([line_of(store.begun)])
        stream.sync()
    except OSError as error:
        # A full disk does not make the log unusable. The journal's thread writes the line before
        # any other as soon as there is room.
        log.warning("journal not begun yet", reason=error.strerror)
    else:
        store.has_begun = True
        votes.logged = votes.incarnation
        stream.end_gap()  # a log with a gap was set aside, so this one has none
    votes.recorded, votes.log = True, stream.identifier
    member.file.begin(votes)


def _misfit(stream: StreamWriter, votes: VoteRecord, found: WalFound) -> str | None:
    """Return why a seed cannot use its log, None if it can (docs/cluster.md, "Older copies").

    If the vote file is an older copy, the seed also loses its vote: it may have forgotten promises.
    """
    before = votes.incarnation - 1
    begun = 0 if found.begun is None else found.begun.incarnation
    if begun > before and votes.admitted:
        votes.admitted = False
        votes.incarnation = begun + 1
        return (
            f"the vote file is an older copy: it knows of start {before} of this seed, and the log"
            f" of start {begun}. It may not vote until it is taken back with `mdserver cluster"
            f" readmit {votes.member}`"
        )
    if not votes.recorded:
        return "this seed ran without it"
    if found.damage is not None:
        return str(found.damage)
    missing = _end_missing(stream)
    if missing is not None:
        return missing
    if begun < votes.logged:
        return (
            f"it is an older copy: the last start that it knows of is {begun}, and the vote file"
            f" says that {votes.logged} wrote to it"
        )
    return None


def _end_missing(stream: StreamWriter) -> str | None:
    """Return what is missing at the end of a stream, None if nothing is known to be missing."""
    if stream.ends_at:
        return f"its last segment, {stream.ends_at}, is missing"
    if stream.gap:
        return "its end is missing: the disk did not take it (JournalDiskFull = continue)"
    return None


def _find_alone(store: Store) -> None:
    """Take over the log of a single server, under a new history id if its end may be missing."""
    config, stream = store.config, store.writer.stream(LOG)
    found = read(stream.sealed)
    if found.begun is not None:
        check_begun(config, None, found.begun)
    reason = _gap(found, stream, config.cluster_subject_groups)
    if found.damage is not None:
        aside = cut(stream, found.damage)
        log.warning("journal damaged: what follows is set aside", kept_in=str(aside))
    store.wal = found.entries
    if found.entries and reason is not None:
        history = f"{random.SystemRandom().getrandbits(64):016x}"
        log.warning("journal not whole: clients are told of a new history", reason=reason)
        store.renewed = WalRenamed(history)
        store.wal.append(store.renewed)
    incarnation = 1 if found.begun is None else found.begun.incarnation + 1
    synced = config.journal_fsync is JournalFsync.COMMIT
    groups = config.cluster_subject_groups
    store.begun = WalBegun(config.node_name, "", groups, incarnation, boot_id(), synced)


def _gap(found: WalFound, stream: StreamWriter, groups: int) -> str | None:
    """Return why acknowledged entries may be missing, None if certainly none is."""
    if found.damage is not None:
        return str(found.damage)
    missing = _end_missing(stream)
    if missing is not None:
        return missing
    begun = found.begun
    if begun is None or found.groups < groups:
        return f"it holds {found.groups} of {groups} subject groups"
    boot = boot_id()
    # Lines that were not synced survive the end of the process, but not that of the machine.
    if not found.ended and not begun.synced and (not boot or boot != begun.boot):
        return "the machine stopped before everything was on the disk"
    return None


def boot_id() -> str:
    """Return the identifier of this run of the machine, empty if the system has none."""
    try:
        return BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
