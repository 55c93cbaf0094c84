"""`mdserver sessions`: the sessions of a member, the slowest first."""

import json
from pathlib import Path
from urllib.parse import urlencode

import click

from mdserver.cli.forms import format_option
from mdserver.cli.monitor import ask, ask_text, monitor_options
from mdserver.cli.terminal import harmless


@click.command("sessions")
@click.option(
    "--sort",
    type=click.Choice(["waiting_ms", "outbox_bytes", "silent_ms"]),
    default="waiting_ms",
    show_default=True,
    help="Those with most of it come first.",
)
@click.option("--slow", is_flag=True, help="Only those whose socket takes no more.")
@click.option("--address", metavar="IP", help="Only those of this address.")
@click.option("--session", metavar="NAME", help="Only the one of this name.")
@click.option("--subscriptions", is_flag=True, help="With what each has subscribed to.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most N of them. [100]")
@click.option("--offset", type=click.IntRange(0), metavar="N", help="Leave the first N out.")
@monitor_options
@format_option("A line a session, or a JSON object for each.")
def command(
    sort: str,
    slow: bool,
    address: str | None,
    session: str | None,
    subscriptions: bool,
    limit: int | None,
    offset: int | None,
    monitor: str,
    credentials: Path | None,
    form: str,
) -> None:
    """Print the sessions of a member, by default those first that have waited longest.

    `waiting_ms` is for how long a session's socket has taken no more, `outbox_bytes` what it has
    still to be sent, `silent_ms` for how long nothing was heard of it.
    """
    asked = {"sort": sort, "address": address, "session": session, "limit": limit, "offset": offset}
    parameters: dict[str, object] = {
        name: value for name, value in asked.items() if value is not None
    }
    if slow:
        parameters["slow"] = "true"
    if subscriptions:
        parameters["subscriptions"] = "true"
    if form == "json":
        rows = ask(monitor, credentials, "GET", f"/sessions?{urlencode(parameters)}")
        found = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        found = harmless(ask_text(monitor, credentials, "/sessions", parameters))
    click.echo(found, nl=False)
    if not found:
        filtered = slow or address or session or offset
        told = "no session is like that" if filtered else "no session is connected"
        click.echo(f"mdserver: {told}", err=True)
