"""`mdserver snapshot`: print the latest content of a subject, or of all subjects of a pattern."""

from collections.abc import Callable
from contextlib import suppress

import click
import trio

from mdserver.cli.forms import format_option
from mdserver.cli.lines import content_line, json_line, text_line, write_lines
from mdserver.cli.options import (
    CommandError,
    ConnectionOptions,
    connection_options,
    run_client,
)
from mdserver.client import Client, Message, MessageType, Subscription
from mdserver.core.subjects import is_pattern
from mdserver.limits import SNAPSHOT_TIMEOUT_S


@click.command("snapshot")
@click.argument("subject")
@format_option("The content alone (with a pattern the line that `sub` prints), or a JSON object.")
@connection_options
def command(connection: ConnectionOptions, subject: str, form: str) -> None:
    """Print the snapshot of SUBJECT, or the snapshots of all subjects of a pattern.

    Of a subject the content alone is printed; of a pattern a line a subject, as `sub` prints them.
    Exit status 1 if there is none.
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
            # The snapshot precedes the confirmation, so what is here now is all there is.
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
    """Print snapshots until the server has brought all of them; return their number.

    What is published meanwhile is left out, because it was not there when the command was called.
    """
    printed = 0

    async def end_when_all_is_here() -> None:
        await subscription.caught_up()
        subscription.end()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_when_all_is_here)
        with suppress(StopAsyncIteration):
            while True:
                with trio.move_on_after(SNAPSHOT_TIMEOUT_S) as waiting:
                    messages = await subscription.batch()
                if waiting.cancelled_caught:
                    told = f"nothing more came for {SNAPSHOT_TIMEOUT_S} s: there may be others"
                    raise CommandError(told)
                lines = [line(one) for one in messages if one.type is MessageType.SNAPSHOT]
                printed += len(lines)
                await write_lines(lines)
    return printed
