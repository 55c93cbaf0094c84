"""The position of a streaming job in its source, and the identity of that source.

Spark's own checkpoint knows topics by their names, and the numbers of a journal's segments begin
anew in a folder that was emptied. A topic that was deleted and created again would be read on from
the old offset, and new segments would be taken for archived ones, both without an error. So the
identity of a source is kept beside the checkpoint and compared: the identifiers of the Kafka
cluster and of each topic, or the identifier of a journal's stream.
"""

import contextlib
import fcntl
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from attrs import asdict, evolve, frozen

from mdserver.pipeline.common import leases
from mdserver.pipeline.common.durable import replace_file
from mdserver.pipeline.common.places import RemoteTables, Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.spark_folders import SparkFolders

FOLDER = "_checkpoints"
TOKEN_BYTES = 8
REACHED = ".reached"
PARTITIONS = ".partitions"
TopicPart = tuple[str, str, int]
"""A member, a topic in which it has lines, and a partition."""
COMPACTED = "compacted.json"
"""The file that has the time of each table's last compaction, in seconds since 1970."""
PLACE = "the journal"
"""The part of a source's identity that is the folder of a journal."""

SECOND_TIME = (
    "Receipts, statistics and events that the tables have already then come a second time;"
    " a message stays one row"
)
"""What `--new-source` does to the rows of a journal that was archived before."""


BusyError = leases.BusyError


@frozen
class TopicPartitions:
    """How many partitions a topic has, and from when on (us) subjects may be in others.

    `before` is the number of partitions in which subjects may have been until then, 0 if lines of
    that time are in topics that are no longer read.
    """

    partitions: int
    since_us: int | None
    before: int = 0


