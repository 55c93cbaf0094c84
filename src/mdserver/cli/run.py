"""`mdserver run`: run one server until a signal ends it."""

import gc
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import structlog
import trio

from mdserver.cli.configuration import configuration_options, effective
from mdserver.config import Config, Loaded
from mdserver.config.concerns import concerns
from mdserver.config.reloading import Reload
from mdserver.errors import ConfigError, MdserverError, StartError, leaves
from mdserver.journal.rotating import LineWriter
from mdserver.limits import NS_PER_S
from mdserver.server.app import App, build
from mdserver.server.collector import spare_collector
from mdserver.server.logs import server_log, set_level
from mdserver.server.privileges import take_no_new_privileges
from mdserver.server.sockets import SocketFactory
from mdserver.server.start_checks import limited, unusable
from mdserver.server.systemd import listen_first_on, systemd

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
log = structlog.get_logger()


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
    if trace is not None and config.workers != 0:
        raise ConfigError("--trace: a server with workers writes no trace, so set Workers = 0")
    with server_log(config) as lines:
        for concern in (*concerns(loaded), *limited(loaded.config)):
            log.warning("see to this", reason=concern)
        try:
            trio.run(serve, config, read, trace, lines)
        except BaseExceptionGroup as group:
            # A deliberate error is one line for the user; the group around it would be a traceback.
            ours = [error for error in leaves(group) if isinstance(error, MdserverError)]
            raise ours[0] if ours else group from None


async def serve(
    config: Config, read: Callable[[], Loaded], trace: Path | None, lines: LineWriter
) -> None:
    """Serve until a signal; on SIGHUP read the configuration again by `read`."""
    gc.disable()  # nothing made during the start becomes garbage, and a journal may be very large
    supervisor = systemd()
    listen, left = listen_first_on(supervisor.sockets)
    sockets = SocketFactory(listen=listen, held=supervisor.sockets)
    try:
        app = build(config, trace=trace, log_writer=lines, sockets=sockets)
    except (ConfigError, StartError) as error:
        # A start ends at the first mistake. Report the others as well, so that all of them can be
        # corrected before the next start.
        mistakes = dict.fromkeys((str(error), *unusable(config)))
        raise type(error)("\n".join(mistakes)) from None
    app.orders.reload = partial(reload, app, read)
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            urls = await nursery.start(app.serve)
            spare_collector()
            for sock in left:
                log.warning("socket not used", address=str(sock.getsockname()))
            served = "" if app.workers is None else f" ({len(app.workers.slots)} workers)"
            click.echo(f"mdserver ready: {' '.join(urls)}{served}")
            nursery.start_soon(supervisor.keep_alive)
            supervisor.ready()
            async for number in signals:
                if number == signal.SIGHUP:
                    supervisor.reloading()
                    reload(app, read)
                    supervisor.ready()
                    continue
                log.info("ending", signal=signal.Signals(number).name)
                supervisor.stopping(app.server.settings.drain_timeout / NS_PER_S)
                if app.server.unready:
                    break  # the second signal ends the server at once
                nursery.start_soon(drain, app, nursery.cancel_scope)
            nursery.cancel_scope.cancel()


async def drain(app: App, scope: trio.CancelScope) -> None:
    """Drain the server, then cancel `scope`, in which it serves."""
    await app.drain()
    scope.cancel()


def reload(app: App, read: Callable[[], Loaded]) -> Reload:
    """Read the configuration again; a mistake in it changes nothing and is logged."""
    try:
        done = app.reload(read().config)
    except (ConfigError, StartError) as error:
        log.error("reload refused", reason=str(error))
        return Reload(app.config, (), (), str(error))
    set_level(app.config.log_level)
    return done
