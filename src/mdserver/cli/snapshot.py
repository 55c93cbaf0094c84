"""`mdserver snapshot`: print the latest content of a subject."""

import click
import trio

from mdserver.cli.lines import content_line, write_lines
from mdserver.cli.options import CommandError, Connection, connection_options, run_client
from mdserver.client import Client, Message, MessageType
from mdserver.limits import SNAPSHOT_TIMEOUT_S


@click.command("snapshot")
@click.argument("subject")
@connection_options
def command(connection: Connection, subject: str) -> None:
    """Print the content of the snapshot of SUBJECT; exit status 1 if there is none."""

    async def fetch(client: Client) -> Message | None:
        with trio.move_on_after(SNAPSHOT_TIMEOUT_S):
            async with client.subscribe(subject) as subscription:
                await subscription.confirmed()
                # The snapshot comes before the confirmation: what is here now is all there is.
                subscription.end()
                async for message in subscription:
                    if message.type is MessageType.SNAPSHOT:
                        await write_lines([content_line(message)])
                        return message
                return None
        raise CommandError(f"no answer within {SNAPSHOT_TIMEOUT_S} s")

    if run_client(connection, fetch) is None:
        raise CommandError(f"there is no snapshot of {subject}")
