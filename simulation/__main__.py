"""`python -m simulation`: runs, and what looks for plans and bugs (`--help` names the commands)."""

import logging
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice, repeat
from pathlib import Path

import click
import structlog
from attrs import evolve
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from mdserver.cluster.guards import Guard
from simulation import coverage, guards
from simulation.chaos import releases
from simulation.chaos.command import chaos
from simulation.counterexamples import CODE
from simulation.counterexamples import counterexample as find_counterexample
from simulation.diagram import diagram
from simulation.explore import beginnings
from simulation.explore import explore as explore_plans
from simulation.fresh import commit_of, first_seed
from simulation.kafka_run import run_kafka
from simulation.levels import LEVELS
from simulation.minimise import minimise as make_smaller
from simulation.mutants import ALL, MUTANTS, Hunt, hunt
from simulation.plan import Plan, make
from simulation.processes import collect_seldom, pool
from simulation.profiles import PROFILES
from simulation.run import Result
from simulation.run import run as run_plan
from simulation.stored import StoredPlan, load, save
from simulation.world import World

TROUBLES_SHOWN = 10
EXPLORED = Path("build/explored")
SERVERS = 3  # the level of whole servers
BETWEEN_VERSIONS = ("upgrade", "upgrade-to-the-next")


def plan_of(seed: int, level: int, profile: str | None) -> Plan:
    """The plan of a seed: everything drawn, or after a profile."""
    return PROFILES[profile](seed) if profile else LEVELS[level].plan(seed)


def run_seed(seed: int, level: int, profile: str | None) -> Result:
    """One seed's result; at module level, so that it can run in another process."""
    return LEVELS[level].run(plan_of(seed, level, profile))[0]


def hunt_number(number: int, most: int) -> Hunt:
    """Look for one of the deliberate bugs; at module level, so that another process can do it."""
    return hunt(MUTANTS[number], range(1, most + 1))


level_option = click.option(
    "--level",
    type=click.IntRange(1, 3),
    default=1,
    show_default=True,
    help="1: the state machines; 2: links carry pieces of frames; 3: whole servers.",
)

profile_option = click.option(
    "--profile", type=click.Choice(list(PROFILES)), help="Directed plans, not random ones."
)


@click.group(help="The deterministic simulator of the cluster.")
def main() -> None:
    """The group of all commands."""
    # What servers say of their clients, with the time of the day, is no part of a result.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


@main.command()
@click.option("--seeds", default=1000, show_default=True, help="How many seeds.")
@click.option("--first", default=1, show_default=True, help="The first of them.")
@click.option("--fresh", is_flag=True, help="Seeds that are new with each commit.")
@click.option("--jobs", type=int, help="Processes (default: the number of cores).")
@click.option("--diagrams", type=click.Path(path_type=Path), help="Folder for failing runs' SVGs.")
@level_option
@profile_option
def run(
    seeds: int,
    first: int,
    fresh: bool,
    jobs: int | None,
    diagrams: Path | None,
    level: int,
    profile: str | None,
) -> None:
    """Run so many seeds, and at level 1 the stored plans; exit 1 if any fails.

    Without the history of git there is no release before, and nothing to do for --profile upgrade:
    that is said, and fails with CI set if the history is whole.
    """
    if level == SERVERS and profile in BETWEEN_VERSIONS:
        raise click.UsageError(f"at level {SERVERS} all members are of this version")
    if profile == "upgrade" and releases.missing():
        sys.exit(without_release("nothing was run"))
    plans_need_it = level == 1 and not profile
    absent = plans_need_it and without_release("stored plans with members of it were not run")
    if fresh:
        commit = commit_of()
        first = first_seed(commit, first)
        click.echo(f"seeds from {first} on, of commit {commit[:12] or 'none: they are not fresh'}")
    chosen = list(range(first, first + seeds))
    console, errors = Console(), Console(stderr=True)
    began = time.monotonic()
    results: list[Result] = []
    counted: Counter[str] = Counter()
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("seeds", total=len(chosen))
        for result in run_all(chosen, jobs or os.cpu_count() or 1, level, profile):
            counted.update(result.coverage)
            results.append(evolve(result, coverage={}))  # of 100,000 seeds they take a gigabyte
            progress.advance(task)
    seconds = time.monotonic() - began
    console.print(summary(results, seconds))
    unreached: list[str] = []
    if level == 1 and not profile:
        unreached = check_guards(console, counted, jobs or os.cpu_count() or 1, seeds)
    failed = [result for result in results if result.problems]
    for result in failed[:TROUBLES_SHOWN]:
        console.print(f"seed {result.seed}: {result.problems[0]}", markup=False, soft_wrap=True)
        if diagrams:
            again = LEVELS[level].run(plan_of(result.seed, level, profile))
            draw(diagrams / f"seed-{result.seed}.svg", *again)
    never = coverage.missing(counted) if seeds >= coverage.LONG_RUN and not profile else []
    if never:
        console.print(f"never happened: {', '.join(never)}")
    if unreached:
        console.print(f"never refused, or a stored plan failed: {', '.join(unreached)}")
    if failed:
        console.print(
            f"replay one with: python -m simulation replay --level {level} "
            + (f"--profile {profile} " if profile else "")
            + str(failed[0].seed)
        )
    sys.exit(1 if failed or never or unreached or absent else 0)


