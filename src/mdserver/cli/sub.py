"""`mdserver sub`: subscribe to subjects and print what arrives."""

import math

import click
import trio

from mdserver.cli.lines import json_line, text_line, write_lines
from mdserver.cli.options import CommandError, Connection, connection_options, run_client
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
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="End after S seconds; exit status 1 if --count is not reached.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A line a message: subject, content and fields, or a JSON object.",
)
@connection_options
def command(
    connection: Connection,
    subjects: tuple[str, ...],
    history: int,
    conflation: int,
    count: int | None,
    timeout: float | None,
    form: str,
) -> None:
    """Subscribe to subjects and patterns and print each message on a line of its own."""
    line = json_line if form == "json" else text_line

    async def subscribe(client: Client) -> int:
        printed = 0
        subscription = client.subscribe(
            *dict.fromkeys(subjects), history=history, conflation_ms=conflation
        )
        with trio.move_on_after(math.inf if timeout is None else timeout):
            while count is None or printed < count:
                messages = await subscription.batch()
                if count is not None:
                    del messages[count - printed :]
                printed += len(messages)
                await write_lines([line(message) for message in messages])
        return printed

    printed = run_client(connection, subscribe)
    if count is not None and printed < count:
        raise CommandError(f"{printed} of {count} messages came in {timeout:g} s")
