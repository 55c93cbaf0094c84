"""`mdserver run`: one server, until it is told to end."""

import gc
import random
import signal
from pathlib import Path

import click
import structlog
import trio

from mdserver.cli.configured import (
    broker_settings,
    configuration_options,
    effective,
    server_settings,
)
from mdserver.cli.logs import server_log
from mdserver.cluster.node import Node
from mdserver.config import Config
from mdserver.errors import MdserverError
from mdserver.http.router import Router
from mdserver.net.server import Server

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@click.command("run")
@configuration_options
def command(file: Path | None, overrides: tuple[str, ...]) -> None:
    """Run a server until SIGTERM or Ctrl-C.

    Once every listener accepts, one line on stdout says so: `mdserver ready:` and their URLs.
    """
    config = effective(file, overrides).config
    with server_log(config):
        try:
            trio.run(serve, config)
        except BaseExceptionGroup as group:
            raise first_told(group) or group from None


async def serve(config: Config) -> None:
    """Serves until a signal; raises what keeps the server from starting."""
    log = structlog.get_logger()
    node = Node(broker_settings(config), random.SystemRandom())
    server = Server(server_settings(config), node, Router(), log)
    with trio.open_signal_receiver(*END_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            urls = await nursery.start(server.serve)
            # What was made so far lives as long as the process: the collector need not look again.
            gc.collect()
            gc.freeze()
            click.echo(f"mdserver ready: {' '.join(urls)}")
            log.info("ready", urls=urls)
            async for number in signals:
                log.info("ending", signal=signal.Signals(number).name)
                break
            nursery.cancel_scope.cancel()


def first_told(group: BaseExceptionGroup[BaseException]) -> MdserverError | None:
    """The first error in a group that was made to be told to the user."""
    for error in group.exceptions:
        told = first_told(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(told, MdserverError):
            return told
    return None
