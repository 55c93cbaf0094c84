"""`python -m mdserver.bench`: measures the server on this computer, over loopback only."""

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from mdserver.bench import cache as cache_bench
from mdserver.bench import cluster as cluster_bench
from mdserver.bench import compared, results
from mdserver.bench import connect as connect_bench
from mdserver.bench import fanout as fanout_bench
from mdserver.bench import publish as publish_bench
from mdserver.bench.encodings import ENCODINGS
from mdserver.errors import MdserverError

CONNECTIONS_MAX = 100_000
PUBLICATIONS_MAX = 100_000_000
SUBJECTS_MAX = 1_000_000
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
bytes_option = click.option(
    "--bytes",
    "content_bytes",
    type=click.IntRange(16, CONTENT_BYTES_MAX),
    default=128,
    show_default=True,
    help="Size of a message's content.",
)
window_option = click.option(
    "--window",
    type=click.IntRange(1, 1000),
    default=64,
    show_default=True,
    help="Connections that open at a time.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the server under test; repeatable.",
)


subscribers_option = click.option(
    "--subscribers",
    type=click.IntRange(1, CONNECTIONS_MAX),
    default=1000,
    show_default=True,
    help="Clients that subscribe to the one subject.",
)
burst_option = click.option(
    "--burst",
    "bursts",
    type=click.IntRange(1, 1000),
    multiple=True,
    default=(1, 20),
    show_default=True,
    help="Messages that arrive together; repeatable, a row each. "
    "1: strictly one message at a time.",
)
seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(0.1, SECONDS_MAX),
    default=5.0,
    show_default=True,
    help="How long each row is measured, and what it is compared with.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure what the server can do on this computer.

    Each command starts a server of its own on 127.0.0.1 and keeps it to one core; the load runs
    on another one. Close what else uses the processor, and compare ratios rather than rates when
    you compare computers.
    """


@bench.command()
@subscribers_option
@bytes_option
@burst_option
@seconds_option
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


@bench.command()
@subscribers_option
@click.option(
    "--stalled",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Further subscribers whose connections are never read.",
)
@bytes_option
@burst_option
@seconds_option
@encoding_option
@set_option
@json_option
def stalled(encoding: str, json_file: Path | None, stalled: int, **load: Any) -> None:
    """What subscribers who never read do to those who do: their latency, the server's memory.

    Two servers take turns under the same load, one without and one with the stalled subscribers.
    """
    measured = fanout_bench.Load(encoding=ENCODINGS[encoding], **load)
    with _console.status("") as status:
        rows = compared.stalled(measured, stalled, status.update)
    _report(rows, json_file)


@bench.command()
@subscribers_option
@bytes_option
@burst_option
@seconds_option
@encoding_option
@set_option
@json_option
def encrypted(encoding: str, json_file: Path | None, **load: Any) -> None:
    """Deliveries a second over TLS, compared with the same without it.

    Two servers take turns under the same load; `floor` and `ratio` are about the one without TLS.
    """
    measured = fanout_bench.Load(encoding=ENCODINGS[encoding], **load)
    with _console.status("") as status:
        rows = compared.encrypted(measured, status.update)
    _report(rows, json_file)


@bench.command()
@click.option(
    "--connections",
    type=click.IntRange(1, CONNECTIONS_MAX),
    default=10_000,
    show_default=True,
    help="WebSocket connections, each with one subscription.",
)
@window_option
@encoding_option
@set_option
@json_option
def idle(encoding: str, json_file: Path | None, **load: Any) -> None:
    """Resident memory of the server for each idle subscribed connection."""
    _connections("idle", encoding, json_file, load)


@bench.command()
@click.option(
    "--connections",
    type=click.IntRange(1, CONNECTIONS_MAX),
    default=5000,
    show_default=True,
    help="WebSocket connections that are opened, each with one subscription.",
)
@window_option
@encoding_option
@set_option
@json_option
def connect(encoding: str, json_file: Path | None, **load: Any) -> None:
    """Connections a second: TCP, the upgrade, a subscription, and its answer."""
    _connections("connect", encoding, json_file, load)


@bench.command()
@click.option(
    "--count",
    type=click.IntRange(1, PUBLICATIONS_MAX),
    default=100_000,
    show_default=True,
    help="Publications in each row.",
)
@bytes_option
@click.option(
    "--window",
    type=click.IntRange(1, 1000),
    default=1000,
    show_default=True,
    help="Publications that wait for their result at a time.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="Publications that go with one system call.",
)
@encoding_option
@set_option
@json_option
def publish(encoding: str, json_file: Path | None, **load: Any) -> None:
    """Acknowledged publications a second of one connection, pipelined.

    The first row sends a WebSocket message for each publication, the second puts a batch into
    one.
    """
    if load["batch"] > load["window"]:
        raise click.BadParameter("a batch is larger than the window", param_hint="--batch")
    measured = publish_bench.Load(encoding=ENCODINGS[encoding], **load)
    with _console.status("") as status:
        rows = publish_bench.measure(measured, status.update)
    _report(rows, json_file)


@bench.command()
@click.option(
    "--count",
    type=click.IntRange(3, PUBLICATIONS_MAX),
    default=50_000,
    show_default=True,
    help="Publications in each row of pipelined ones.",
)
@click.option(
    "--one-by-one",
    type=click.IntRange(1, PUBLICATIONS_MAX),
    default=2000,
    show_default=True,
    help="Publications that each wait for the result of the one before.",
)
@click.option(
    "--kills",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="How often a member is killed, each in turn.",
)
@bytes_option
@encoding_option
@set_option
@json_option
def cluster(encoding: str, json_file: Path | None, **load: Any) -> None:
    """Three seeds: acknowledged publications, and how long they stop when a member is killed.

    The members and the load share all cores. After each kill (-9) every subject is published to
    through another member; the latency is the time until the last of them is acknowledged.
    """
    measured = cluster_bench.Load(encoding=ENCODINGS[encoding], **load)
    with _console.status("") as status:
        rows = cluster_bench.measure(measured, status.update)
    _report(rows, json_file)


@bench.command()
@click.option(
    "--subjects",
    type=click.IntRange(1, SUBJECTS_MAX),
    default=100_000,
    show_default=True,
    help="Subjects with one message each, in the first row.",
)
@click.option(
    "--messages",
    type=click.IntRange(1, PUBLICATIONS_MAX),
    default=100_000,
    show_default=True,
    help="Messages that fill the histories of 100 subjects, in the second row.",
)
@bytes_option
@encoding_option
@set_option
@json_option
def cache(encoding: str, json_file: Path | None, **load: Any) -> None:
    """Resident memory of the server for each subject, and for each cached message."""
    measured = cache_bench.Load(encoding=ENCODINGS[encoding], **load)
    with _console.status("") as status:
        rows = cache_bench.measure(measured, status.update)
    _report(rows, json_file)


def _connections(name: str, encoding: str, json_file: Path | None, load: dict[str, Any]) -> None:
    measured = connect_bench.Load(encoding=ENCODINGS[encoding], **load)
    with _console.status("") as status:
        row = connect_bench.measure(measured, name, status.update)
    _report([row], json_file)


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
