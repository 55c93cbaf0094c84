"""Reads and writes the vote file, the record of promises of one member (docs/cluster.md).

A seed gives a promise only after the promise is on its disk. So the file has to survive a crash at
any moment, and a full disk must not keep it from being written. Three names in one folder provide
for that:

- `votes-NAME.json` is the record that counts. It is never written in place.
- `votes-NAME.spare` is a file that has its space already. A new record is written into it and
  synced.
- `votes-NAME.old` exists only during an exchange. It is a second name of the record that counted.

An exchange links the record as `old`, renames `spare` to the name that counts, and renames `old` to
`spare`. A rename is atomic, so the name that counts always has a whole record: the old one or the
new one. Both files keep their space, so a full disk does not keep a seed from voting. After a crash
the number of links tells how far the exchange was (`VoteFile._recover`).
"""

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

    `found` says whether `read` found a record that could be read. `damage` is the reason if there
    was one that could not be read, otherwise None.
    """

    def __init__(self, folder: Path, member: str) -> None:
        name = "".join(letter if letter.isalnum() else "-" for letter in member)
        self.path = folder / f"votes-{name}.json"
        self.found = False
        self.damage: str | None = None
        self._lock = -1
        self._read: bytes | None = None

    def read(self, identity: Identity) -> VoteRecord:
        """Return the record to start with, with its incarnation raised. Writes nothing.

        Without a file that can be read, the record is a new one. The member then starts like one
        that lost its record, and may not vote if the other seeds know it already. Raises StartError
        if the file has another identity or cannot be opened.
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
        """Store the record of this start and return where a damaged file was moved, or None.

        The lock that this takes keeps other processes from the file until this one ends. A damaged
        file is kept, because an operator may still read from it what was lost. Raises StartError.
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
        """Lock the file and check that it is as it was read. Raises StartError and OSError.

        `read` takes no lock. Another process may have started, promised and ended in between;
        its promises would be lost if this record replaced them.
        """
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
        """Raise StartError if there is a file: Standard mode would ignore its promises."""
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
        """Write a record; it is on the disk when this returns. Blocks.

        Raises OSError, after which it may be called again.
        """
        spare, old = self.path.with_suffix(".spare"), self.path.with_suffix(".old")
        self._recover(spare, old)
        try:
            _fill(spare, content)
            self._exchange(spare, old)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                # After a failed sync nobody can tell what is on the disk, and a second sync of the
                # same file may report success without having written it. The next attempt begins
                # with a new file.
                spare.unlink(missing_ok=True)
            raise
        # Give the spare file its space now. If that fails this record is stored nevertheless, and
        # the next `write` tries again.
        with contextlib.suppress(OSError):
            if not spare.exists() or spare.stat().st_size < self.path.stat().st_size:
                _fill(spare, b"", self.path.stat().st_size)

    def _exchange(self, spare: Path, old: Path) -> None:
        """Exchange the spare file and the record that counts, and sync the names."""
        try:
            os.link(self.path, old)
        except FileNotFoundError:
            spare.replace(self.path)  # the first record of this member
        else:
            spare.replace(self.path)
            old.replace(spare)
        sync_folder(self.path.parent)

    def _recover(self, spare: Path, old: Path) -> None:
        """Finish or undo an exchange that a crash or an error interrupted."""
        if not old.exists():
            return
        if old.stat().st_nlink > 1:
            old.unlink()  # `spare` was not renamed yet: this is the record that counts
        else:
            old.replace(spare)  # the new record counts already


def unused(path: Path) -> Path:
    """Return the path, or the first of `path-2`, `path-3` and so on that does not exist."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


class VoteWriter:
    """Carries `Persist` outputs out in a thread.

    A record is whole, so a newer one makes an older one that still waits superfluous, and
    `Persisted` with its number answers both.
    """

    def __init__(self, file: VoteFile, engine: Engine) -> None:
        self._file = file
        self._engine = engine
        self._newest: Persist | None = None
        self._wanted = trio.Event()

    def persist(self, persist: Persist) -> None:
        """Queue a record; it replaces one that waits already."""
        self._newest = persist
        self._wanted.set()

    async def run(self) -> None:
        """Write until cancelled.

        If the disk refuses, the write is repeated every `VOTE_FILE_RETRY_S`. Until it succeeds the
        node gets no `Persisted`, so the seed gives none of the promises that wait for it.
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
    """Write the content into a file, padded with spaces, and sync it.

    The file is never truncated: the space that it has is what a full disk cannot take from it. JSON
    allows spaces after the value (RFC 8259, section 2).
    """
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
    """Return the size of a file for a record of `size` bytes: twice that, in whole blocks."""
    return -(-2 * size // VOTE_FILE_BLOCK_BYTES) * VOTE_FILE_BLOCK_BYTES
