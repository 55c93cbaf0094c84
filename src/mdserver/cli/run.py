"""`mdserver run`: one server, until it is told to end."""

from functools import partial
from pathlib import Path

import click
import structlog
import trio

from mdserver.cli.configuration import configuration_options, effective
from mdserver.config.concerns import concerns
from mdserver.errors import MdserverError, leaves
from mdserver.server.app import serve
from mdserver.server.logs import server_log
from mdserver.server.privileges import take_no_new_privileges
from mdserver.server.start_checks import limited


@click.command("run")
@configuration_options
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append every step of the cluster protocol to this file, for `python -m spec traces`.",
)
def command(file: Path | None, overrides: tuple[str, ...], trace: Path | None) -> None:
    """Run a server until SIGTERM or Ctrl-C.

    Once every listener accepts, one line on stdout says so: `mdserver ready:` and their URLs.
    """
    read = partial(effective, file, overrides)
    take_no_new_privileges()
    loaded = read()
    config = loaded.config
    with server_log(config) as lines:
        for concern in (*concerns(loaded), *limited(loaded.config)):
            structlog.get_logger().warning("see to this", reason=concern)
        try:
            trio.run(serve, config, read, trace, lines)
        except BaseExceptionGroup as group:
            # What was raised to be read by the user says more than the group around it.
            ours = [error for error in leaves(group) if isinstance(error, MdserverError)]
            raise ours[0] if ours else group from None
