"""The vote file: written anew, synced, renamed over the old one, and the folder synced."""

import os
from pathlib import Path

import trio

from mdserver.cluster.messages import Persist, Persisted
from mdserver.cluster.votes import VoteRecord, started
from mdserver.errors import ConfigError, StartError
from mdserver.limits import VOTE_FILE_BYTES_MAX
from mdserver.net.engine import Engine


class VoteFile:
    """The vote record of one member on its disk."""

    def __init__(self, folder: Path, member: str) -> None:
        name = "".join(letter if letter.isalnum() else "-" for letter in member)
        self.path = folder / f"votes-{name}.json"

    def start(
        self, member: str, cluster: str, groups: int, *, recorded: bool = False
    ) -> tuple[VoteRecord, str | None]:
        """The record to start with, stored already, and what was wrong with the old one.

        A damaged file is kept aside: this member goes on like one that lost its record, and may
        not vote where others knew it. Without `recorded` what was written down of its logs is of
        no use from here on. Raises StartError where the folder cannot be used.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = self._read()
            problem = None
            try:
                record = started(content, member, cluster, groups)
            except ConfigError as error:
                problem = f"{self.path}: {error}"
                self.path.replace(self.path.with_suffix(".damaged"))
                record = started(None, member, cluster, groups)
            record.recorded = record.recorded and recorded
            self.write(record.encode())
        except OSError as error:
            raise StartError(f"Cannot use the vote file {self.path}: {error.strerror}") from None
        return record, problem

    def _read(self) -> bytes | None:
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
