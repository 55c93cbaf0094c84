"""`python -m simulation chaos`."""

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
import trio
from attrs import define, field
from rich.console import Console
from rich.table import Table

from simulation.chaos import namespaces
from simulation.chaos.cluster import RELEASE_FOLDER
from simulation.chaos.disks import NoDiskError
from simulation.chaos.loopback import Loopback
from simulation.chaos.namespaces import Namespaces
from simulation.chaos.page import page
from simulation.chaos.parts import ALL, MIXED, Part, less, over_all, possible, unable
from simulation.chaos.plan import (
    BLACKOUT,
    CLOCK,
    HALF_CUT,
    OTHER_KINDS,
    PROCESS_KINDS,
    Plan,
    make,
)
from simulation.chaos.profiles import PROFILES, make_rounds
from simulation.chaos.run import Chaos, Outcome
from simulation.chaos.wall_clock import fake_clock
from simulation.chaos.wire import Wire

NETWORKS = ("auto", "namespaces", "loopback")
INSIDE = "CHAOS_NAMESPACE"  # set once this process is alone in its namespace
PROBLEMS_SHOWN = 20
INTERRUPTED = 130


@click.command("chaos")
@click.option(
    "--seconds",
    default=60,
    show_default=True,
    type=click.IntRange(5, 86_400),
    help="How long faults go on; with `--profile all`, how long runs begin.",
)
@click.option(
    "--profile",
    type=click.Choice((MIXED, ALL, *PROFILES)),
    default=MIXED,
    show_default=True,
    help="What happens in rounds, to three seeds; or `all`: a run of each, with one seed after the "
    "other. " + " ".join(f"`{name}`: {profile.about}." for name, profile in PROFILES.items()),
)
@click.option(
    "--rounds",
    default=5,
    show_default=True,
    type=click.IntRange(2, 1000),
    help="How many rounds.",
)
@click.option("--seed", default=1, show_default=True, help="Faults and clients follow from it.")
@click.option(
    "--members",
    default=3,
    show_default=True,
    type=click.IntRange(3, 7),
    help="Server processes.",
)
@click.option(
    "--network",
    type=click.Choice(NETWORKS),
    default="auto",
    show_default=True,
    help="Namespaces, where they are permitted; else processes behind a proxy.",
)
@click.option(
    "--only",
    type=click.Choice((*PROCESS_KINDS, *OTHER_KINDS, CLOCK, BLACKOUT, HALF_CUT)),
    multiple=True,
    help="Nothing but faults of this kind (repeatable).",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    default="build/chaos",
    show_default=True,
    help="Where history and logs of a failing run go.",
)
@click.option(
    "--if-possible",
    is_flag=True,
    help="If the profile cannot be run here, say why and end with status 0.",
)
@click.option("--keep-all", is_flag=True, help="Keep those of a run that passes, too.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the timeline of faults, states and acknowledgements: one HTML page.",
)
def chaos(
    seconds: int,
    profile: str,
    rounds: int,
    seed: int,
    members: int,
    network: str,
    only: tuple[str, ...],
    keep: Path,
    report: Path | None,
    *,
    keep_all: bool,
    if_possible: bool,
) -> None:
    """Real server processes under partitions, pauses and kills.

    Ends with status 1 on any finding, and with 130 if it was interrupted (SIGINT, SIGTERM)
    before there was one.
    """
    told = Console(stderr=True)
    wire = choose(network, told)
    clock = fake_clock()
    if clock is None:
        told.print("[bold]NO CLOCK JUMPS[/bold]: libfaketime is missing (package libfaketime)")
    try:
        if profile == ALL:
            parts = over_all(seed)
        elif profile != MIXED:
            parts = iter([Part(profile, make_rounds(profile, seed, rounds))])
        else:
            mixed = make(seed, seconds, members, clocks=clock is not None, only=only)
            parts = iter([Part(MIXED, mixed)])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if profile == ALL or if_possible:
        parts = possible(parts, wire, partial(told.print, markup=False, soft_wrap=True))
    session = Session(
        wire,
        keep,
        keep_all,
        time.monotonic(),
        seconds if profile == ALL else None,
        leaves_out=profile == ALL or if_possible,
    )
    try:
        with session.heeding():
            session.make_all(parts)
    finally:
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(page(session.made, " ".join(sys.argv[1:])), encoding="utf-8")
            session.console.print(f"timeline: {report}", markup=False, soft_wrap=True)
    found = any(outcome.problems for _, outcome in session.made)
    sys.exit(1 if found else INTERRUPTED if session.interrupted else 0)


