"""`python -m spec check` and `python -m spec traces FILE...`."""

import sys
from pathlib import Path

import click

from spec import check as checking
from spec import models, tlc, traces


@click.group(help="The TLA+ specification of the cluster protocol.")
def main() -> None:
    """The group of both commands."""


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
def check_traces(files: tuple[Path, ...]) -> None:
    """Check recorded runs (JSON lines) against the specification."""
    verdict = traces.check([run for file in files for run in traces.read(file)])
    for bad in verdict.rejected:
        click.echo(f"{bad.name}: line {bad.number}: no action explains {bad.line}")
    click.echo(
        f"{verdict.runs} runs, {verdict.events} events, {len(verdict.rejected)} rejected, "
        f"{verdict.seconds:.1f} s"
    )
    if verdict.rejected:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except (tlc.TlcUnavailableError, traces.BadTraceError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
