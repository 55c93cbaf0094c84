"""`python -m tests.pipeline.chaos`: faults for some minutes, then archive = acknowledged.

A server with a journal, clients that publish messages of all kinds (long subjects, 60 KB, binary,
compressed, with every property), and `mdserver pipeline archive`. Server and archive are killed,
clocks and times of files are set, segments are deleted, the journal is emptied, moved, and replaced
by an older copy. In the end each acknowledged message is archived once with all its properties, or
its segment is in a hole that the archive named, or the archive refused the journal with a line.
"""

import argparse
import functools
import logging
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

import trio
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from .ledger import Verdict
from .run import ChaosRun

KEPT = Path("build/pipeline-chaos")
LEAST_ARCHIVED = 0.5


def main() -> int:
    """Exit status 1 if anything was lost, doubled or altered, or a job failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="How long faults come.")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    given = parser.parse_args()
    # That the server is away is what happens here, and no news.
    logging.getLogger("mdserver.client").setLevel(logging.ERROR)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"seed {given.seed}, {given.minutes:g} minutes")
    folder = Path(tempfile.mkdtemp(prefix="mdserver-pipeline-chaos-"))
    passed = False
    try:
        seconds = given.minutes * 60
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("starting", total=seconds)
            run = ChaosRun(folder, given.seed, lambda text: progress.update(task, description=text))
            verdict = trio.run(functools.partial(_shown, run, seconds, progress, task))
        console.print(_summary(run, verdict))
        for problem in run.plant.problems:
            console.print(f"FAILED {problem}", markup=False)
        passed = not run.plant.problems
        if passed and verdict.archived < len(run.ledger.promised) * LEAST_ARCHIVED:
            passed = False
            console.print("FAILED most messages were destroyed unread, so that little was compared")
    finally:
        if not passed:
            kept = KEPT / f"seed-{given.seed}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            console.print(f"journal, tables and logs: {kept}")
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if passed else 1


async def _shown(run: ChaosRun, seconds: float, progress: Progress, task: TaskID) -> Verdict:
    """Run, with a bar that goes on with the time."""

    async def advance() -> None:
        began = trio.current_time()
        while True:
            progress.update(task, completed=min(trio.current_time() - began, seconds))
            await trio.sleep(0.5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(advance)
        verdict = await run.run(seconds)
        nursery.cancel_scope.cancel()
    return verdict


def _summary(run: ChaosRun, verdict: Verdict) -> Table:
    table = Table(title="Chaos of the pipeline")
    table.add_column("what")
    table.add_column("number", justify="right")
    for name, number in sorted(run.ledger.done.items()):
        table.add_row(name, str(number))
    table.add_row("messages acknowledged", str(len(run.ledger.promised)))
    table.add_row("of these archived, once each", str(verdict.archived))
    table.add_row("of these destroyed before they were archived", str(verdict.lost))
    table.add_row("holes that the archive named", str(verdict.holes))
    table.add_row("problems", str(len(run.plant.problems)))
    return table


if __name__ == "__main__":
    sys.exit(main())
