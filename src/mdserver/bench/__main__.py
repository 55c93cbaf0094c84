"""`python -m mdserver.bench`: measure the server on this computer, over loopback only."""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from mdserver.bench import cache as cache_bench
from mdserver.bench import cluster as cluster_bench
from mdserver.bench import compared, results
from mdserver.bench import connect as connect_bench
from mdserver.bench import derive as derive_bench
from mdserver.bench import fanout as fanout_bench
from mdserver.bench import hostile as hostile_bench
from mdserver.bench import publish as publish_bench
from mdserver.bench import restart as restart_bench
from mdserver.bench import subjects as subjects_bench
from mdserver.bench.attackers import ATTACKS
from mdserver.bench.encodings import ENCODINGS
from mdserver.errors import MdserverError

CONNECTIONS_MAX = 100_000
PUBLICATIONS_MAX = 100_000_000
SUBJECTS_MAX = 1_000_000
SECONDS_MAX = 3600.0

_console = Console(stderr=True)  # rates go to stdout, progress to stderr

Option = Callable[[Callable[..., None]], Callable[..., None]]
Progress = Callable[[str], None]
Measure = Callable[..., Sequence[results.Row]]


def whole(
    flag: str, default: int, most: int, meaning: str, *, least: int = 1, name: str | None = None
) -> Option:
    """Return an option that takes a whole number; `name` is its parameter's, if it differs."""
    return click.option(
        flag,
        *(() if name is None else (name,)),
        type=click.IntRange(least, most),
        default=default,
        show_default=True,
        help=meaning,
    )


