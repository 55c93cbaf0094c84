"""Writes the vote file: a spare one is written, synced, and takes the place of the old one."""

import contextlib
import errno
import os
from pathlib import Path

import structlog
import trio

from mdserver.cluster.identity import Identity
from mdserver.cluster.messages import Persist, Persisted
from mdserver.cluster.votes import DamagedError, VoteRecord, started
from mdserver.errors import StartError
from mdserver.journal.segments import locked, sync_folder
from mdserver.limits import VOTE_FILE_BLOCK_BYTES, VOTE_FILE_BYTES_MAX, VOTE_FILE_RETRY_S
from mdserver.server.engine import Engine

log = structlog.get_logger()


class VoteFile:
    """The vote record of one member on its disk, written by one process at a time.

    `found`: there was one that could be read. `damage`: why one could not be.
    """

    def __init__(self, folder: Path, member: str) -> None:
        name = "".join(letter if letter.isalnum() else "-" for letter in member)
        self.path = folder / f"votes-{name}.json"
        self.found = False
        self.damage: str | None = None
        self._lock = -1
        self._read: bytes | None = None

    def read(self, identity: Identity) -> VoteRecord:
        """Return the record to start with. Nothing is written before `begin`.

        Without a file that can be read it is a new one: this member goes on like one that lost its
        record, and may not vote if others knew it. Raises StartError for a file of another
        identity, and for one that cannot be opened.
        """
        try:
            content = self._content()
        except OSError as error:
            raise self._unusable(error) from None
        self.damage, self._read = None, content
        try:
            record = started(content, identity.member, identity.cluster, identity.groups)
        except DamagedError as error:
            self.damage = str(error)
            record = started(None, identity.member, identity.cluster, identity.groups)
        groups = len(record.promised)
        differs = identity.differs(record.member, record.cluster, groups, record.seeds)
        if differs is not None:
            raise StartError(
                f"The vote file {self.path} belongs to another member or cluster: {differs}. Set it"
                " back; or, if this seed is to give up its votes for good, move the file away"
            )
        record.seeds = list(identity.seeds)
        self.found = content is not None and self.damage is None
        return record

    def begin(self, record: VoteRecord) -> Path | None:
        """Store the record of this start; returns where a damaged file was put. Raises StartError.

        From now on no other process may do so, until this one ends. A damaged file is kept: what
        it says may still help somebody to judge what was lost.
        """
        aside = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._take()
            if self.damage is not None:
                aside = unused(self.path.with_suffix(".damaged"))
                self.path.replace(aside)
                self.damage = None
            self.write(record.encode())
        except OSError as error:
            raise self._unusable(error) from None
        return aside

    def _take(self) -> None:
        """Lock the file, and see that it is as it was read. Raises StartError, and OSError."""
        if self._lock >= 0:
            return
        try:
            self._lock = locked(self.path.with_suffix(".lock"))
        except BlockingIOError:
            raise StartError(
                f"The vote file {self.path} is used by another process: a member runs once; give"
                " another one its own ClusterMemberListen"
            ) from None
        if self._content() != self._read:
            raise StartError(
                f"The vote file {self.path} was written by another process meanwhile: start again"
            )

    def close(self) -> None:
        """Let another process use the file."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def refuse_another_mode(self) -> None:
        """Raise StartError if there is a file: in Standard mode nobody looks at it."""
        if self.path.exists():
            raise StartError(
                f"The vote file {self.path} was written with ClusterDeliveryMode = Guaranteed, and"
                " now ClusterDeliveryMode = Standard, which keeps nothing. Set it back; or, if this"
                " seed is to give up its votes for good, move the file away"
            )

    def _unusable(self, error: OSError) -> StartError:
        return StartError(f"Cannot use the vote file {self.path}: {error.strerror}")

    def _content(self) -> bytes | None:
        try:
            with self.path.open("rb") as file:
                return file.read(VOTE_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Have a record on the disk when this returns. Blocks; raises OSError, and may be repeated.

        The record goes into the spare file, which takes the place of the old one, and the old one
        becomes the spare: both have their space already, so a full disk keeps no seed from voting.
        """
        spare, old = self.path.with_suffix(".spare"), self.path.with_suffix(".old")
        self._recover(spare, old)
        try:
            _fill(spare, content)
            self._exchange(spare, old)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                # Nobody can tell what is on the disk, and under which name: nothing of it is
                # written over, and the next attempt begins with a new file.
                spare.unlink(missing_ok=True)
            raise
        with contextlib.suppress(OSError):  # there was room for this record; the next may wait
            if not spare.exists() or spare.stat().st_size < self.path.stat().st_size:
                _fill(spare, b"", self.path.stat().st_size)

    def _exchange(self, spare: Path, old: Path) -> None:
        """Put the spare file in place of the one that counts, which becomes the spare."""
        try:
            os.link(self.path, old)
        except FileNotFoundError:
            spare.replace(self.path)
        else:
            spare.replace(self.path)
            old.replace(spare)
        sync_folder(self.path.parent)

    def _recover(self, spare: Path, old: Path) -> None:
        """Make good what an end or an error between two steps of `write` left."""
        if not old.exists():
            return
        if old.stat().st_nlink > 1:
            old.unlink()  # a second name of the record that counts
        else:
            old.replace(spare)


def unused(path: Path) -> Path:
    """Return the path, with a number behind it if it is taken: nothing is overwritten."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


class VoteWriter:
    """Stores what the node asks for in a thread, only the newest of what waits."""

    def __init__(self, file: VoteFile, engine: Engine) -> None:
        self._file = file
        self._engine = engine
        self._newest: Persist | None = None
        self._wanted = trio.Event()

    def persist(self, persist: Persist) -> None:
        """Have a record written, unless a newer one comes before it is begun."""
        self._newest = persist
        self._wanted.set()

    async def run(self) -> None:
        """Write until cancelled.

        While the disk refuses it is tried again and again, and the seed promises nothing.
        """
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            failed = False
            while (persist := self._newest) is not None:
                try:
                    await trio.to_thread.run_sync(self._file.write, persist.record)
                except OSError as error:
                    if not failed:
                        reason = error.strerror or str(error)
                        log.error(
                            "vote file cannot be written: this seed does not answer until it is",
                            file=str(self._file.path),
                            reason=reason,
                        )
                    failed = True
                    await trio.sleep(VOTE_FILE_RETRY_S)
                    continue
                if self._newest is persist:
                    self._newest = None
                self._engine.dispatch(Persisted(persist.request))
            if failed:
                log.warning("vote file written again", file=str(self._file.path))


def _fill(path: Path, content: bytes, size_min: int = 0) -> None:
    """Have a file hold the content, followed by spaces, on the disk. It keeps the space it has."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = max(os.fstat(file).st_size, size_min, _roomy(len(content)))
        view = memoryview(content.ljust(size))
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)


def _roomy(size: int) -> int:
    """Return the size of a file for a record of this size, with room for it to grow."""
    return -(-2 * size // VOTE_FILE_BLOCK_BYTES) * VOTE_FILE_BLOCK_BYTES