@frozen
class StreamCheckpoint:
    """The checkpoint of one stream in a folder of tables.

    `number` counts the sources that the stream had, one after the other; `source` is the identity
    of the present one, an identifier for each of its parts. `token` is a random part of the name of
    Spark's folder, which may be in a place with those of other tables; "" from earlier releases.
    """

    stream: str
    number: int
    source: Mapping[str, str]
    token: str = ""

    @property
    def job(self) -> str:
        """The name under which batches are committed; their numbers begin anew with each source."""
        return f"archive-{self.stream}-{self.number}"

    @property
    def folder(self) -> str:
        """The name of the folder of Spark's part of the checkpoint."""
        return f"{self.stream}-{self.number}" + (f"-{self.token}" if self.token else "")

    def check(self, source: Mapping[str, str]) -> None:
        """Raise PipelineError if a part of the source has another identifier than before."""
        for name, identifier in self.source.items():
            now = source.get(name, "missing")
            if now != identifier and not is_moved(name, self.source):
                raise PipelineError(
                    f"{name} is not the one that was archived before: its id was {identifier} and"
                    f" is {now}. To go on with it from its beginning, give --new-source; what was"
                    " not yet read of the old one is not archived"
                )

    def note(self, tables: Tables, segment: int, mark: str) -> None:
        """Note the last segment that was archived, and the mark of its content."""
        _write(tables, self._read, f"{segment} {mark}\n".encode())

    def noted(self, tables: Tables) -> tuple[int, str] | None:
        """Return the segment and the mark that `note` got last, None before that."""
        found = _content(tables, self._read)
        if found is None:
            return None
        segment, mark = found.decode("ascii").split()
        return int(segment), mark

    def note_reached(self, tables: Tables, reached: Mapping[TopicPart, int]) -> None:
        """Note how far topics are archived: the time (us) of the last line of each member."""
        told = [[*part, us] for part, us in reached.items()]
        _write(tables, self._reached, json.dumps(told).encode())

    def reached(self, tables: Tables) -> dict[TopicPart, int]:
        """Return what `note_reached` noted of this source; nothing if it is damaged."""
        return _topics_reached(tables, self._reached)

    def note_partitions(
        self,
        tables: Tables,
        counts: Mapping[str, int],
        now_us: int,
        first: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Note the numbers of partitions of topics before `note_reached` notes more of them.

        If they are others than before, subjects may be in other partitions from `now_us` on. So
        they may if there is a further topic or another source. An earlier release noted none:
        then `first` is asked for the numbers with which the source began.
        """
        before = _partitions(tables, self._partitions)
        begun = self.number > 1 or bool(before) or bool(self.reached(tables))
        if begun and not before and self.number == 1:
            before = {topic: TopicPartitions(count, None) for topic, count in first().items()}
        most = max((each.partitions for each in before.values()), default=0)
        # If lines were archived and no number was noted, each partition may be an old one.
        unknown = begun and not before and bool(self.reached(tables))
        told = {}
        for topic, count in counts.items():
            known = before.get(topic)
            if known is not None and known.partitions == count:
                told[topic] = known
            elif not begun:
                told[topic] = TopicPartitions(count, None)
            else:
                old = most if known is None else known.partitions
                told[topic] = TopicPartitions(count, now_us, count if unknown else old)
        if told != _partitions(tables, self._partitions):
            content = {
                topic: [each.partitions, each.since_us, each.before] for topic, each in told.items()
            }
            _write(tables, self._partitions, json.dumps(content).encode())

    def check_spark(self, folders: SparkFolders, *, begun: bool = True) -> None:
        """Raise PipelineError if Spark's part is gone, or is empty although a batch has `begun`."""
        if not folders.exists(self.folder) or (begun and folders.is_empty(self.folder)):
            raise PipelineError(
                f"{folders.path(self.folder)} is gone, so nobody knows what of {self.stream} is"
                " archived: restore it, give the --checkpoints of before, or archive into another"
                " folder"
            )

    @property
    def _read(self) -> str:
        return f"{self.stream}-{self.number}.read"

    @property
    def _reached(self) -> str:
        return f"{self.stream}-{self.number}{REACHED}"

    @property
    def _partitions(self) -> str:
        return f"{self.stream}-{self.number}{PARTITIONS}"


def _content(tables: Tables, name: str) -> bytes | None:
    """Return a file of the checkpoints, None if there is none."""
    try:
        if isinstance(tables, RemoteTables):
            return tables.store.content(f"{FOLDER}/{name}")
        return (tables / FOLDER / name).read_bytes()
    except FileNotFoundError:
        return None


def _write(tables: Tables, name: str, content: bytes) -> None:
    """Replace a file of the checkpoints in one piece."""
    if isinstance(tables, RemoteTables):
        tables.store.put(f"{FOLDER}/{name}", content)
        return
    (tables / FOLDER).mkdir(parents=True, exist_ok=True)
    replace_file(tables / FOLDER / name, content)


def _names(tables: Tables) -> list[str]:
    """Return the names of the files of the checkpoints."""
    if isinstance(tables, RemoteTables):
        return list(tables.store.sizes(FOLDER))
    return [path.name for path in (tables / FOLDER).glob("*")]


def compacted(tables: Tables) -> dict[str, float]:
    """Return the times (s) that `note_compacted` got last; none if the file is damaged."""
    try:
        found = json.loads(_content(tables, COMPACTED) or b"{}")
        return {str(name): float(at) for name, at in found.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def note_compacted(tables: Tables, name: str, at: float) -> None:
    """Note when (s) a table is compacted, for processes that come after this one.

    The file has the times of all tables, so whoever notes one has the lock of those who join files.
    """
    _write(tables, COMPACTED, json.dumps(compacted(tables) | {name: at}).encode())


def topics_reached(tables: Tables, stream: str) -> dict[TopicPart, int]:
    """Return what `note_reached` noted of a stream, of each member from the newest source with it.

    Earlier sources are read no more, so a member stays in their topics where it was. A run that
    ends after a commit may not have noted it: the times are then too early until the partition has
    another line of the member.
    """
    noted = re.compile(rf"{re.escape(stream)}-(\d+){re.escape(REACHED)}")
    numbers = [int(match[1]) for name in _names(tables) if (match := noted.fullmatch(name))]
    found: dict[TopicPart, int] = {}
    for number in sorted(numbers, reverse=True):
        newer = {node for node, _, _ in found}
        told = _topics_reached(tables, f"{stream}-{number}{REACHED}")
        found |= {part: us for part, us in told.items() if part[0] not in newer}
    return found


def _topics_reached(tables: Tables, name: str) -> dict[TopicPart, int]:
    """Return what a file of `note_reached` has; nothing if it is damaged or is not there."""
    found: dict[TopicPart, int] = {}
    with contextlib.suppress(TypeError, ValueError):
        for node, topic, partition, us in json.loads(_content(tables, name) or b"[]"):
            found[str(node), str(topic), int(partition)] = int(us)
    return found


def topics_changed(tables: Tables, stream: str) -> dict[str, TopicPartitions]:
    """Return the topics whose partitions have changed, as `note_partitions` noted it last."""
    noted = re.compile(rf"{re.escape(stream)}-(\d+){re.escape(PARTITIONS)}")
    numbers = [int(match[1]) for name in _names(tables) if (match := noted.fullmatch(name))]
    found: dict[str, TopicPartitions] = {}
    for number in sorted(numbers):
        found |= _partitions(tables, f"{stream}-{number}{PARTITIONS}")
    return {topic: each for topic, each in found.items() if each.since_us is not None}


def _partitions(tables: Tables, name: str) -> dict[str, TopicPartitions]:
    """Return what a file of `note_partitions` has; nothing if it is damaged or is not there."""
    found: dict[str, TopicPartitions] = {}
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        for topic, (count, since, old) in json.loads(_content(tables, name) or b"{}").items():
            since_us = None if since is None else int(since)
            found[topic] = TopicPartitions(int(count), since_us, int(old))
    return found


def sources(tables: Tables, stream: str) -> int:
    """Return how many sources the archive of a stream had, which are counted from 1.

    Raises PipelineError if a checkpoint is damaged.
    """
    names = [
        name
        for name in _names(tables)
        if name == f"{stream}.json" or (name.startswith(f"{stream}@") and name.endswith(".json"))
    ]
    found = [_loaded(tables, name) for name in names]
    return max((each.number for each in found if each is not None), default=0)


def _known(
    tables: Tables, stream: str, identifier: str | None, *, several: bool
) -> tuple[str, StreamCheckpoint | None]:
    """Return the name of a checkpoint's file, and the checkpoint if there is one.

    That is the file of the journal if it has one, else the stream's. The first journal of a stream
    has the stream's, also when others are archived with it later.
    """
    plain = f"{stream}.json"
    if identifier is None:
        return plain, _loaded(tables, plain)
    own = f"{stream}@{identifier}.json"
    found = _loaded(tables, own)
    if found is not None:
        return own, found
    first = _loaded(tables, plain)
    if not several or (first is not None and identifier in first.source.values()):
        return plain, first
    return own, None


def _loaded(tables: Tables, name: str) -> StreamCheckpoint | None:
    """Return the checkpoint of a file, None if there is none. Raises PipelineError if it is bad."""
    content = _content(tables, name)
    if content is None:
        return None
    try:
        return StreamCheckpoint(**json.loads(content))
    except (TypeError, ValueError):
        raise PipelineError(
            f"{tables}/{FOLDER}/{name} is damaged, or of another release: restore it, run that"
            " release, or archive into another folder"
        ) from None


def _claimed(tables: Tables, stream: str, number: int) -> int:
    """Return the first number from this one on that no other process has for a stream's source.

    In an object store a process that lost its lock may be at the same point.
    """
    if isinstance(tables, RemoteTables):
        while not tables.store.create(f"{FOLDER}/{stream}-{number}.claim", b""):
            number += 1
    return number


def is_moved(name: str, source: Mapping[str, str]) -> bool:
    """Return whether a part of an identity may change, because an identifier goes with it.

    That is the folder of a journal whose stream has an identifier: the folder may be moved.
    """
    return name == PLACE and len(source) > 1


def opened(
    tables: Tables,
    stream: str,
    source: Mapping[str, str],
    *,
    new: bool,
    spark: SparkFolders | None = None,
    identifier: str | None = None,
    several: bool = False,
    held: Callable[[], None] = lambda: None,
) -> StreamCheckpoint:
    """Return the stream's checkpoint, made if there is none, or begun anew for a `new` source.

    `spark` is the place of the part that a streaming query of Spark's has, if there is one.
    `identifier` is that of a journal's
    stream; with `several` it is one of several journals, which have a checkpoint each. `held` is
    called before each change, and raises PipelineError if another process may write to the tables.
    Raises PipelineError if the source is another one than before, if Spark's part is gone, or if
    the checkpoint is damaged or of an earlier release.
    """
    file, known = _known(tables, stream, identifier, several=several)
    if known is None or new:
        held()
        number = _claimed(tables, stream, sources(tables, stream) + 1)
        token = "" if spark is None else secrets.token_hex(TOKEN_BYTES)
        checkpoint = StreamCheckpoint(stream, number, source, token)
    else:
        known.check(source)
        if spark is not None:
            known.check_spark(spark, begun=False)
        checkpoint = evolve(known, source=source)
    if spark is not None:
        spark.make(checkpoint.folder)
    elif isinstance(tables, Path) and (left := tables / FOLDER / checkpoint.folder).exists():
        raise PipelineError(
            f"{left} was made by an earlier release, which counted otherwise: archive into another"
            " folder, or give --new-source to archive this journal from its beginning."
            f" {SECOND_TIME}"
        )
    held()
    _write(tables, file, json.dumps(asdict(checkpoint)).encode())
    return checkpoint


def place_of(tables: Tables, given: Path | str | None) -> Path | str:
    """Return the place of Spark's checkpoints: the given one, or a folder beside the tables.

    Raises PipelineError if none is given and the tables are in an object store.
    """
    if given is not None:
        return given
    if isinstance(tables, RemoteTables):
        raise PipelineError(
            f"{tables} is an object store, in which a stream of Spark's cannot have its checkpoint:"
            " give --checkpoints, a folder of this computer or one that is mounted"
        )
    return tables / FOLDER


@contextlib.contextmanager
def alone(tables: Tables, job: str) -> Iterator[Callable[[], None]]:
    """Keep other processes from running this job on these tables until the end of the block.

    Yields a function that raises PipelineError if the lock was lost meanwhile, which happens in an
    object store only. There the lock of a process that was killed ends by itself in less than a
    minute, elsewhere with the process. Raises BusyError if another process has it, PipelineError if
    the folder cannot be written to.
    """
    if isinstance(tables, RemoteTables):
        with leases.leased(tables.store, f"{FOLDER}/{job}.lock", str(tables)) as held:
            yield held
        return
    path = tables / FOLDER / f"{job}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise PipelineError(f"{path} cannot be written: {error.strerror}") from None
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(f"another {job} job is at work on {tables}") from None
        yield _held


def _held() -> None:
    """Do nothing: a lock of the file system is not lost."""
