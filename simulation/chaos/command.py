"""`python -m simulation chaos`."""

import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import click
import trio
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from simulation.chaos import namespaces, releases
from simulation.chaos.cluster import RELEASE_FOLDER
from simulation.chaos.loopback import Loopback
from simulation.chaos.members import fake_clock
from simulation.chaos.namespaces import Namespaces
from simulation.chaos.plan import (
    BLACKOUT,
    CLOCK,
    HALF_CUT,
    OTHER_KINDS,
    PROCESS_KINDS,
    Plan,
    make,
    make_configuration,
    make_journal,
    make_members,
    make_upgrade,
)
from simulation.chaos.run import Chaos, Outcome
from simulation.chaos.wire import Wire

PROFILES = ("mixed", "journal", "configuration", "upgrade", "members")
ROUNDS = {
    "journal": make_journal,
    "configuration": make_configuration,
    "upgrade": make_upgrade,
    "members": make_members,
}
"""The profiles of three seeds, whose faults come in rounds."""
NETWORKS = ("auto", "namespaces", "loopback")
INSIDE = "CHAOS_NAMESPACE"  # set once this process is alone in its namespace
PROBLEMS_SHOWN = 20
INTERRUPTED = 130


@click.command("chaos")
@click.option(
    "--seconds",
    default=60,
    show_default=True,
    type=click.IntRange(5, 3600),
    help="How long faults go on.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="mixed",
    show_default=True,
    help="Three seeds with a journal, in rounds. `journal`: all end together. `configuration`: "
    "they are started with a parameter of another identity, and it is set back. `upgrade`: they "
    "begin with the release before, and one after the other is stopped and started with this one. "
    "`members`: without a journal, and with a fourth member: seeds move to other addresses, the "
    "fourth comes and goes, others are killed.",
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
@click.option("--keep-all", is_flag=True, help="Keep those of a run that passes, too.")
def chaos(
    seconds: int,
    profile: str,
    rounds: int,
    seed: int,
    members: int,
    network: str,
    only: tuple[str, ...],
    keep: Path,
    *,
    keep_all: bool,
) -> None:
    """Real server processes under partitions, pauses and kills; exit 1 on any finding."""
    if profile in ROUNDS:
        members = 4 if profile == "members" else 3
    told = Console(stderr=True)
    wire = choose(network, members, told)
    clock = fake_clock()
    if clock is None:
        told.print("[bold]NO CLOCK JUMPS[/bold]: libfaketime is missing (package libfaketime)")
    try:
        if profile in ROUNDS:
            plan = ROUNDS[profile](seed, rounds)
        else:
            plan = make(seed, seconds, members, clocks=clock is not None, only=only)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    why = releases.missing() if plan.upgraded else None
    if why is not None:
        raise click.ClickException(f"no upgrade: {why}")
    console = Console()
    console.print(plan.describe(), markup=False, highlight=False, soft_wrap=True)
    folder = Path(tempfile.mkdtemp(prefix="mdserver-chaos-"))
    try:
        with Progress(console=told, transient=True, disable=not told.is_terminal) as progress:
            task = progress.add_task("chaos", total=plan.seconds)
            step = partial(progress.advance, task)
            outcome = trio.run(run, plan, wire, folder, step)
        console.print(summary(outcome, wire))
        for problem in outcome.problems[:PROBLEMS_SHOWN]:
            console.print(f"FAILED {problem}", markup=False, soft_wrap=True)
        if keep_all or outcome.problems:
            kept = keep / f"{'' if profile == 'mixed' else profile + '-'}seed-{seed}-{members}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(RELEASE_FOLDER))
            console.print(f"history and logs: {kept}", markup=False, soft_wrap=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(INTERRUPTED if outcome.interrupted else 1 if outcome.problems else 0)


async def run(plan: Plan, wire: Wire, folder: Path, step: "partial[None]") -> Outcome:
    """One run, inside Trio."""
    return await Chaos(plan, wire, folder, step).run()


def choose(network: str, members: int, told: Console) -> Wire:
    """The network; this process begins anew in a namespace where that is what it takes."""
    if os.environ.get(INSIDE):
        return Namespaces(members)
    why = "it was asked for" if network == "loopback" else namespaces.missing()
    if why is None:
        sys.stdout.flush()
        os.environ[INSIDE] = "1"
        arguments = [*namespaces.unsharing(), sys.executable, "-m", "simulation", *sys.argv[1:]]
        os.execvp(arguments[0], arguments)  # noqa: S606 - no shell is what we want
    if network == "namespaces":
        raise click.ClickException(f"no network namespaces: {why}")
    told.print(f"[bold]NO NETWORK NAMESPACES[/bold], plain processes behind the proxy: {why}")
    return Loopback(members)


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