BYTES = whole(
    "--bytes", 128, 16 * 1024, "Size of a message's content.", least=16, name="content_bytes"
)
SUBSCRIBERS = whole(
    "--subscribers", 1000, CONNECTIONS_MAX, "Clients that subscribe to the one subject."
)
OPENING = whole("--window", 64, 1000, "Connections that open at a time.")
BURSTS: Option = click.option(
    "--burst",
    "bursts",
    type=click.IntRange(1, 1000),
    multiple=True,
    default=(1, 20),
    show_default=True,
    help="Messages that arrive together; repeatable, a row each. "
    "1: strictly one message at a time.",
)
SECONDS: Option = click.option(
    "--seconds",
    type=click.FloatRange(0.1, SECONDS_MAX),
    default=5.0,
    show_default=True,
    help="How long each row is measured, and what it is compared with.",
)
FLOOR: Option = click.option(
    "--floor/--no-floor",
    "with_floor",
    default=True,
    show_default=True,
    help="Measure in turns with a C program that does one send() for each subscriber "
    "and message: the ratio to it says more than the rate. Needs a C compiler.",
)
AGAINST: Option = click.option(
    "--against",
    metavar="PYTHON",
    help="The interpreter of an environment with another version, which takes turns.",
)
SHARED: tuple[Option, ...] = (
    click.option(
        "--encoding",
        type=click.Choice(sorted(ENCODINGS)),
        default=sorted(ENCODINGS)[0],
        show_default=True,
        help="What clients speak.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A parameter of the server under test; repeatable.",
    ),
    click.option(
        "--json",
        "json_file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Append a JSON line for each measurement to this file.",
    ),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure what the server can do on this computer.

    Each command starts a server of its own on 127.0.0.1 and keeps it to one core; the load runs
    on another one. Close what else uses the processor, and compare ratios rather than rates when
    you compare computers.
    """


def measurement(
    *options: Option, judge: Callable[[Sequence[results.Row]], str | None] = lambda _: None
) -> Callable[[Measure], click.Command]:
    """Make a command of the group from a function that takes progress and load and returns rows.

    The rows are shown. `judge` returns what is wrong with them, or None; a text makes the exit
    status 1.
    """

    def decorate(measure: Measure) -> click.Command:
        @functools.wraps(measure)
        def command(encoding: str, json_file: Path | None, **load: Any) -> None:
            with _console.status("") as status:
                rows = measure(status.update, encoding=ENCODINGS[encoding], **load)
            report(rows, json_file)
            wrong = judge(rows)
            if wrong is not None:
                raise click.ClickException(wrong)

        with_options: Callable[..., None] = command
        for option in reversed((*options, *SHARED)):
            with_options = option(with_options)
        return bench.command()(with_options)

    return decorate


def report(rows: Sequence[results.Row], json_file: Path | None) -> None:
    """Show rows, and append them to the file.

    Raises ClickException if a message was lost, repeated or altered.
    """
    results.show(rows, Console())
    if json_file is not None:
        results.write(rows, json_file)
    if any(row.lost or row.repeated or row.altered for row in rows):
        raise click.ClickException("messages were lost, repeated or altered")


@measurement(SUBSCRIBERS, BYTES, BURSTS, SECONDS, FLOOR)
def fanout(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Deliveries a second from one publisher to N subscribers.

    The next messages are published when every subscriber has the last ones. Every delivery is
    verified by its position and content; the exit status is 1 if one was lost, came twice, out of
    order or altered.

    \b
    python -m mdserver.bench fanout
    python -m mdserver.bench fanout --subscribers 5000 --burst 1 --seconds 20
    """
    return fanout_bench.measure(fanout_bench.Load(**load), progress)


@measurement(
    SUBSCRIBERS,
    whole("--stalled", 1, 1000, "Further subscribers whose connections are never read."),
    BYTES,
    BURSTS,
    SECONDS,
)
def stalled(progress: Progress, stalled: int, **load: Any) -> Sequence[results.Row]:
    """What subscribers who never read do to those who do: their latency, the server's memory.

    Two servers take turns under the same load, one without and one with the stalled subscribers.
    """
    return compared.stalled(fanout_bench.Load(**load), stalled, progress)


@measurement(SUBSCRIBERS, BYTES, BURSTS, SECONDS)
def encrypted(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Deliveries a second over TLS, compared with the same without it.

    Two servers take turns under the same load; `floor` and `ratio` are about the one without TLS.
    """
    return compared.encrypted(fanout_bench.Load(**load), progress)


@measurement(SUBSCRIBERS, BYTES, BURSTS, SECONDS)
def monitored(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Deliveries a second while metrics and statistics are read, compared with no monitor at all.

    Two servers take turns under the same load; `floor` and `ratio` are about the one without.
    """
    return compared.monitored(fanout_bench.Load(**load), progress)


@measurement(
    whole(
        "--connections", 10_000, CONNECTIONS_MAX, "WebSocket connections, each with a subscription."
    ),
    OPENING,
)
def idle(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Resident memory of the server for each idle subscribed connection."""
    return [connect_bench.measure(connect_bench.Load(**load), "idle", progress)]


@measurement(
    whole(
        "--connections",
        5000,
        CONNECTIONS_MAX,
        "WebSocket connections that are opened, each with a subscription.",
    ),
    OPENING,
)
def connect(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Connections a second: TCP, the upgrade, a subscription, and its answer."""
    return [connect_bench.measure(connect_bench.Load(**load), "connect", progress)]


@measurement(
    whole("--count", 100_000, PUBLICATIONS_MAX, "Publications in each row."),
    BYTES,
    whole("--window", 1000, 1000, "Publications that wait for their result at a time."),
    whole("--batch", 50, 1000, "Publications that go with one system call."),
)
def publish(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Acknowledged publications a second of one connection, pipelined.

    The first row sends a WebSocket message for each publication, the second puts a batch into
    one.
    """
    if load["batch"] > load["window"]:
        raise click.BadParameter("a batch is larger than the window", param_hint="--batch")
    return publish_bench.measure(publish_bench.Load(**load), progress)


@measurement(
    whole("--subjects", 1000, CONNECTIONS_MAX, "Subjects, each with a subscriber of its own."),
    BYTES,
    whole("--batch", 20, 1000, "Publications that go with one system call."),
    whole("--window", 200, 1000, "Publications that are under way at a time."),
    SECONDS,
    AGAINST,
)
def subjects(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Deliveries a second to many subjects with one subscriber each.

    Every delivery is verified, as in a fan-out. With --against two versions take turns under the
    same load; `floor` and `ratio` are about the other one.

    \b
    python -m mdserver.bench subjects --against ../earlier/.venv/bin/python
    """
    if load["batch"] > load["window"]:
        raise click.BadParameter("a batch is larger than the window", param_hint="--batch")
    return subjects_bench.measure(subjects_bench.Load(**load), progress)


@measurement(
    whole("--count", 200_000, PUBLICATIONS_MAX, "Publications before the server is killed."),
    whole("--subjects", 1000, SUBJECTS_MAX, "Subjects that they go to in turn."),
    BYTES,
)
def restart(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """How long a server with a journal takes to start after a kill -9.

    It has its history, snapshots and numbering again when its ready line comes.
    """
    return restart_bench.measure(restart_bench.Load(**load), progress)


@measurement(
    whole(
        "--count", 50_000, PUBLICATIONS_MAX, "Publications in each row of pipelined ones.", least=3
    ),
    whole(
        "--one-by-one",
        2000,
        PUBLICATIONS_MAX,
        "Publications that each wait for the result of the one before.",
    ),
    whole("--kills", 10, 1000, "How often a member is killed, each in turn.", least=0),
    whole(
        "--window",
        4000,
        10_000,
        "Publications of a pipelined publisher that wait for their result at a time.",
        least=100,
    ),
    BYTES,
)
def cluster(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Three seeds: acknowledged publications, and how long they stop when a member is killed.

    The members and the load share all cores; a single server takes turns with the cluster, and
    stands for the floor. After each kill (-9) every subject is published to
    through another member; the latency is the time until the last of them is acknowledged.
    """
    return cluster_bench.measure(cluster_bench.Load(**load), progress)


@measurement(
    whole("--rate", 1000, PUBLICATIONS_MAX, "Publications a second."),
    whole("--every", 10, PUBLICATIONS_MAX, "One in so many makes the rule speak."),
    SECONDS,
    click.option(
        "--warm-up",
        type=click.FloatRange(0, SECONDS_MAX),
        default=30.0,
        show_default=True,
        help="Seconds at this rate before what is measured.",
    ),
    click.option("--kafka", metavar="SERVERS", help="A broker that runs already."),
)
def derive(progress: Progress, kafka: str | None, **load: Any) -> Sequence[results.Row]:
    """From a publication to the notification that a rule of `mdserver pipeline derive` makes of it.

    Needs the extra `pipeline` and Java. Server, Spark and load share all cores. With
    --kafka a stateless rule runs in Spark's real-time mode, from a record to a record.
    """
    if kafka is None:
        return [derive_bench.measure(derive_bench.Load(**load), progress)]
    from mdserver.bench import derive_kafka  # needs another extra

    return [derive_kafka.measure(derive_bench.Load(**load), kafka, progress)]


@measurement(
    whole("--subjects", 100_000, SUBJECTS_MAX, "Subjects with one message each, in the first row."),
    whole(
        "--messages",
        100_000,
        PUBLICATIONS_MAX,
        "Messages that fill the histories of 100 subjects, in the second row.",
    ),
    BYTES,
)
def cache(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Resident memory of the server for each subject, and for each cached message."""
    return cache_bench.measure(cache_bench.Load(**load), progress)


@measurement(
    click.option(
        "--attack",
        "attacks",
        type=click.Choice(ATTACKS),
        multiple=True,
        default=ATTACKS,
        help="Which attack; repeatable. All of them unless there is one.",
    ),
    SECONDS,
    click.option(
        "--rate-mb",
        type=click.FloatRange(0.01, 1000),
        default=2.0,
        show_default=True,
        help="How many megabytes a second an attacker sends.",
    ),
    judge=hostile_bench.over_the_line,
)
def hostile(progress: Progress, **load: Any) -> Sequence[results.Row]:
    """Round trips of a neighbour while an attacker floods the server, and the server's memory.

    The first row is without an attacker. `kib each` is what the attack added to the resident
    memory. The exit status is 1 if an attack adds more than 20 ms to the 99th percentile.
    """
    return hostile_bench.measure(hostile_bench.Load(**load), progress)


def main() -> int:
    """Run a command; report a failure in one line on stderr."""
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
