"""`mdserver stats`: the statistics of a member."""

import json
from pathlib import Path

import click

from mdserver.cli.forms import format_option
from mdserver.cli.monitor import ask, ask_text, monitor_options
from mdserver.cli.terminal import harmless


@click.command("stats")
@monitor_options
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@format_option("Tables for people, or the whole document as a JSON object.")
def command(monitor: str, credentials: Path | None, as_json: bool, form: str) -> None:
    """Print the statistics of a member: rates over twelve windows, latencies, refusals."""
    if as_json or form == "json":
        click.echo(json.dumps(ask(monitor, credentials, "GET", "/statistics")))
    else:
        click.echo(harmless(ask_text(monitor, credentials, "/statistics", {})), nl=False)
