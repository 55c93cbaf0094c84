"""The vote file: written anew, synced, renamed over the old one, and the folder synced."""

import os
from pathlib import Path

import trio

from mdserver.cluster.identity import Identity
from mdserver.cluster.messages import Persist, Persisted
from mdserver.cluster.votes import DamagedError, VoteRecord, started
from mdserver.errors import StartError
from mdserver.limits import VOTE_FILE_BYTES_MAX
from mdserver.net.engine import Engine


class VoteFile:
    """The vote record of one member on its disk.

    `found`: there was one that could be read. `damage`: why one could not be.
    """

    def __init__(self, folder: Path, member: str) -> None:
        name = "".join(letter if letter.isalnum() else "-" for letter in member)
        self.path = folder / f"votes-{name}.json"
        self.found = False
        self.damage: str | None = None

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
        self.damage = None
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

        A damaged file is kept: what it says may still help somebody to judge what was lost.
        """
        aside = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.damage is not None:
                aside = unused(self.path.with_suffix(".damaged"))
                self.path.replace(aside)
                self.damage = None
            self.write(record.encode())
        except OSError as error:
            raise self._unusable(error) from None
        return aside

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
        """Have a record on the disk when this returns. Blocks."""
        fresh = self.path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


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
        engine.carry(Persist, self._persist)

    def _persist(self, persist: Persist) -> None:
        self._newest = persist
        self._wanted.set()

    async def run(self) -> None:
        """Write until cancelled. A disk that fails ends the member: it could promise nothing."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            persist, self._newest = self._newest, None
            assert persist is not None
            await trio.to_thread.run_sync(self._file.write, persist.record)
            self._engine.dispatch(Persisted(persist.request))
