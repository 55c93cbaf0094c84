"""One chaos run: publications, an archive that is started again and again, and faults.

Faults come one after the other, in an order that follows from the seed. Those that destroy a part
of the journal note first what they destroy. Most of those that would keep the archive from its work
wait until it has read what is there, or it would read hardly anything. In the end the server is
stopped, the archive reads the rest, and the tables are compared with what was acknowledged, before
and after `maintain`.
"""

import functools
import os
import random
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from mdserver.client import Client, PublishError
from mdserver.journal import segments

from .ledger import Ledger, Verdict, judged
from .plant import Job, Plant, killed_after
from .published import drawn

PUBLISHERS = 32
PAUSE_S = 0.02
PUBLISH_TIMEOUT_S = 240
QUIET_TIMEOUT_S = 240
LAST_TIMEOUT_S = 240
FAULT_EVERY_S = (2.0, 8.0)
JOB_SECONDS = (2.0, 40.0)
LAST_MESSAGES_S = 3.0
"""A hole is named when a segment behind it is sealed, so messages go on after the last fault."""
CLOCK_DAYS = 40
FILE_YEARS = 9
DAY_S = 86_400
INTERRUPTED = 130
READ_TIMEOUT_S = 90
POLL_S = 0.2
AT_ONCE = 0.25
"""The share of the faults in `AFTER_READING` that do not wait until the archive has read something:
if none did, an archive that takes long to start would read hardly anything in the whole run."""
AFTER_READING = {"kill archive", "end archive", "restore copy", "empty folder"}
FAULTS = {
    "kill archive": 5,
    "end archive": 2,
    "kill server": 4,
    "end server": 2,
    "clock step": 4,
    "times of files": 3,
    "copy journal": 2,
    "restore copy": 2,
    "delete segments": 3,
    "empty folder": 1,
    "move journal": 1,
    "maintain": 2,
}


