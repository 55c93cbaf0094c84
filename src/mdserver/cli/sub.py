"""`mdserver sub`: subscribe to subjects and print what arrives."""

import math

import click
import trio

from mdserver.cli.forms import format_option
from mdserver.cli.lines import json_line, text_line, write_lines
from mdserver.cli.options import (
    CommandError,
    ConnectionOptions,
    Reached,
    connection_options,
    run_client,
    tell,
)
from mdserver.client import Client


@click.command("sub")
@click.argument("subjects", nargs=-1, required=True, metavar="SUBJECT...")
@click.option(
    "--history", type=click.IntRange(0), default=0, metavar="N", help="The last N messages first."
)
@click.option(
    "--conflation",
    type=click.IntRange(0),
    default=0,
    metavar="MS",
    help="At most one message a subject in MS milliseconds.",
)
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="End after S seconds; exit status 1 if --count is not reached.",
)
@format_option("A line a message: subject, content and fields, or a JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Do not say on stderr when it is subscribed.")
@connection_options
def command(
    connection: ConnectionOptions,
    subjects: tuple[str, ...],
    history: int,
    conflation: int,
    count: int | None,
    timeout: float | None,
    form: str,
    quiet: bool,
) -> None:
    """Subscribe to subjects and patterns and print each message on a line of its own.

    Before the first one a line on stderr says which server has taken the subscription.
    """
    line = json_line if form == "json" else text_line

    reached = Reached()

    async def subscribe(client: Client) -> int:
        printed = 0
        subscription = client.subscribe(
            *dict.fromkeys(subjects), history=history, conflation_ms=conflation
        )
        with trio.move_on_after(math.inf if timeout is None else timeout):
            await subscription.confirmed()
            if not quiet and len(subscription.subjects) == len(dict.fromkeys(subjects)):
                tell(
                    f"subscribed to {', '.join(subscription.subjects)} at {await reached.server()}"
                )
            while count is None or printed < count:
                messages = await subscription.batch()
                if count is not None:
                    del messages[count - printed :]
                printed += len(messages)
                await write_lines([line(message) for message in messages])
        return printed

    printed = run_client(connection, subscribe, reached.note)
    if count is not None and printed < count:
        raise CommandError(f"{printed} of {count} messages came in {timeout:g} s")
