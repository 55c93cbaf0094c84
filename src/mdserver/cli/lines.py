"""Lines in and out of the command line: messages as text or JSON, and stdin without blocking."""

import os
import sys
from collections.abc import AsyncIterator, Sequence

import msgspec
import trio

from mdserver.cli.options import CommandError
from mdserver.cli.terminal import harmless_bytes
from mdserver.client import Message
from mdserver.core.events import MessageEvent
from mdserver.limits import STDIN_LINE_BYTES_MAX

_READ_BYTES = 1 << 18
_encode = msgspec.json.Encoder().encode


def text_line(message: Message) -> bytes:
    """Return `SUBJECT CONTENT name=value...` as a line.

    Characters that would end the line or move the cursor are escaped.
    """
    words = [message.subject, _text(message.content)]
    words += [f"{name}={value}" for name, value in message.fields.items()]
    return printable(" ".join(words)).encode() + b"\n"


def json_line(message: Message) -> bytes:
    """Return the `message` event of docs/protocol.md as a line, with decompressed content."""
    position = message.position
    text = isinstance(message.content, str)
    event = MessageEvent(
        subject=message.subject,
        type=message.type,
        epoch=position.epoch if position else 0,
        seq=position.seq if position else 0,
        content=message.content if isinstance(message.content, str) else None,
        content_base64=None if isinstance(message.content, str) else message.content,
        fields=dict(message.fields) or None,
        qos=message.qos,
        retained=message.retained,
        closure=message.closure,
        reply_subject=message.reply_subject,
        compressed=message.compressed and not text,
        match=message.match,
    )
    return _encode(event) + b"\n"


def content_line(message: Message) -> bytes:
    """Return the content alone, unchanged, and a line end."""
    content = message.content
    return (content.encode() if isinstance(content, str) else content) + b"\n"


async def write_lines(lines: Sequence[bytes]) -> None:
    """Write to stdout and flush; a slow reader of a pipe holds up this task only.

    A pipe gets the lines unchanged; on a terminal, control characters are escaped.
    """
    block = b"".join(lines)
    if sys.stdout.isatty():
        block = harmless_bytes(block)
    await trio.to_thread.run_sync(_write, block)


def _write(block: bytes) -> None:
    sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


async def stdin_lines() -> AsyncIterator[list[bytes]]:
    """Yield the lines of stdin without their ends, as many at a time as one read brings.

    Raises CommandError for a line longer than STDIN_LINE_BYTES_MAX.
    """
    rest = b""
    while block := await trio.to_thread.run_sync(
        os.read, sys.stdin.fileno(), _READ_BYTES, abandon_on_cancel=True
    ):
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield lines
        if len(rest) > STDIN_LINE_BYTES_MAX:
            raise CommandError(f"a line of stdin has more than {STDIN_LINE_BYTES_MAX} bytes")
    if rest:
        yield [rest]


def _text(content: str | bytes) -> str:
    if isinstance(content, str):
        return content
    return content.decode("utf-8", "backslashreplace")


def printable(line: str) -> str:
    """Return the line with the characters escaped that would end it or move the cursor."""
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
    )
