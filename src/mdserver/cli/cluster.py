"""`mdserver cluster`: an operator's commands to a cluster, over a member's monitor listener."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mdserver.cli.forms import format_option, print_result
from mdserver.cli.monitor import MonitorError, ask, monitor_options

ORDER_TIMEOUT_S = 60.0
GIVEN_UP_S = 35.0
"""An order that has not begun is given up after 30 s (`cluster/relisting.py`)."""
POLL_S = 0.2

_TAKING = ("NORMAL", "JOINING", "RECOVERING")


@click.group("cluster")
def command() -> None:
    """Look after a cluster: status, drain, seeds, readmit, cold-start."""


@command.command("status")
@monitor_options
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@format_option("Tables and sentences, or the whole answer as a JSON object.")
def status(monitor: str, credentials: Path | None, as_json: bool, form: str) -> None:
    """Members, their roles and states, coordinators and lag."""
    answer = ask(monitor, credentials, "GET", "/cluster/status")
    if as_json or form == "json":
        click.echo(json.dumps(answer))
        return
    print_status(Console(soft_wrap=True), answer)


def print_status(console: Console, answer: Mapping[str, Any]) -> None:
    """Print what a member says of the cluster, for people."""
    members = Table("name", "address", "seed", "state", "incarnation", "groups", "behind")
    for row in answer["members"]:
        members.add_row(
            escape(row["name"]),
            row["address"],
            "yes" if row["seed"] else "",
            row["state"],
            str(row["incarnation"]),
            str(row["groups"]),
            "" if row["behind"] is None else f"{row['behind']:,}",
        )
    console.print(members)
    for row in answer["members"]:
        # A member of an earlier version does not say it.
        if row.get("at", row["address"]) != row["address"]:
            console.print(f"{row['address']} is at {row['at']}", markup=False)
        if row.get("unwritten"):
            console.print(unwritten(row["address"]), markup=False)
    groups = answer["groups"]
    orphans = [str(row["group"]) for row in groups if row["coordinator"] is None]
    lag = sum(row["lag"] for row in groups)
    console.print(f"{len(groups)} groups, {lag} entries not committed yet")
    if orphans:
        console.print(f"without a coordinator: {', '.join(orphans)}")
    if answer["history"] is None:
        console.print("history ids differ:")
        for history, found in answer["histories"].items():
            console.print(f"  {history or 'none yet'}: groups {ranges(found)}")
    if answer["trouble"]:
        console.print(answer["trouble"], markup=False)
    if answer["mode"] == "Standard":
        console.print("Standard mode: no majority is needed")
        return
    for sentence in seeds_change(answer):
        console.print(sentence, markup=False)
    console.print("a majority of seeds is in sight" if answer["quorum"] else "NO QUORUM")


def unwritten(address: str) -> str:
    """Return what has to be done about a seed that became one while it ran."""
    return (
        f"{address} does not write its log yet (JournalFsync = commit), and would recover from a "
        "crash as if it had no journal: drain it (`mdserver cluster drain`), then restart it"
    )


def seeds_change(answer: Mapping[str, Any]) -> list[str]:
    """Return the list of seeds if it was ever changed, and what a change still waits for."""
    seeds = answer.get("seeds")  # a member of an earlier version has none
    if seeds is None:
        return []
    found = [f"waits: {sentence}" for sentence in seeds["missing"]]
    if seeds["next"] is not None:
        found.insert(
            0, f"list {seeds['number'] + 1} is to have the seeds {', '.join(seeds['next'])}"
        )
    if found or seeds["number"] > 1:
        found.insert(0, f"list {seeds['number']} has the seeds {', '.join(seeds['seeds'])}")
    return found


def ranges(numbers: Sequence[int]) -> str:
    """Return rising numbers in short form: `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(str(end) for end in run) for run in runs)


def act(action: str, monitor: str, credentials: Path | None, member: str, force: bool) -> Any:
    """Send a command to a member, which carries it out; return its answer."""
    query = f"?member={quote(member, safe='')}&force={'true' if force else 'false'}"
    return ask(monitor, credentials, "POST", f"/cluster/{action}{query}")


def order_options(answer: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add what commands have in common that order something of a member, and wait until it is done.

    `answer` is the help of `--format`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        options = (
            click.argument("member"),
            click.option("--no-wait", is_flag=True, help="Do not wait until it is done."),
            click.option(
                "--timeout",
                type=click.FloatRange(min=0),
                default=ORDER_TIMEOUT_S,
                show_default=True,
                metavar="SECONDS",
                help="For how long to wait.",
            ),
            monitor_options,
            format_option(answer),
        )
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@command.command("drain")
@click.option("--undo", is_flag=True, help="Give it its share of the groups back.")
@click.option("--force", is_flag=True, help="Even if the seeds that are left are no majority.")
@order_options("A sentence, or a JSON object: member, action, and groups that are left, if known.")
def drain(
    member: str,
    undo: bool,
    force: bool,
    no_wait: bool,
    timeout: float,
    monitor: str,
    credentials: Path | None,
    form: str,
) -> None:
    """Have a member hand over the groups that it coordinates, before it is stopped.

    MEMBER is its NodeName or its address. Returns once another member coordinates each group.
    """
    action = "undrain" if undo else "drain"
    act(action, monitor, credentials, member, force)
    done: dict[str, Any] = {"member": member, "action": action}
    if undo:
        print_result(form, f"{member} takes its share again", done)
    elif no_wait:
        print_result(form, f"{member} hands over its groups", done)
    elif left := wait_handed_over(monitor, credentials, member, timeout):
        sentence = f"{member} keeps {left} groups: no member is left to take them"
        print_result(form, sentence, {**done, "groups": left})
    else:
        print_result(form, f"{member} has handed over its groups", {**done, "groups": 0})


def wait_handed_over(monitor: str, credentials: Path | None, member: str, timeout_s: float) -> int:
    """Wait until a member coordinates no group, with the progress on a terminal.

    Returns the number of groups that it keeps because no member is left to take them, else 0.
    Raises `MonitorError` if that takes too long.
    """
    deadline = time.monotonic() + timeout_s
    with Console(stderr=True).status(f"{member} hands over its groups") as progress:
        while True:
            rows = ask(monitor, credentials, "GET", "/cluster/status")["members"]
            # The member resolves MEMBER in this order as well: an address precedes a name.
            row = min(
                (row for row in rows if member in (row["address"], row["name"])),
                key=lambda row: row["address"] != member,
            )
            left: int = row["groups"]
            if not left or not any(other["state"] in _TAKING for other in rows if other is not row):
                return left
            if time.monotonic() >= deadline:
                raise MonitorError(
                    f"{member} still coordinates {left} groups after {timeout_s:g} s; it goes on "
                    "handing them over, and `mdserver cluster status` shows how many are left"
                )
            progress.update(escape(f"{member} hands over its groups, {left} left"))
            time.sleep(POLL_S)


seeds_options = order_options(
    "A sentence, or a JSON object: member, action, and the list of seeds."
)


@command.command("add-seed")
@seeds_options
def add_seed(member: str, **options: Any) -> None:
    """Make a member a seed while the cluster runs.

    MEMBER is its NodeName or its address. It gets the logs of all groups first, and votes then.
    """
    change_seeds("add-seed", member, **options)


@command.command("remove-seed")
@seeds_options
def remove_seed(member: str, **options: Any) -> None:
    """Make a seed a member that does not vote, while the cluster runs.

    MEMBER is its NodeName or its address; it may be away. Stop it only when this is done.
    """
    change_seeds("remove-seed", member, **options)


def change_seeds(
    action: str,
    member: str,
    *,
    no_wait: bool,
    timeout: float,
    monitor: str,
    credentials: Path | None,
    form: str,
) -> None:
    """Order one change of the list of seeds, and wait until it is done."""
    seeds = act(action, monitor, credentials, member, force=False)["seeds"]
    done: dict[str, Any] = {"member": member, "action": action}
    what = f"{member} {'becomes a seed' if action == 'add-seed' else 'is to be no seed any more'}"
    if no_wait:
        sentence = f"{what}; `mdserver cluster status` shows what that waits for"
        print_result(form, sentence, {**done, "seeds": seeds})
        return
    answer = wait_changed(monitor, credentials, what, seeds["number"] + 1, timeout)
    seeds = answer["seeds"]
    names = seeds["seeds"]
    sentence = f"list {seeds['number']} is in force: {len(names)} seeds, {', '.join(names)}"
    if len(names) % 2 == 0:
        sentence += (
            f"\n{len(names)} seeds bear no more failures than {len(names) - 1}: change one more"
        )
    unlogged = [row["address"] for row in answer["members"] if row.get("unwritten")]
    sentence = "\n".join([sentence, *map(unwritten, unlogged)])
    print_result(form, sentence, {**done, "seeds": seeds, "unwritten": unlogged})


def wait_changed(
    monitor: str, credentials: Path | None, what: str, number: int, timeout_s: float
) -> dict[str, Any]:
    """Wait until a list of seeds is in force and nothing is missing of it; return the status.

    Shows the progress on a terminal. Raises `MonitorError` if that takes too long, or if the
    cluster gave the change up.
    """
    began = time.monotonic()
    with Console(stderr=True).status(what) as progress:
        while True:
            answer: dict[str, Any] = ask(monitor, credentials, "GET", "/cluster/status")
            seeds = answer["seeds"]
            missing, waited_s = seeds["missing"], time.monotonic() - began
            begun = seeds["number"] >= number or seeds["next"] is not None
            if seeds["number"] >= number and seeds["settled"] and not missing:
                return answer
            if not begun and waited_s >= GIVEN_UP_S:
                raise MonitorError(
                    f"{what}: given up, and nothing has changed; `seeds order given up` in the log"
                    f" of {seeds['seeds'][0]}, or of the first seed in sight, says why"
                )
            if waited_s >= timeout_s:
                raise MonitorError(
                    f"{what}: not done after {timeout_s:g} s; "
                    + ("it goes on, and waits: " if begun else "not begun, and given up soon: ")
                    + ("; ".join(missing) or "until it has the logs of all groups")
                )
            progress.update(escape("; ".join([what, *missing])))
            time.sleep(POLL_S)


@command.command("readmit")
@click.argument("member")
@monitor_options
@format_option("A sentence, or a JSON object: member and action.")
def readmit(member: str, monitor: str, credentials: Path | None, form: str) -> None:
    """Take a seed back whose vote file was lost: every group is elected anew.

    MEMBER is its NodeName or its address.
    """
    act("readmit", monitor, credentials, member, force=False)
    print_result(
        form,
        f"{member} is taken back; `mdserver cluster status` shows when it is NORMAL",
        {"member": member, "action": "readmit"},
    )


@command.command("cold-start")
@click.option("--accept-loss", is_flag=True, help="Do it.")
@monitor_options
@format_option("A sentence, or a JSON object: action.")
def cold_start(accept_loss: bool, monitor: str, credentials: Path | None, form: str) -> None:
    """Start groups anew that have no majority any more; says what may be lost."""
    act("cold-start", monitor, credentials, "", force=accept_loss)
    print_result(
        form,
        "the groups without a coordinator start anew, under a new history id",
        {"action": "cold-start"},
    )