def without_release(left_out: str) -> bool:
    """Say what is left out if the release before is not here; return whether that is a failure."""
    why = releases.missing()
    if why is None:
        return False
    click.echo(f"NO RELEASE BEFORE, {left_out}: {why}", err=True)
    return releases.expected()


def check_guards(console: Console, counted: Counter[str], jobs: int, seeds: int) -> list[str]:
    """Run the stored plans; return what failed in them, and which guards never refused anything.

    Few seeds are not expected to reach anything: then only the stored plans say something.
    """
    wrong: list[str] = []
    reached: Counter[Guard] = Counter()
    plans = load()
    with pool(jobs) as workers:
        for name, result in zip(plans, workers.map(guards.reached_by, plans.values()), strict=True):
            reached.update(guards.refusals(result.coverage))
            wrong += [f"{name}: {problem}" for problem in result.problems]
    drawn = guards.refusals(counted)
    if seeds < coverage.LONG_RUN:
        return wrong
    console.print(guards.table(reached, drawn))
    return wrong + [guard.value for guard in guards.unreached([reached, drawn])]


def run_all(seeds: list[int], jobs: int, level: int, profile: str | None) -> Iterator[Result]:
    """The results of seeds, in their order."""
    if jobs == 1:
        collect_seldom()
        yield from map(run_seed, seeds, repeat(level), repeat(profile))
        return
    with pool(jobs) as workers:
        yield from workers.map(run_seed, seeds, repeat(level), repeat(profile), chunksize=4)


def summary(results: list[Result], seconds: float) -> Table:
    """What was done, in figures."""
    table = Table(title="Simulation")
    table.add_column("what")
    table.add_column("figure", justify="right")
    simulated = sum(r.simulated for r in results) / 1e9
    rows = {
        "seeds": f"{len(results):,}",
        "failed": f"{sum(bool(r.problems) for r in results):,}",
        "seeds a second": f"{len(results) / seconds:.1f}",
        "events": f"{sum(r.events for r in results):,}",
        "protocol steps": f"{sum(r.steps for r in results):,}",
        "publications acknowledged": f"{sum(r.acked for r in results):,}",
        "messages delivered": f"{sum(r.delivered for r in results):,}",
        "simulated time": f"{simulated / 3600:.2f} h",
        "real time": f"{seconds:.1f} s",
        "simulated hours a real second": f"{simulated / 3600 / seconds:.4f}",
    }
    for name, figure in rows.items():
        table.add_row(name, figure)
    return table


