"""Options that benchmarks share, and what makes a command of a measurement."""

import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from mdserver.bench import processes, results
from mdserver.bench.encodings import ADAPTERS, ENCODINGS, Encoding
from mdserver.bench.open_loop import BenchProgress
from mdserver.bench.processes import BenchError
from mdserver.bench.report import write_report
from mdserver.bench.stamps import CONTENT_BYTES_MIN
from mdserver.bench.target import Running
from mdserver.bench.thresholds import Threshold
from mdserver.ending import end_in_order_on_sigterm
from mdserver.errors import ConfigError

CONNECTIONS_MAX = 100_000
PUBLICATIONS_MAX = 100_000_000
SUBJECTS_MAX = 1_000_000
SECONDS_MAX = 3600.0
DAY_S = 86400.0

_console = Console(stderr=True)  # rates go to stdout, progress to stderr

Option = Callable[[Callable[..., None]], Callable[..., None]]
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


def duration(flag: str, name: str, default: float, meaning: str) -> Option:
    """Return an option that takes seconds; `name` is its parameter's."""
    return click.option(
        flag,
        name,
        type=click.FloatRange(0.05, DAY_S),
        default=default,
        show_default=True,
        help=meaning,
    )


def seconds(default: float, meaning: str) -> Option:
    """Return the option `--seconds`."""
    return duration("--seconds", "seconds", default, meaning)


CLIENTS = whole("--clients", 1000, CONNECTIONS_MAX, "Subscribers; client i has subject i modulo N.")
SUBJECTS = whole("--subjects", 1, SUBJECTS_MAX, "N: subjects that are published to in turn.")
RATE: Option = click.option(
    "--rate",
    type=click.FloatRange(0.01, 1_000_000),
    default=5.0,
    show_default=True,
    help="Publications a second, to all subjects together.",
)
BURST = whole("--burst", 1, 1000, "Publications that are sent together.")
LOOP_BYTES = whole(
    "--bytes",
    128,
    16 * 1024,
    "Size of a message's content.",
    least=CONTENT_BYTES_MIN,
    name="content_bytes",
)
LOOP_SECONDS = seconds(10.0, "How long each phase lasts.")
CUT_EVERY = duration(
    "--cut-every", "cut_every_s", 15.0, "Seconds after which each client is cut, again and again."
)
CROWD: tuple[Option, ...] = (
    whole("--processes", 1, 64, "Load processes, which share the clients."),
    whole("--sources", 1, 250, "Source addresses, 127.0.0.1 and on, for servers on 127.0.0.1."),
    OPENING,
)
SERVERS: tuple[Option, ...] = (
    click.option(
        "-s",
        "--server",
        "servers",
        multiple=True,
        metavar="URL",
        help="A server that runs already, as http://HOST:PORT; repeatable, for the members of a "
        "cluster. Without it a server is started for the measurement.",
    ),
    click.option(
        "--ca",
        "authority",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Trust the authorities in this file (PEM), for servers with https://.",
    ),
    click.option(
        "--pid",
        type=click.IntRange(min=1),
        help="The process of a server on this computer, to measure its memory and processor time.",
    ),
    click.option(
        "-t",
        "--token",
        envvar="MDSERVER_TOKEN",
        metavar="TOKEN",
        help="The entitlement token; it has to allow /bench/**. Better given as MDSERVER_TOKEN.",
    ),
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
        help="A parameter of the server that is started; repeatable.",
    ),
    whole(
        "--cores",
        1,
        1024,
        "Processors that the server that is started may use, with its workers. The load runs on "
        "others, if there are any.",
    ),
    click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Print a table, or a JSON line for each row.",
    ),
    click.option(
        "--json",
        "json_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Append a JSON line for each row to this file.",
    ),
    click.option(
        "--report",
        "report_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write a page with tables and plots; it is one HTML file that loads nothing.",
    ),
    click.option(
        "--fail-if",
        "thresholds",
        multiple=True,
        metavar="CONDITION",
        help="End with status 1 if this holds for a row, as in 'p99_ms > 50', or for the row of a "
        "mode, as in 'storm: p99_ms > 100'; repeatable. The columns are those of --json.",
    ),
)


