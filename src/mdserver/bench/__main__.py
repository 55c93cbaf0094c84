"""`python -m mdserver.bench`: measures the server on this computer, over loopback only."""

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from mdserver.bench import fanout as fanout_bench
from mdserver.bench import results
from mdserver.bench.encodings import ENCODINGS
from mdserver.errors import MdserverError

SUBSCRIBERS_MAX = 100_000
SECONDS_MAX = 3600.0
CONTENT_BYTES_MAX = 16 * 1024

_console = Console(stderr=True)  # rates go to stdout, what is under way to stderr

json_option = click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append a JSON line for each measurement to this file.",
)
encoding_option = click.option(
    "--encoding",
    type=click.Choice(sorted(ENCODINGS)),
    default=sorted(ENCODINGS)[0],
    show_default=True,
    help="What clients speak.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the server under test; repeatable.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure what the server can do on this computer.

    Each command starts a server of its own on 127.0.0.1 and keeps it to one core; the load runs
    on another one. Close what else uses the processor, and compare ratios rather than rates when
    you compare computers.
    """


@bench.command()
@click.option(
    "--subscribers",
    type=click.IntRange(1, SUBSCRIBERS_MAX),
    default=1000,
    show_default=True,
    help="Clients that subscribe to the one subject.",
)
@click.option(
    "--bytes",
    "content_bytes",
    type=click.IntRange(16, CONTENT_BYTES_MAX),
    default=128,
    show_default=True,
    help="Size of a message's content.",
)
@click.option(
    "--burst",
    "bursts",
    type=click.IntRange(1, 1000),
    multiple=True,
    default=(1, 20),
    show_default=True,
    help="Messages that arrive together; repeatable, a row each. "
    "1: strictly one message at a time.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, SECONDS_MAX),
    default=5.0,
    show_default=True,
    help="How long each row is measured, and its floor.",
)
@click.option(
    "--floor/--no-floor",
    "with_floor",
    default=True,
    show_default=True,
    help="Measure in turns with a C program that does one send() for each subscriber "
    "and message: the ratio to it says more than the rate. Needs a C compiler.",
)
@encoding_option
@set_option
@json_option
def fanout(encoding: str, json_file: Path | None, **load: Any) -> None:
    """Deliveries a second from one publisher to N subscribers.

    The next messages are published when every subscriber has the last ones. Every delivery is
    verified by its position and content; the exit status is 1 if one was lost, came twice, out of
    order or altered.

    \b
    python -m mdserver.bench fanout
    python -m mdserver.bench fanout --subscribers 5000 --burst 1 --seconds 20
    """
    measured = fanout_bench.Load(encoding=ENCODINGS[encoding], **load)
    with _console.status("") as status:
        rows = fanout_bench.measure(measured, status.update)
    _report(rows, json_file)


def _report(rows: list[results.Row], json_file: Path | None) -> None:
    results.show(rows, Console())
    if json_file is not None:
        results.write(rows, json_file)
    if any(row.lost or row.repeated or row.altered for row in rows):
        raise click.ClickException("messages were lost, repeated or altered")


def main() -> int:
    """Runs a command; what goes wrong becomes one line on stderr."""
    try:
        bench.main(prog_name="python -m mdserver.bench", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (MdserverError, OSError) as error:
        click.echo(f"mdserver.bench: {error}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
