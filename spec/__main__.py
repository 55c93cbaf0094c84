"""`python -m spec check` and `python -m spec traces FILE...`."""

import signal
import sys
from pathlib import Path

import click

from spec import check as checking
from spec import models, tlc, traces
from spec import spoilt as making_false


@click.group(help="The TLA+ specification of the cluster protocol.")
def main() -> None:
    """The group of both commands, which SIGTERM ends as an exit would, so that TLC ends as well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@main.command()
@click.option("--quick", "profile", flag_value="quick", help="Only what takes seconds.")
@click.option("--full", "profile", flag_value="full", help="Everything; about an hour.")
@click.option("--only", default="", help="Models whose name contains this text.")
@click.option("--jobs", type=int, help="Models at a time (default: the number of cores).")
def check(profile: str | None, only: str, jobs: int | None) -> None:
    """Check the models with TLC: those that must hold, the witnesses, the mutants."""
    profile = profile or "ci"
    chosen = tuple(m for m in models.chosen(profile) if only in m.name)
    if not chosen:
        raise click.UsageError(f"no model of profile {profile} has {only!r} in its name")
    if not checking.check_models(chosen, profile, jobs):
        sys.exit(1)


@main.command(name="traces")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--spoilt", is_flag=True, help="Check too that each run is rejected once changed.")
@click.option(
    "--least",
    type=click.FloatRange(0, 100),
    default=99.0,
    show_default=True,
    help="How many percent of the lines have to be judged.",
)
def check_traces(files: tuple[Path, ...], *, spoilt: bool, least: float) -> None:
    """Check recorded runs (JSON lines) against the specification.

    Which lines are not judged is said: those behind some changes of the seeds.
    """
    runs = [run for file in files for run in traces.read(file)]
    verdict = traces.check(runs)
    for bad in verdict.rejected:
        click.echo(f"{bad.name}: line {bad.number}: no action explains {bad.line}")
    click.echo(
        f"{verdict.runs} runs, {verdict.events} events, {len(verdict.rejected)} rejected, "
        f"{verdict.seconds:.1f} s"
    )
    missed = check_spoilt(runs) if spoilt and not verdict.rejected else 0
    if verdict.rejected or missed or told_left_out(runs) < least:
        sys.exit(1)


def told_left_out(runs: list[traces.Recorded]) -> float:
    """Say which lines were not judged; return the percentage of those that were."""
    for run in runs:
        if run.left_out:
            first, line = run.left_out[0]
            click.echo(
                f"{run.name}: {len(run.left_out)} steps from line {first} on are not judged: "
                f"{line['name']} of {line['node']} is of a change of seeds that TraceLog lacks"
            )
    left_out = sum(len(run.left_out) for run in runs)
    judged = sum(len(run.lines) for run in runs)
    share = 100 * judged / (judged + left_out) if judged + left_out else 100.0
    if left_out:
        click.echo(f"{left_out} of {judged + left_out} steps are not judged ({share:.1f} % are)")
    return share


def check_spoilt(runs: list[traces.Recorded]) -> int:
    """Check that changed runs are rejected at the line of the change; how many are not."""
    wrong = making_false.spoilt(runs)
    verdict = traces.check([one.run for one in wrong])
    rejected = {bad.name: bad.number for bad in verdict.rejected}
    missed = [one for one in wrong if rejected.get(one.run.name) != one.number]
    for one in missed:
        found = rejected.get(one.run.name)
        where = "explained" if found is None else f"rejected at line {found}"
        click.echo(f"{one.run.name}: line {one.number} is wrong, but the run is {where}")
    click.echo(
        f"{len(wrong)} runs with a line deleted, swapped or altered: {len(wrong) - len(missed)} "
        f"rejected there, {verdict.seconds:.1f} s"
    )
    return len(missed)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The whole run.")
def merge(files: tuple[Path, ...], output: Path) -> None:
    """Make one run of the files that the members of a cluster wrote (`mdserver run --trace`)."""
    lines = traces.merged(files)
    output.write_text("".join(lines), encoding="utf-8")
    click.echo(f"{len(lines)} steps of {len(files)} members")


if __name__ == "__main__":
    try:
        main()
    except (tlc.TlcUnavailableError, traces.BadTraceError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