class ChaosRun:
    """The state of a run; `said` is what happens now."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self.ledger = Ledger()
        self.plant = Plant(folder)
        self._copy = folder / "copy"
        self._copied: set[str] = set()
        self._order = random.Random(
            seed
        )  # of faults, and of nothing else: their order is the seed's
        self._rng = random.Random(seed)
        self._say = say
        self._number = 0
        self._at_work = 0
        self._idle = trio.Event()
        self._paused = False
        self._resumed = trio.Event()
        self._archive: Job | None = None
        self._changes = 0

    @property
    def messages(self) -> Path:
        """The folder of the stream of messages."""
        return self.plant.journal / "messages"

    async def run(self, seconds: float) -> Verdict:
        """Run for so long, and compare."""
        self.plant.folder.mkdir(parents=True, exist_ok=True)
        try:
            await self.plant.start()
            async with Client([self.plant.url]) as client, trio.open_nursery() as nursery:
                for _ in range(PUBLISHERS):
                    nursery.start_soon(self._publish, client)
                nursery.start_soon(self._keep_archiving)
                with trio.move_on_after(seconds):
                    await self._disturb()
                await trio.sleep(LAST_MESSAGES_S)
                await self._quiet()
                nursery.cancel_scope.cancel()
            await self.plant.stop()
            return await self._compared()
        finally:
            if self._archive is not None:
                self._archive.kill()
            with trio.CancelScope(shield=True):
                await self.plant.kill()

    async def _publish(self, client: Client) -> None:
        """Publish one message after the other, and note what is acknowledged."""
        while True:
            while self._paused:
                await self._resumed.wait()
            self._number += 1
            given = drawn(self._rng, self._number)
            self.ledger.given[given.number] = given
            content = given.content.decode() if given.text else given.content
            self._at_work += 1
            try:
                result = await client.publish(
                    given.subject, content, **given.arguments(), timeout_s=PUBLISH_TIMEOUT_S
                )
                self.ledger.acknowledge(given, result)
            except PublishError as error:
                self.ledger.done[f"publications with {error.result.status.value}"] += 1
            finally:
                self._at_work -= 1
                if not self._at_work:
                    self._idle.set()
            await trio.sleep(PAUSE_S)

    async def _quiet(self) -> None:
        """Let no publication begin, and wait until each has its result."""
        self._paused, self._resumed = True, trio.Event()
        with trio.fail_after(QUIET_TIMEOUT_S):
            if self._at_work:
                self._idle = trio.Event()
                await self._idle.wait()

    def _resume(self) -> None:
        self._paused = False
        self._resumed.set()

    async def _keep_archiving(self) -> None:
        """Start the archive again whenever it ended."""
        options: list[str] = []
        while True:
            job, changes = self.plant.archive(*options), self._changes
            self._archive = job
            status = await job.ended()
            options = []
            if job.refused:
                self.ledger.done["refusals of a journal"] += 1
                options = ["--new-source"]
            elif status > 0 and changes != self._changes:
                self.ledger.done["ends of the archive, as the folder was gone"] += 1
            elif status > 0 and status != INTERRUPTED:
                self.plant.problems.append(job.told())
            if "Traceback" in job.said():
                self.plant.problems.append(job.told())
            await trio.sleep(self._rng.random())

    async def _disturb(self) -> None:
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill archive": self._kill_archive,
            "end archive": self._end_archive,
            "kill server": functools.partial(self._restart, self.plant.kill),
            "end server": functools.partial(self._restart, self.plant.stop),
            "clock step": self._set_clock,
            "times of files": self._set_times,
            "copy journal": self._copy_journal,
            "restore copy": self._restore,
            "delete segments": self._delete,
            "empty folder": self._empty,
            "move journal": self._move,
            "maintain": self._maintain,
        }
        while True:
            await trio.sleep(self._order.uniform(*FAULT_EVERY_S))
            name = self._order.choices(list(FAULTS), list(FAULTS.values()))[0]
            if name == "restore copy" and not self._copy.exists():
                name = "copy journal"
            if name in AFTER_READING and self._order.random() >= AT_ONCE:
                await self._read_on()
            self._say(name)
            # A fault that was begun is carried out, although the time is over.
            with trio.CancelScope(shield=True):
                await faults[name]()
            self.ledger.done[name] += 1

    async def _read_on(self) -> None:
        """Wait until the archive has come to where the journal is now."""
        self._say("the archive reads on")
        newest = max(segments.numbers(self.messages), default=0)
        with trio.move_on_after(READ_TIMEOUT_S):
            # Another process writes the position.
            while segments.positions(self.messages).get("archive", 0) < newest:  # noqa: ASYNC110
                await trio.sleep(POLL_S)

    async def _kill_archive(self) -> None:
        if self._archive is not None:
            self._archive.kill()

    async def _end_archive(self) -> None:
        if self._archive is not None:
            await self._archive.interrupt()

    async def _restart(self, end: Callable[[], Awaitable[None]]) -> None:
        await end()
        await self.plant.start()

    async def _set_clock(self) -> None:
        self.plant.clock.set(self._rng.randint(-CLOCK_DAYS * DAY_S, CLOCK_DAYS * DAY_S))

    async def _set_times(self) -> None:
        """Segments get any times, as of a copy, or a clock that was wrong; none is too old."""
        for segment in segments.sealed(self.messages):
            moment = time.time() + self._rng.uniform(-1, 1) * FILE_YEARS * 365 * DAY_S
            if segment.path.exists():
                os.utime(segment.path, (moment, moment))

    async def _copy_journal(self) -> None:
        """A backup, made while no server runs."""
        await self.plant.stop()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.plant.journal, self._copy)
        self._copied = {path.name for path in segments.paths(self._copy / "messages")}
        await self.plant.start()

    async def _restore(self) -> None:
        """The backup takes the place of the journal.

        Nobody waits for a result meanwhile: a server that forgot a publication takes it again.
        """
        await self._quiet()
        await self.plant.stop()
        self._note(copied=self._copied)
        self._changes += 1
        shutil.rmtree(self.plant.journal)
        shutil.copytree(self._copy, self.plant.journal)
        await self.plant.start()
        self._resume()

    def _note(self, copied: set[str]) -> None:
        """Note what is destroyed when another journal takes the place of this one."""
        gone = [path for path in segments.paths(self.messages) if path.name not in copied]
        self.ledger.destroy(self.messages, gone, replaced=True)
        self.ledger.replace()

    async def _delete(self) -> None:
        """Sealed segments are deleted under a server and an archive that are running."""
        paths = [segment.path for segment in segments.sealed(self.messages)]
        chosen = [path for path in paths if self._rng.random() < 0.5]
        # An archive that is at work may read one of them before it is gone.
        self.ledger.destroy(self.messages, chosen, replaced=False)
        for path in chosen:
            path.unlink(missing_ok=True)

    async def _empty(self) -> None:
        """The whole journal is deleted, with what names it: the next one is another."""
        await self._quiet()
        await self.plant.stop()
        self._note(copied=set())
        self._changes += 1
        shutil.rmtree(self.plant.journal)
        shutil.rmtree(self._copy, ignore_errors=True)
        await self.plant.start()
        self._resume()

    async def _move(self) -> None:
        await self.plant.stop()
        self._changes += 1
        moved = self.plant.folder / f"journal-{self._changes}"
        self.plant.journal.rename(moved)
        self.plant.journal = moved
        await self.plant.start()
        if self._archive is not None:
            self._archive.kill()

    async def _maintain(self) -> None:
        """Compaction beside the archive, which may be killed."""
        if not (self.plant.tables / "messages").exists():
            return
        job = self.plant.job("maintain")

        def count() -> None:
            self.ledger.done["maintain, killed"] += 1

        await killed_after(job, self._rng.uniform(*JOB_SECONDS), count)
        if job.process.returncode not in {0, -9}:
            self.plant.problems.append(job.told())

    async def _compared(self) -> Verdict:
        """Archive the rest, and compare, before and after everything was joined."""
        self._say("the rest is archived")
        options: list[str] = []
        if self._archive is not None:
            self._archive.kill()
            await self._archive.ended()
        for _ in range(2):
            job = self._archive = self.plant.archive("--once", *options)
            with trio.fail_after(LAST_TIMEOUT_S):
                status = await job.ended()
            if not job.refused:
                break
            self.ledger.done["refusals of a journal"] += 1
            options = ["--new-source"]
        if status:
            self.plant.problems.append(job.told())
        before = judged(self.ledger, self.plant.tables)
        self._say(
            f"{before.archived} archived, {before.lost} destroyed, {len(before.problems)} problems;"
            " the tables are maintained"
        )
        job = self.plant.job("maintain")
        with trio.fail_after(LAST_TIMEOUT_S):
            if await job.ended():
                self.plant.problems.append(job.told())
        after = judged(self.ledger, self.plant.tables)
        if (after.archived, after.lost) != (before.archived, before.lost):
            self.plant.problems.append(f"maintain changed {before} to {after}")
        self.plant.problems += before.problems
        return before