class _Bar(BenchProgress):
    """Shows a bar on a terminal: how far it is, or that something goes on."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=None)

    def __call__(self, text: str, part: float | None = None) -> None:
        """Show what goes on, and how far it is."""
        total = None if part is None else 1.0
        self._bars.update(self._task, description=text, completed=part or 0.0, total=total)


@contextmanager
def shown_progress() -> Iterator[BenchProgress]:
    """Show progress on stderr if that is a terminal."""
    with Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=_console,
        transient=True,
        disable=not _console.is_terminal,
    ) as bars:
        yield _Bar(bars)


def measurement(
    group: click.Group,
    *options: Option,
    servers: bool = False,
    adapters: Sequence[str] = (),
    judge: Callable[[Sequence[results.Row]], str | None] = lambda _: None,
) -> Callable[[Measure], click.Command]:
    """Make a command of the group from a function that takes progress and load and returns rows.

    With `servers` it takes servers that run already, and the load gets them as `running`;
    `adapters` are those by which it can speak to other servers. The rows are shown. `judge` returns
    what is wrong with them, or None; a text makes the exit status 1.
    """

    def decorate(measure: Measure) -> click.Command:
        @functools.wraps(measure)
        def command(
            encoding: str,
            form: str,
            json_file: Path | None,
            report_file: Path | None,
            thresholds: Sequence[str],
            cores: int,
            **load: Any,
        ) -> None:
            end_in_order_on_sigterm()  # or what was started would stay
            limits = [_threshold(text) for text in thresholds]
            for file in (json_file, report_file):
                _check_writable(file)
            if servers:
                load["running"] = _running(load)
                if load["running"] is not None and cores > 1:
                    raise click.UsageError(
                        "--cores is for a server that is started, not for --server"
                    )
            spoken = _spoken(encoding, load.pop("adapter", None), load.get("running"))
            with shown_progress() as progress, processes.measured_on(cores):
                try:
                    rows = measure(progress, encoding=spoken, **load)
                except OSError as error:
                    raise BenchError(f"the measurement failed: {error}") from error
            broken = [sentence for limit in limits for sentence in limit.broken_by(rows)]
            wrong = judge(rows)
            if wrong is not None:
                broken.append(wrong)
            report(rows, broken, form, json_file, report_file)

        with_options: Callable[..., None] = command
        of_servers = (*(SERVERS if servers else ()), *((_adapter(adapters),) if adapters else ()))
        for option in reversed((*options, *of_servers, *SHARED)):
            with_options = option(with_options)
        return group.command()(with_options)

    return decorate


def report(
    rows: Sequence[results.Row],
    broken: Sequence[str],
    form: str,
    json_file: Path | None,
    report_file: Path | None,
) -> None:
    """Print rows, append them to a file, write the page.

    Raises ClickException if a message was lost, repeated or altered, or something else is broken.
    """
    if form == "json":
        for line in results.lines(rows):
            click.echo(line)
    else:
        results.show(rows, Console())
    if any(row.lost or row.repeated or row.altered for row in rows):
        broken = ["messages were lost, repeated or altered", *broken]
    if json_file is not None:
        results.write(rows, json_file)
    if report_file is not None:
        write_report(report_file, rows, shlex.join(command_line()), broken)
    if broken:
        raise click.ClickException("\n".join(broken))


def command_line() -> list[str]:
    """Return the command line without the token, which is a secret."""
    given = sys.argv[2:] if sys.argv[1:2] == ["bench"] else sys.argv[1:]
    words = ["mdserver", "bench", *given]
    context = click.get_current_context(silent=True)
    token = context.params.get("token") if context is not None else None
    return [word.replace(token, "TOKEN") if token else word for word in words]


def _check_writable(file: Path | None) -> None:
    """Raise ConfigError if a file cannot be written: better now than after the measurement."""
    if file is None:
        return
    if not file.parent.is_dir():
        raise ConfigError(f"{file}: there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError(f"{file}: this user may not write it")


def _adapter(names: Sequence[str]) -> Option:
    return click.option(
        "--adapter",
        type=click.Choice(sorted(names)),
        help="What --server names is another kind of server, to which the clients speak so.",
    )


def _spoken(encoding: str, adapter: str | None, running: Running | None) -> Encoding:
    """Return what clients speak."""
    if adapter is None:
        return ENCODINGS[encoding]
    if running is None:
        raise click.UsageError("--adapter is for servers that --server names")
    return ADAPTERS[adapter]


def _threshold(text: str) -> Threshold:
    try:
        return Threshold.read(text)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--fail-if") from None


def _running(load: dict[str, Any]) -> Running | None:
    """Take the servers out of the load; refuse what has no meaning for them."""
    names = ("servers", "authority", "token", "pid")
    urls, authority, token, pid = (load.pop(name) for name in names)
    if not urls:
        if authority is not None or pid is not None:
            raise click.UsageError("--ca and --pid are for servers that --server names")
        return None
    if pid is not None and not Path(f"/proc/{pid}").exists():
        raise click.BadParameter(f"there is no process {pid}", param_hint="--pid")
    if load.get("settings"):
        raise click.UsageError("--set is for a server that is started, not for --server")
    try:
        return Running.at(urls, authority, token, pid)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
