"""`mdserver check-config`: print the effective configuration and the origin of each value."""

import json
from pathlib import Path

import attrs
import click

from mdserver.cli.configuration import configuration_options, effective
from mdserver.cli.forms import format_option
from mdserver.cli.memory import bounds, table
from mdserver.config import PARAMETERS
from mdserver.config.concerns import concerns
from mdserver.errors import ConfigError
from mdserver.server.clients.admission import lowered
from mdserver.server.clients.fanout import open_fanout
from mdserver.server.settings import worker_count
from mdserver.server.start_checks import limited, unusable


@click.command("check-config")
@configuration_options
@format_option("A line a parameter, or one JSON object: each name with its value and origin.")
@click.option(
    "--memory", is_flag=True, help="What clients can have the server keep, in bytes, and the sums."
)
def command(file: Path | None, overrides: tuple[str, ...], form: str, *, memory: bool) -> None:
    """Print the effective configuration and where each value comes from.

    One parameter a line: name, value, origin. Values of secret parameters are not shown. What
    should be seen to stands on stderr, one line each that begins with `warning:`. Files and classes
    that parameters name are looked at as well. Exit status 2, and one line on stderr for each
    mistake, if something is wrong. If the limit of open files allows fewer connections than
    MaxConnections, their number stands beside it; beside Workers = auto, how many these are.
    """
    loaded = effective(file, overrides)
    if memory:
        rows = [attrs.asdict(bound) for bound in bounds(loaded.config)]
        printed = [json.dumps(rows)] if form == "json" else table(loaded.config)
        click.echo("\n".join(printed))
        return
    texts = {
        name: text
        for row in PARAMETERS.values()
        for name, text in row.shown(getattr(loaded.config, row.attribute)).items()
    }
    workers = worker_count(loaded.config)
    possible = lowered(loaded.config.max_connections, workers or 1)
    engine = open_fanout(loaded.config.fanout_engine).engine
    if form == "json":
        shown: dict[str, dict[str, object]]
        shown = {n: {"value": text, "origin": loaded.origins[n]} for n, text in texts.items()}
        if possible is not None:
            shown["MaxConnections"]["effective"] = possible
        shown["FanoutEngine"]["effective"] = engine.value
        shown["Workers"]["effective"] = workers
        click.echo(json.dumps(shown))
    else:
        lines = {name: f"{name} = {text}".rstrip() for name, text in texts.items()}
        width = max(len(line) for line in lines.values())
        beside = dict(loaded.origins)
        if possible is not None:
            beside["MaxConnections"] += f"; at most {possible}, for the limit of open files"
        if engine is not loaded.config.fanout_engine:
            beside["FanoutEngine"] += f"; {engine.value} is in force"
        if loaded.config.workers is None:
            beside["Workers"] += f"; {workers} on this machine"
        for name, line in lines.items():
            click.echo(f"{line:<{width}}  # {beside[name]}")
    for concern in (*concerns(loaded), *limited(loaded.config)):
        click.echo(f"warning: {concern}", err=True)
    mistakes = unusable(loaded.config)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
