"""`mdserver snapshot`: print the latest content of a subject, or of all subjects of a pattern."""

from collections.abc import Callable

import click
import trio

from mdserver.cli.forms import format_option
from mdserver.cli.lines import content_line, json_line, text_line, write_lines
from mdserver.cli.options import (
    CommandError,
    Connection,
    connection_options,
    run_client,
)
from mdserver.client import Client, Message, MessageType, Subscription
from mdserver.core.subjects import is_pattern
from mdserver.limits import SNAPSHOT_QUIET_S, SNAPSHOT_TIMEOUT_S


@click.command("snapshot")
@click.argument("subject")
@format_option("The content alone (with a pattern the line that `sub` prints), or a JSON object.")
@connection_options
def command(connection: Connection, subject: str, form: str) -> None:
    """Print the snapshot of SUBJECT, or the snapshots of all subjects of a pattern.

    Of a subject the content alone is printed; of a pattern a line a subject, as `sub` prints them.
    Exit status 1 if there is none. A pattern is at its end when nothing more has come for a second.
    """
    pattern = subject.startswith("/") and is_pattern(subject)
    line = json_line if form == "json" else text_line if pattern else content_line

    async def fetch(client: Client) -> int:
        async with client.subscribe(subject) as subscription:
            with trio.move_on_after(SNAPSHOT_TIMEOUT_S) as waiting:
                await subscription.confirmed()
            if waiting.cancelled_caught:
                raise CommandError(f"no answer within {SNAPSHOT_TIMEOUT_S} s")
            if pattern:
                return await print_all(subscription, line)
            # The snapshot comes before the confirmation: what is here now is all there is.
            subscription.end()
            async for message in subscription:
                if message.type is MessageType.SNAPSHOT:
                    await write_lines([line(message)])
                    return 1
            return 0

    if not run_client(connection, fetch):
        raise CommandError(
            f"there is no snapshot of any subject of {subject}"
            if pattern
            else f"there is no snapshot of {subject}"
        )


async def print_all(subscription: Subscription, line: Callable[[Message], bytes]) -> int:
    """Print snapshots until none has come for SNAPSHOT_QUIET_S; return how many there were.

    The server brings them in steps between which it serves others, and does not say which is the
    last one. What is published meanwhile is left out: it is not what was there.
    """
    printed = 0
    with trio.move_on_after(SNAPSHOT_QUIET_S) as quiet:
        while True:
            messages = await subscription.batch()
            lines = [line(one) for one in messages if one.type is MessageType.SNAPSHOT]
            if lines:
                await write_lines(lines)
                printed += len(lines)
                quiet.deadline = trio.current_time() + SNAPSHOT_QUIET_S
    return printed