def draw(path: Path, result: Result, world: World) -> None:
    """Write a run's diagram."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(diagram(result, world), encoding="utf-8")


@main.command()
@click.argument("seed", type=int)
@click.option("--trace", type=click.Path(path_type=Path), help="Write the protocol steps there.")
@click.option("--diagram", "svg", type=click.Path(path_type=Path), help="Write an SVG there.")
@level_option
@profile_option
def replay(
    seed: int, trace: Path | None, svg: Path | None, level: int, profile: str | None
) -> None:
    """Run one seed again and tell what happened."""
    why = releases.missing()
    if profile == "upgrade" and why is not None:
        raise click.ClickException(f"no release before: {why}")
    plan = plan_of(seed, level, profile)
    click.echo(plan.describe())
    result, world = LEVELS[level].run(plan)
    for problem in result.problems:
        click.echo(f"FAILED {problem}")
    click.echo(
        f"{result.events} events, {result.steps} steps, {result.acked} acknowledged, "
        f"{result.delivered} delivered, {result.simulated / 1e9:.1f} s simulated"
    )
    if trace:
        trace.write_text(world.trace_lines(), encoding="utf-8")
    if svg:
        draw(svg, result, world)
    click.echo(f"trace hash: {result.trace_hash}")
    sys.exit(1 if result.problems else 0)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--runs", default=50, show_default=True, help="How many.")
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--publications", default=20, show_default=True, help="At most so many a run.")
def traces(folder: Path, runs: int, first: int, publications: int) -> None:
    """Write the protocol steps of many short runs, for `python -m spec traces`.

    A single server needs no vote file, so its restart is nothing that the modules know: seeds that
    make one are passed over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clusters = (plan for plan in map(make, count(first)) if plan.members > 1)
    for plan in islice(clusters, runs):
        result, world = run_plan(
            plan.with_parts(list(plan.faults), list(plan.sendings[:publications]))
        )
        (folder / f"{plan.seed}.jsonl").write_text(world.trace_lines(), encoding="utf-8")
        for problem in result.problems:
            click.echo(f"seed {plan.seed}: {problem}")


@main.command()
@click.option("--most", default=200, show_default=True, help="Runs for each bug at most.")
@click.option("--jobs", type=int, help="Processes (default: the number of cores).")
def mutants(most: int, jobs: int | None) -> None:
    """Find each deliberate bug of simulation/mutants.py; exit 1 if one is not found."""
    console, errors = Console(), Console(stderr=True)
    table = Table("bug", "found by", "what showed it", title="Deliberate bugs")
    for column in ("runs", "seconds"):
        table.add_column(column, justify="right")
    missed = False
    with (
        Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress,
        pool(jobs) as workers,
    ):
        task = progress.add_task("bugs", total=len(MUTANTS))
        for one in workers.map(hunt_number, range(len(MUTANTS)), repeat(most)):
            missed |= one.found is None
            seed, showed = (
                ("nothing", "")
                if one.found is None
                else (f"{one.plan} {one.found.seed}", one.found.kinds[0])
            )
            table.add_row(one.title, seed, showed, str(one.runs), f"{one.seconds:.1f}")
            progress.advance(task)
    console.print(table)
    left_out = len(ALL) - len(MUTANTS)
    sys.exit(missed | without_release(f"{left_out} bugs that show beside it were not looked for"))


