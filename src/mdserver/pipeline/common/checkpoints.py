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
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import asdict, evolve, frozen

from mdserver.pipeline.common.durable import replace_file
from mdserver.pipeline.common.requirements import PipelineError

FOLDER = "_checkpoints"
PLACE = "the journal"
"""The part of a source's identity that is the folder of a journal."""

SECOND_TIME = (
    "Receipts, statistics and events that the tables have already then come a second time;"
    " a message stays one row"
)
"""What `--new-source` does to the rows of a journal that was archived before."""


class BusyError(PipelineError):
    """Another process has the lock of the job."""


@frozen
class StreamCheckpoint:
    """The checkpoint of one stream in a folder of tables.

    `number` counts the sources that the stream had, one after the other; `source` is the identity
    of the present one, an identifier for each of its parts.
    """

    stream: str
    number: int
    source: Mapping[str, str]

    @property
    def job(self) -> str:
        """The name under which batches are committed; their numbers begin anew with each source."""
        return f"archive-{self.stream}-{self.number}"

    def folder(self, tables: Path) -> Path:
        """Return the folder of Spark's part of the checkpoint."""
        return tables / FOLDER / f"{self.stream}-{self.number}"

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

    def note(self, tables: Path, segment: int, mark: str) -> None:
        """Note the last segment that was archived, and the mark of its content."""
        replace_file(self._read(tables), f"{segment} {mark}\n".encode())

    def noted(self, tables: Path) -> tuple[int, str] | None:
        """Return the segment and the mark that `note` got last, None before that."""
        try:
            segment, mark = self._read(tables).read_text(encoding="ascii").split()
        except FileNotFoundError:
            return None
        return int(segment), mark

    def check_spark(self, tables: Path) -> None:
        """Raise PipelineError if Spark's part of the checkpoint is gone."""
        folder = self.folder(tables)
        if not (folder.is_dir() and any(folder.iterdir())):
            raise PipelineError(
                f"{folder} is gone, so nobody knows what of {self.stream} is archived:"
                " restore it, or archive into another folder"
            )

    def _read(self, tables: Path) -> Path:
        return tables / FOLDER / f"{self.stream}-{self.number}.read"


def sources(tables: Path, stream: str) -> int:
    """Return how many sources the archive of a stream had, which are counted from 1.

    Raises PipelineError if a checkpoint is damaged.
    """
    folder = tables / FOLDER
    files = [folder / f"{stream}.json", *folder.glob(f"{stream}@*.json")]
    return max((_loaded(file).number for file in files if file.exists()), default=0)


def _file(tables: Path, stream: str, identifier: str | None, *, several: bool) -> Path:
    """Return the file of a checkpoint: that of the journal if it has one, else the stream's.

    The first journal of a stream has the stream's, also when others are archived with it later.
    """
    plain = tables / FOLDER / f"{stream}.json"
    if identifier is None:
        return plain
    own = plain.with_name(f"{stream}@{identifier}.json")
    if own.exists() or not several:
        return own if own.exists() else plain
    return plain if plain.exists() and identifier in _loaded(plain).source.values() else own


def _loaded(file: Path) -> StreamCheckpoint:
    """Return the checkpoint of a file. Raises PipelineError if it cannot be used."""
    try:
        return StreamCheckpoint(**json.loads(file.read_text(encoding="utf-8")))
    except (TypeError, ValueError):
        raise PipelineError(
            f"{file} is damaged, or of another release: restore it, run that release, or"
            " archive into another folder"
        ) from None


def is_moved(name: str, source: Mapping[str, str]) -> bool:
    """Return whether a part of an identity may change, because an identifier goes with it.

    That is the folder of a journal whose stream has an identifier: the folder may be moved.
    """
    return name == PLACE and len(source) > 1


def opened(
    tables: Path,
    stream: str,
    source: Mapping[str, str],
    *,
    new: bool,
    spark: bool = True,
    identifier: str | None = None,
    several: bool = False,
) -> StreamCheckpoint:
    """Return the stream's checkpoint, made if there is none, or begun anew for a `new` source.

    With `spark` a streaming query of Spark's has a part of it. `identifier` is that of a journal's
    stream; with `several` it is one of several journals, which have a checkpoint each. Raises
    PipelineError if the source is another one than before, if Spark's part is gone, or if the
    checkpoint is damaged or of an earlier release.
    """
    file = _file(tables, stream, identifier, several=several)
    if not file.exists():
        checkpoint = StreamCheckpoint(stream, sources(tables, stream) + 1, source)
    else:
        known = _loaded(file)
        if new:
            checkpoint = StreamCheckpoint(stream, sources(tables, stream) + 1, source)
        else:
            known.check(source)
            if spark and not known.folder(tables).is_dir():
                known.check_spark(tables)
            checkpoint = evolve(known, source=source)
    folder = checkpoint.folder(tables)
    if spark:
        folder.mkdir(parents=True, exist_ok=True)
    elif folder.exists():
        raise PipelineError(
            f"{folder} was made by an earlier release, which counted otherwise: archive"
            " into another folder, or give --new-source to archive this journal from its beginning."
            f" {SECOND_TIME}"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(asdict(checkpoint)).encode())
    return checkpoint


@contextlib.contextmanager
def alone(tables: Path, job: str) -> Iterator[None]:
    """Keep other processes from running this job on these tables until the end of the block.

    The lock ends with the process at the latest, so a crash leaves none. Raises BusyError if
    another process has it, PipelineError if the folder cannot be written to.
    """
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
        yield