@define
class Session:
    """The runs of one command. `seconds`: how long they may begin; None for one run.

    `leaves_out`: a run whose disks cannot be made is told and left out.
    """

    wire: Callable[[int], Wire]
    keep: Path
    keep_all: bool
    began_s: float
    seconds: int | None
    leaves_out: bool = False
    interrupted: bool = False
    broken: bool = False  # the harness failed: what further runs would say is worth nothing
    made: list[tuple[str, Outcome]] = field(factory=list)
    console: Console = field(factory=Console)

    @property
    def ended(self) -> bool:
        """Whether no further run may begin."""
        over = self.seconds is None or time.monotonic() - self.began_s >= self.seconds
        return over or self.interrupted or self.broken

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Note SIGINT and SIGTERM, before, between and after runs too; a run ends at once."""

        def heed(*_: object) -> None:
            self.interrupted = True

        before = {number: signal.signal(number, heed) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def make_all(self, parts: Iterator[Part]) -> None:
        """Make one run after the other, until no further one may begin."""
        for part in parts:
            self.make(part)
            if self.ended:
                break

    def make(self, part: Part) -> None:
        """Make a run, and say what came of it."""
        plan, console = part.plan, self.console
        wire = self.wire(plan.members)
        why = unable(plan, wire)
        if why is not None:
            raise click.ClickException(why)
        for line in filter(None, (plan.describe(), less(plan, wire))):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        # Not removed if anything is raised on the way: it may be all that is left of a run.
        folder = Path(tempfile.mkdtemp(prefix="mdserver-chaos-"))
        outcome = self._outcome(part, wire, folder)
        if outcome is not None:
            self.made.append((part.name, outcome))
            self.interrupted |= outcome.interrupted
            console.print(summary(outcome, wire))
            if outcome.interrupted:
                done = sum(outcome.happened.values())
                console.print(
                    f"interrupted after {done} of {len(plan.faults)} faults: judged is what was "
                    "seen until then, and nothing had to come to rest"
                )
            for problem in outcome.problems[:PROBLEMS_SHOWN]:
                console.print(f"FAILED {problem}", markup=False, soft_wrap=True)
            if self.keep_all or outcome.problems:
                kept = self.keep / part.folder
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(RELEASE_FOLDER))
                console.print(f"history and logs: {kept}", markup=False, soft_wrap=True)
        shutil.rmtree(folder, ignore_errors=True)

    def _outcome(self, part: Part, wire: Wire, folder: Path) -> Outcome | None:
        """Make a run. An error of the harness is a finding; None if it is only left out."""
        step = partial(self.progress, part)
        try:
            return trio.run(run, part.plan, wire, folder, step, lambda: self.interrupted)
        except Exception as error:
            causes = list(leaves(error))
            if self.leaves_out and all(isinstance(cause, NoDiskError) for cause in causes):
                said = f"NOT RUN, profile {part.name}: no disks: {causes[0]}"
                self.console.print(said, markup=False, soft_wrap=True)
                return None
            self.broken = True
            written = "".join(traceback.format_exception(error))
            (folder / "harness.txt").write_text(written, encoding="utf-8")
            said = "; ".join(f"{type(cause).__name__}: {cause}" for cause in causes)
            return Outcome(part.plan, problems=[f"harness: {said}"])

    def progress(self, part: Part, faults: int) -> None:
        """Say how far a run has come, after so many of its faults."""
        elapsed_s = time.monotonic() - self.began_s
        line = f"{part.name}, seed {part.plan.seed}: fault {faults} of {len(part.plan.faults)}"
        line += f", {clock_of(elapsed_s)} elapsed"
        if self.seconds is not None:
            line += f", {clock_of(max(0.0, self.seconds - elapsed_s))} left"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def leaves(error: Exception) -> Iterator[Exception]:
    """Yield what went wrong, out of the groups into which nurseries put it."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def clock_of(seconds: float) -> str:
    """Return minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


async def run(
    plan: Plan,
    wire: Wire,
    folder: Path,
    step: Callable[[int], None],
    interrupted: Callable[[], bool],
) -> Outcome:
    """One run, inside Trio."""
    return await Chaos(plan, wire, folder, step).run(interrupted)


def choose(network: str, told: Console) -> Callable[[int], Wire]:
    """What makes a network for so many members.

    This process begins anew in a namespace where that is what it takes.
    """
    if os.environ.get(INSIDE):
        return Namespaces
    why = "it was asked for" if network == "loopback" else namespaces.missing()
    if why is None:
        sys.stdout.flush()
        os.environ[INSIDE] = "1"
        arguments = [*namespaces.unsharing(), sys.executable, "-m", "simulation", *sys.argv[1:]]
        os.execvp(arguments[0], arguments)  # noqa: S606 - no shell is what we want
    if network == "namespaces":
        raise click.ClickException(f"no network namespaces: {why}")
    told.print(f"[bold]NO NETWORK NAMESPACES[/bold], plain processes behind the proxy: {why}")
    return Loopback


def summary(outcome: Outcome, wire: Wire) -> Table:
    """What was done, in figures."""
    table = Table(title=f"Chaos, seed {outcome.plan.seed}: {wire.told}")
    table.add_column("what")
    table.add_column("figure", justify="right")
    for kind in outcome.plan.kinds:
        skipped = outcome.skipped[kind]
        after = f" (and {skipped} not possible in time)" if skipped else ""
        table.add_row(f"fault: {kind}{after}", str(outcome.happened[kind]))
    for name, figure in outcome.figures.items():
        table.add_row(name, figure)
    table.add_row("problems", str(len(outcome.problems)))
    return table