@main.command()
@click.option("--seconds", default=60.0, show_default=True, help="How long.")
@click.option("--random", "number", default=1, show_default=True, help="What changes come from.")
@click.option("--jobs", type=int, help="Processes (default: the number of cores).")
@click.option("--store", type=click.Path(path_type=Path), help="Folder for plans of new guards.")
def explore(seconds: float, number: int, jobs: int | None, store: Path | None) -> None:
    """Change plans and keep those that reach something new; exit 1 if any fails.

    Plans that fail, and with --store the first to reach a guard that no stored plan reaches, are
    written whole: `minimise` takes seeds only.
    """
    reached = {Guard[name] for stored in load().values() for name in stored.reaches}
    counted: Counter[Guard] = Counter()
    began, runs, kept, failed = time.monotonic(), 0, 0, 0
    for one, new in explore_plans(random.Random(number), jobs or os.cpu_count() or 1, beginnings()):
        runs += 1
        kept += new
        counted.update(one.guards)
        for guard in one.guards:
            if guard not in reached and store:
                reached.add(guard)
                name = f"{guard.name.lower().replace('_', '-')}-{runs}"
                save(name, StoredPlan(about="", reaches=(guard.name,), plan=one.plan), store)
        if one.problems:
            failed += 1
            path = save(f"failed-{runs}", StoredPlan(about="", plan=one.plan), store or EXPLORED)
            click.echo(f"{path}: {one.problems[0]}")
        if time.monotonic() - began > seconds:
            break
    never = [guard.name for guard in Guard if not counted[guard]]
    click.echo(f"{runs:,} runs, {kept:,} plans reached something new, {failed:,} failed")
    click.echo(f"guards that refused nothing: {', '.join(never) or 'none'}")
    sys.exit(1 if failed else 0)


@main.command()
@click.argument("seed", type=int)
@click.option("--diagram", "svg", type=click.Path(path_type=Path), help="Write an SVG there.")
@level_option
def minimise(seed: int, svg: Path | None, level: int) -> None:
    """Leave out what a failing seed does not need to fail."""
    plan, run = LEVELS[level].plan(seed), LEVELS[level].run
    result = run(plan)[0]
    if not result.problems:
        click.echo(f"seed {seed} passes: there is nothing to make smaller")
        return
    small, result = make_smaller(plan, result, run)
    click.echo(small.describe())
    for sending in small.sendings:
        click.echo(
            f"  {sending.at / 1e9:8.3f} s pub{sending.publisher} publishes to /s/{sending.subject}"
        )
    for problem in result.problems:
        click.echo(f"FAILED {problem}")
    if svg:
        draw(svg, *run(small))


@main.command()
@click.argument("rule", type=click.Choice(list(CODE)))
@click.option("--store", type=click.Path(path_type=Path), help="Write the plan to this folder.")
def counterexample(rule: str, store: Path | None) -> None:
    """Have TLC refute the model without RULE, and lead a run along its counterexample.

    The run has to pass; it would fail without the same rule in the code (tests/simulation).
    """
    stored = find_counterexample(rule)
    click.echo(stored.plan.describe())
    result, _ = run_plan(stored.plan)
    for problem in result.problems:
        click.echo(f"FAILED {problem}")
    taken = result.coverage.get("led to a step", 0)
    click.echo(f"the members took {taken} of {len(stored.plan.led)} steps as they are")
    if store:
        click.echo(str(save(rule.replace(" ", "-"), stored, store)))
    sys.exit(1 if result.problems else 0)


@main.command()
@click.option("--seeds", default=1000, show_default=True, help="How many seeds.")
@click.option("--first", default=1, show_default=True, help="The first of them.")
@click.option("--jobs", type=int, help="Processes (default: the number of cores).")
def kafka(seeds: int, first: int, jobs: int | None) -> None:
    """Run members whose log is Kafka, under retention, compaction, retries and kills."""
    failed, seen = 0, Counter[str]()
    with pool(jobs) as workers:
        for result in workers.map(run_kafka, range(first, first + seeds), chunksize=16):
            seen.update(result.coverage)
            seen.update(delivered=result.delivered, acknowledged=result.acked)
            failed += bool(result.problems)
            if result.problems and failed <= TROUBLES_SHOWN:
                click.echo(f"seed {result.seed}: {result.problems[0]}")
    click.echo(", ".join(f"{what} {count:,}" for what, count in sorted(seen.items())))
    click.echo(f"{seeds:,} seeds, {failed:,} failed")
    sys.exit(1 if failed else 0)


main.add_command(chaos)

if __name__ == "__main__":
    main()
