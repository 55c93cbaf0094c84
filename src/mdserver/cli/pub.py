"""`mdserver pub`: publish one message, or one for each line of stdin."""

import sys
from collections import deque
from collections.abc import Callable

import attrs
import click
import msgspec
import trio

from mdserver.cli.forms import format_option
from mdserver.cli.lines import printable, stdin_lines, write_lines
from mdserver.cli.options import (
    CommandError,
    ConnectionOptions,
    connection_options,
    run_client,
    tell,
)
from mdserver.client import Client, Publication, PublishError, PublishResult
from mdserver.client.message import deflated
from mdserver.core.commands import Publish
from mdserver.core.events import StatusName
from mdserver.core.message import Qos

_TOLD_MAX = 20  # failures reported one by one; further ones are only counted
_decode = msgspec.json.Decoder(Publish).decode


@click.command("pub")
@click.argument("subject", required=False)
@click.argument("content", required=False)
@click.option("--stdin", is_flag=True, help="Publish one message a line of stdin.")
@click.option("--field", "fields", multiple=True, metavar="NAME=VALUE", help="A field; repeatable.")
@click.option("--not-retained", is_flag=True, help="Leave the snapshot of the subject as it is.")
@click.option(
    "--qos", type=click.Choice(["guaranteed", "standard"]), default="guaranteed", show_default=True
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="At most N messages a second.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print the position of what was published.")
@format_option("With --verbose, or json: a line a message that was taken; subject, epoch and seq.")
@connection_options
def command(
    connection: ConnectionOptions,
    subject: str | None,
    content: str | None,
    stdin: bool,
    fields: tuple[str, ...],
    not_retained: bool,
    qos: str,
    rate: float | None,
    verbose: bool,
    form: str,
) -> None:
    """Publish CONTENT to SUBJECT and wait until the server has taken it.

    With --stdin and a SUBJECT each line is the content of one message; without a SUBJECT each line
    is a JSON object with the keys of the `publish` command: subject, content, fields, and so on.
    """
    if stdin == (content is not None) or (subject is None and not stdin):
        raise click.UsageError("give SUBJECT and CONTENT, or --stdin with or without SUBJECT")
    model = Publish(
        subject=subject or "",
        content=content,
        fields=_fields(fields),
        retained=not not_retained,
        qos=Qos[qos.upper()],
    )

    line = json_result if form == "json" else text_result if verbose else None

    async def publish(client: Client) -> None:
        if not stdin:
            result = await (await client.submit_command(model)).outcome()
            if line is not None:
                await write_lines([line(model.subject, result)])
            return
        read = _content_of(model) if subject is not None else _command_of
        await Feed(client, read, rate, line, skip_blank=subject is None).run(
            ProgressLine(sys.stderr.isatty())
        )

    try:
        run_client(connection, publish)
    except PublishError as error:
        raise CommandError(connection.hinted(f"{model.subject}: {error}")) from None


def _fields(given: tuple[str, ...]) -> dict[str, str] | None:
    fields = {}
    for field in given:
        name, equals, value = field.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--field {field}: a field is NAME=VALUE")
        fields[name] = value
    return fields or None


def _content_of(model: Publish) -> Callable[[bytes], Publish]:
    """Return a reader that takes a line as the content of a message.

    Bytes that are not UTF-8 text are published as bytes.
    """

    def read(line: bytes) -> Publish:
        try:
            return msgspec.structs.replace(model, content=line.decode())
        except UnicodeDecodeError:
            return msgspec.structs.replace(model, content_base64=line)

    return read


def _command_of(line: bytes) -> Publish:
    """Read a line as a `publish` command; text with the flag `compressed` is compressed here."""
    command = _decode(line)
    if command.compressed and command.content is not None:
        zipped = deflated(command.content)
        command = msgspec.structs.replace(command, content=None, content_base64=zipped)
    return command


def text_result(subject: str, result: PublishResult) -> bytes:
    """Return `SUBJECT EPOCH/SEQ` as a line."""
    return f"{printable(subject)} {result.epoch}/{result.seq}\n".encode()


def json_result(subject: str, result: PublishResult) -> bytes:
    """Return the result as a JSON object, with `duplicate` if it had been taken before."""
    said = {
        "subject": subject,
        "status": result.status.value,
        "epoch": result.epoch,
        "seq": result.seq,
    }
    return msgspec.json.encode({**said, "duplicate": True} if result.duplicate else said) + b"\n"


@attrs.define
class ProgressLine:
    """The progress of a feed, on stderr if that is a terminal."""

    _shown: bool
    _start: float = attrs.Factory(trio.current_time)
    _next: float = 0

    def show(self, published: int) -> None:
        """Write the line anew, at most ten times a second."""
        now = trio.current_time()
        if not self._shown or now < self._next:
            return
        self._next = now + 0.1
        rate = int(published / max(now - self._start, 0.001))
        sys.stderr.write(f"\r{published:,} published, {rate:,}/s\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@attrs.define
class Feed:
    """Publishes the lines of stdin, many in flight, and reports which of them failed."""

    client: Client
    read: Callable[[bytes], Publish]
    rate: float | None
    line: Callable[[str, PublishResult], bytes] | None
    skip_blank: bool
    _open: deque[tuple[int, str, Publication]] = attrs.Factory(deque)
    _taken: list[bytes] = attrs.Factory(list)
    _failed: int = 0

    async def run(self, progress: ProgressLine) -> None:
        """Publish until the end of stdin, and wait until each publication has its result.

        Raises CommandError if a message was not published.
        """
        start = trio.current_time()
        number = 0
        async for lines in stdin_lines():
            for line in lines:
                number += 1
                if self.skip_blank and not line.strip():
                    continue
                if self.rate is not None:
                    await trio.sleep_until(start + (number - 1) / self.rate)
                await self._publish(number, line)
            await trio.lowlevel.checkpoint()
            await self._print()
            progress.show(number - len(self._open))
        await self.client.settled()
        self._settle()
        progress.clear()
        await self._print()
        if self._failed:
            raise CommandError(f"{self._failed} of {number} messages were not published")

    async def _publish(self, number: int, line: bytes) -> None:
        self._settle()
        try:
            command = self.read(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._fail(number, f"no `publish` command: {error}")
            return
        publication = await self.client.submit_command(command)
        self._open.append((number, command.subject, publication))

    def _settle(self) -> None:
        """Take the results that are here, in the order of the lines."""
        while self._open and (result := self._open[0][2].result) is not None:
            number, subject, _ = self._open.popleft()
            if result.status is not StatusName.PUBLISH_OK:
                self._fail(number, f"{result.status.value}: {result.reason}")
            elif self.line is not None:
                self._taken.append(self.line(subject, result))

    async def _print(self) -> None:
        """Print what was taken since the last call."""
        self._settle()
        if self._taken:
            lines, self._taken = self._taken, []
            await write_lines(lines)

    def _fail(self, number: int, reason: str) -> None:
        self._failed += 1
        if self._failed <= _TOLD_MAX:
            tell(f"line {number}: {reason}")
