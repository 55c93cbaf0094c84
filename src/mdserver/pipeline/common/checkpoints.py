"""Where a streaming job stands in its source, and which source that is.

Spark's own checkpoint knows topics by their names and files by their paths. Of a topic that was
deleted and created again it reads on from the old offset, of a journal that was emptied it takes
new segments for read, and says nothing. So what makes a source itself - the identifiers of the
Kafka cluster and of each topic, or of a journal's stream - is kept beside the checkpoint.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import asdict, evolve, frozen

from mdserver.pipeline.common.requirements import PipelineError

FOLDER = "_checkpoints"
PLACE = "the journal"
"""Under this name the identity of a source has the folder of a journal."""


class BusyError(PipelineError):
    """Another process has the job."""


@frozen
class Checkpoint:
    """The checkpoint of one stream in a folder of tables.

    `number` counts the sources that the stream had, one after the other; `source` names the parts
    of the present one and gives the identifier of each.
    """

    stream: str
    number: int
    source: Mapping[str, str]

    @property
    def job(self) -> str:
        """Under this name its batches are committed: their numbers begin anew with a new source."""
        return f"archive-{self.stream}-{self.number}"

    def folder(self, tables: Path) -> Path:
        """Where Spark keeps what it knows."""
        return tables / FOLDER / f"{self.stream}-{self.number}"

    def check(self, source: Mapping[str, str]) -> None:
        """Raise PipelineError unless each part of the source is still the one it was."""
        for name, identifier in self.source.items():
            now = source.get(name, "missing")
            if now != identifier and not is_moved(name, self.source):
                raise PipelineError(
                    f"{name} is not the one that was archived before: its id was {identifier} and"
                    f" is {now}. To go on with it from its beginning, give --new-source; what was"
                    " not yet read of the old one is not archived"
                )

    def note(self, tables: Path, segment: int, mark: str) -> None:
        """Note the last segment that was archived, and what tells it from another one."""
        file = self._read(tables)
        fresh = file.with_suffix(".new")
        fresh.write_text(f"{segment} {mark}\n", encoding="ascii")
        fresh.replace(file)

    def noted(self, tables: Path) -> tuple[int, str] | None:
        """What `note` was told last; None before that."""
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


def is_moved(name: str, source: Mapping[str, str]) -> bool:
    """Whether a part of an identity is a path of something that has an identifier as well."""
    return name == PLACE and len(source) > 1


def opened(
    tables: Path, stream: str, source: Mapping[str, str], *, new: bool, spark: bool = True
) -> Checkpoint:
    """The stream's checkpoint, made or, for a `new` source, begun anew.

    With `spark` a streaming query of Spark's has a part of it. Raises PipelineError if the source
    is another one than before, or if Spark's part is gone, or was made by an earlier release.
    """
    file = tables / FOLDER / f"{stream}.json"
    if not file.exists():
        checkpoint = Checkpoint(stream, 1, source)
    else:
        try:
            known = Checkpoint(**json.loads(file.read_text(encoding="utf-8")))
        except (TypeError, ValueError):
            raise PipelineError(
                f"{file} is damaged, or of another release: restore it, run that release, or"
                " archive into another folder"
            ) from None
        if new:
            checkpoint = Checkpoint(stream, known.number + 1, source)
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
            " into another folder, or give --new-source to archive this journal from its beginning,"
            " so that what is in the tables already comes a second time"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = file.with_suffix(".new")
    whole.write_text(json.dumps(asdict(checkpoint)), encoding="utf-8")
    whole.replace(file)
    return checkpoint


@contextlib.contextmanager
def alone(tables: Path, job: str) -> Iterator[None]:
    """Keep other processes from running this job on these tables until the end of the block.

    Raises BusyError if one does already, PipelineError if the folder cannot be written to.
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
