"""`mdserver top`: the activity of a member, live in the terminal, or as one snapshot in a pipe."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from attrs import define, field
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mdserver.cli.monitor import MonitorError, ask, monitor_options
from mdserver.cli.terminal import harmless

SHOWN = 10  # sessions, and subjects
PIPE_COLUMNS = 160  # a pipe has no width; names should not be cut off
SUBJECTS_S = 10.0  # between requests for the top subjects, which make the member visit all subjects
QUIT = ("q", "Q", "\x04")
RATES = ("messages_in", "messages_out", "bytes_in", "bytes_out", "connections", "disconnections")
WINDOWS = ("1min", "15min", "1h", "1d")
LATENCIES = ("publication_to_commit", "commit_to_socket", "loop_delay")
QUANTILES = ("p50_s", "p99_s", "p99.9_s")


@click.command("top")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@monitor_options
def command(monitor: str, credentials: Path | None, interval: float) -> None:
    """Show what a member does: rates, latency, slow sessions, top subjects, the cluster.

    On a terminal it is live until `q` is pressed; in a pipe it is printed once.
    """
    view = View(monitor, credentials)
    view.look()
    console = Console()
    if not console.is_terminal:
        Console(width=PIPE_COLUMNS).print(view.screen(live=False), soft_wrap=True)
        return
    with keys() as pressed, Live(view.screen(live=True), console=console, screen=True) as live:
        while not quits(pressed, interval):
            try:
                view.look()
            except MonitorError as error:
                view.trouble = str(error)
            live.update(view.screen(live=True), refresh=True)


@contextmanager
def keys() -> Iterator[int | None]:
    """Yield the descriptor from which keys can be read one by one; None without a keyboard.

    The terminal hands keys over without waiting for a line, until the end of the block.
    """
    if not sys.stdin.isatty():
        yield None
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield number
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def quits(number: int | None, pause_s: float) -> bool:
    """Wait for `pause_s` seconds, or until a key ends the command; return whether one did.

    `number` is the descriptor of the keyboard, None without one. The end of its input counts as
    such a key.
    """
    deadline = time.monotonic() + pause_s
    while (left := deadline - time.monotonic()) > 0:
        if number is None:
            time.sleep(left)
        elif select.select([number], [], [], left)[0]:
            typed = os.read(number, 64).decode(errors="replace")
            if not typed or any(key in QUIT for key in typed):
                return True
    return False


@define
class View:
    """The latest answers of a member, and their presentation.

    `rates` are those between the last two answers. `trouble` is why the last request failed; the
    answers before it stay on the screen.
    """

    monitor: str
    credentials: Path | None
    statistics: dict[str, Any] = field(init=False, factory=dict)
    sessions: list[dict[str, Any]] = field(init=False, factory=list)
    subjects: list[dict[str, Any]] = field(init=False, factory=list)
    cluster: dict[str, Any] = field(init=False, factory=dict)
    rates: dict[str, float] = field(init=False, factory=dict)
    trouble: str = field(init=False, default="")
    _subjects_due: float = field(init=False, default=0.0)

    def look(self) -> None:
        """Request from the member everything that is shown. Raises `MonitorError`."""
        before, self.statistics = self.statistics, self._ask("/statistics")
        self.rates = rates(before, self.statistics)
        self.sessions = self._ask(f"/sessions?sort=waiting_ms&limit={SHOWN}")
        self.cluster = self._ask("/cluster/status")
        if time.monotonic() >= self._subjects_due:
            self.subjects = self._ask(f"/subjects?limit={SHOWN}")
            self._subjects_due = time.monotonic() + SUBJECTS_S
        self.trouble = ""

    def screen(self, *, live: bool) -> Group:
        """Return everything that is shown; with `live` also the keys that can be pressed."""
        now = self.statistics["now"]
        counts = {
            "sessions": f"{now['sessions']:,}",
            "of these slow": f"{now['slow_consumers']:,}",
            "subscriptions": f"{now['subscriptions']:,}",
            "subjects": f"{now['subjects']:,}",
            "cached": f"{now['cache_bytes'] / 1e6:,.1f} MB",
            "publications without result": f"{now['waiting_publications']:,}",
        }
        told = ", ".join(f"{name} {value}" for name, value in counts.items())
        head = Text.assemble((harmless(self.statistics["node"]), "bold"), f"  {told}")
        trouble = harmless(self.trouble or self.cluster["trouble"] or "")
        return Group(
            head,
            *([Text(trouble, style="bold red")] if trouble else []),
            self._rates(),
            self._latency(),
            self._members(),
            *self._kafka(),
            self._sessions(),
            self._subjects(),
            *([Text("q ends", style="dim")] if live else []),
        )

    def _ask(self, path: str) -> Any:
        return ask(self.monitor, self.credentials, "GET", path)

    def _rates(self) -> Table:
        table = plain("a second, averages of", "now", *WINDOWS, "most in 1h")
        for name in RATES:
            found = self.statistics["windows"][name]
            averages = [found[window]["average"] for window in WINDOWS]
            table.add_row(
                name.replace("_", " "),
                *(f"{value:,.1f}" for value in (self.rates[name], *averages)),
                f"{found['1h']['maximum']:,.1f}",
            )
        return table

    def _latency(self) -> Table:
        table = plain("latency, ms", "count", "p50", "p99", "p99.9")
        for name in LATENCIES:
            one = self.statistics["latency"][name]
            table.add_row(
                name.replace("_", " "),
                f"{one['count']:,}",
                *(f"{1000 * one[part]:,.3f}" for part in QUANTILES),
            )
        return table

    def _members(self) -> Table:
        groups = self.cluster["groups"]
        lag = sum(row["lag"] for row in groups)
        leaderless = sum(row["coordinator"] is None for row in groups)
        quorum = "" if self.cluster["quorum"] else ", NO QUORUM"
        told = f"{lag:,} entries not committed, {leaderless} groups without coordinator{quorum}"
        table = plain(f"member ({told})", "state", "groups", "behind")
        for row in self.cluster["members"]:
            # A member of an earlier version does not say how far behind it is.
            behind = "?" if row.get("behind") is None else f"{row['behind']:,}"
            table.add_row(harmless(row["name"]), row["state"], str(row["groups"]), behind)
        return table

    def _kafka(self) -> list[Table]:
        """Return a table of the topics, those that lack most first, if Kafka is the log."""
        kafka = self.statistics.get("kafka")  # a member of an earlier version has none
        if kafka is None or "topics" not in kafka:
            return []
        errors = ", ".join(f"{count:,} {task}" for task, count in kafka["errors"].items())
        told = (
            f"{kafka['records']:,} records, {kafka['waiting']:,} without result, errors: {errors}"
        )
        table = plain(f"Kafka topic ({told})", "partitions", "lag", "most lag of one")
        rows = sorted(kafka["topics"].items(), key=lambda row: -row[1]["lag"])
        for name, found in rows[:SHOWN]:
            numbers = (found["partitions"], found["lag"], found["lag_max"])
            table.add_row(harmless(name), *(f"{number:,}" for number in numbers))
        return [table]

    def _sessions(self) -> Table:
        numbers = ("waiting", "outbox", "silent", "subscriptions")
        table = plain("session, slowest first", *numbers, "client")
        for row in self.sessions:
            table.add_row(
                Text(harmless(f"{row['session']} {row['address']}")),
                f"{row['waiting_ms'] / 1000:,.1f} s",
                f"{row['outbox_bytes']:,} B",
                f"{row['silent_ms'] / 1000:,.1f} s",
                f"{row['subscriptions']:,}",
                Text(harmless(" ".join(filter(None, (row["client"], row["user"]))))),
            )
        return table

    def _subjects(self) -> Table:
        table = plain("subject, most messages first", "a second", "subscribers", "cached", "bytes")
        for row in self.subjects:
            table.add_row(
                Text(harmless(row["subject"])),
                f"{row['per_second']:,.1f}",
                f"{row['subscribers']:,}",
                f"{row['messages']:,}",
                f"{row['bytes']:,}",
            )
        return table


def rates(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """Return the rates per second between two documents of statistics.

    If `before` is empty, return the averages over the last minute.
    """
    elapsed_s = (after["time"] - before["time"]) / 1000 if before else 0.0
    if elapsed_s <= 0:
        return {name: after["windows"][name]["1min"]["average"] for name in RATES}
    counted = {name: after["total"][name] - before["total"][name] for name in RATES}
    # A member that was restarted in between counts from 0 again.
    return {name: max(0, count) / elapsed_s for name, count in counted.items()}


def plain(first: str, *others: str) -> Table:
    """Return a table without borders: a column of names, then columns of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    table.add_column(first, overflow="ellipsis", no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
