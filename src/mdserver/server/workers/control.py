"""The control channel between the server and one worker: messages in JSON, each behind its length.

Both sides may ask (`Question`), and each question has one answer with its number. Everything else
is said without an answer. The channel belongs to two processes of one program, so a message that
cannot be understood is a bug, and ends the worker.
"""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import trio
from attrs import Factory, define

from mdserver.errors import MdserverError
from mdserver.limits import WORKER_ASK_TIMEOUT_S, WORKER_CONTROL_BYTES_MAX

_LENGTH = struct.Struct("!I")
READ_BYTES = 64 * 1024


class BeginWorker(msgspec.Struct, frozen=True, tag=True):
    """The first message to a worker: what it is, and the descriptors that it inherited.

    `config` has each parameter with its text. `sockets` are groups of listening sockets, in the
    order of the addresses of `Listen` and `ListenEncrypted`. `connections` is the shared memory of
    the counts, in which this worker is `slot`; `key` is the key of their hashes. `log` is where
    lines of the server log go. `first_session` is the number of its first session.
    """

    worker: int
    slot: int
    slots: int
    incarnation: int
    first_session: int
    server: str
    config: dict[str, str]
    path: list[str]
    secret: bytes
    sockets: list[tuple[str, list[int]]]
    peer: int
    log: int
    connections: int
    key: bytes


class ReloadWorker(msgspec.Struct, frozen=True, tag=True):
    """The configuration changed; certificates are to be read again as well."""

    config: dict[str, str]


class SetWorkerLogLevel(msgspec.Struct, frozen=True, tag=True):
    """The server log has another level for now."""

    level: str


class DrainWorker(msgspec.Struct, frozen=True, tag=True):
    """Send the clients elsewhere, then end."""


class WorkerStarted(msgspec.Struct, frozen=True, tag=True):
    """The worker accepts connections at these URLs."""

    urls: list[str]


class WorkerFailed(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot start, for a reason that an operator can change."""

    reason: str


class WorkerReport(msgspec.Struct, frozen=True, tag=True):
    """The statistics of a worker since its start, and its gauges now; also a sign of life.

    Histograms are their counts by bits, and their totals.
    """

    totals: dict[str, int]
    gauges: dict[str, int]
    refused: dict[str, int]
    closed: dict[int, int]
    relieved: int
    histograms: dict[str, tuple[list[int], int]]


class AuditLine(msgspec.Struct, frozen=True):
    """A line for the audit logs (`core.outputs.Log`)."""

    stream: str
    name: str
    values: dict[str, str | int | float | bool | None]
    address: str | None = None


class AuditLines(msgspec.Struct, frozen=True, tag=True):
    """Lines for the audit logs; `lost` is how many were dropped before them."""

    lines: list[AuditLine]
    lost: int = 0


class Question(msgspec.Struct, frozen=True, tag=True):
    """A question about `what`."""

    number: int
    what: str
    values: dict[str, Any]
    body: bytes = b""


class QuestionAnswer(msgspec.Struct, frozen=True, tag=True):
    """The answer to a question, as plain values.

    `more`: it is a list, and the next answer to this question goes on with it. `refused`: there is
    no answer, for this reason.
    """

    number: int
    value: Any
    more: bool = False
    refused: str | None = None


Message = (
    BeginWorker
    | ReloadWorker
    | SetWorkerLogLevel
    | DrainWorker
    | WorkerStarted
    | WorkerFailed
    | WorkerReport
    | AuditLines
    | Question
    | QuestionAnswer
)
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Message)


class ControlError(Exception):
    """The other side sent something that is no message: the two sides do not fit."""


@define
class Asked:
    """A question that waits for its answer, and the part of that which came."""

    answered: trio.Event = Factory(trio.Event)
    value: Any = None
    refused: str | None = None


class AskRefusedError(MdserverError):
    """A question or its answer is too large; the message is one sentence that says so."""


class Channel:
    """One side of a control channel. Takes over `sock`.

    A sender may be cancelled at any time, and its message may then have begun. `_unsent` is the
    rest of such a message, which the next sender sends before its own.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = trio.socket.from_stdlib_socket(sock)
        self._sending = trio.Lock()
        self._unsent = memoryview(b"")
        self._asked: dict[int, Asked] = {}
        self._next = 1

    async def send(self, message: Message) -> None:
        """Send a message.

        Raises trio.BrokenResourceError if the other side is gone, and AskRefusedError if the
        message is larger than that takes. When cancelled, the message may reach the other side or
        not, and only as a whole.
        """
        data = _encode(message)
        if len(data) > WORKER_CONTROL_BYTES_MAX:
            raise AskRefusedError(too_large(len(data)))
        await self._send(data)

    async def answer(self, question: int, value: Any, *, more: bool = False) -> None:
        """Answer a question; a list that is too large for one message goes in parts."""
        data = _encode(QuestionAnswer(question, value, more))
        if len(data) <= WORKER_CONTROL_BYTES_MAX:
            await self._send(data)
        elif isinstance(value, list) and len(value) > 1:
            half = len(value) // 2
            await self.answer(question, value[:half], more=True)
            await self.answer(question, value[half:], more=more)
        else:
            refused = QuestionAnswer(question, None, refused=too_large(len(data)))
            await self._send(_encode(refused))

    async def _send(self, data: bytes) -> None:
        """Send the bytes of a message behind their length."""
        async with self._sending:
            await self._send_rest()
            self._unsent = memoryview(_LENGTH.pack(len(data)) + data)
            await self._send_rest()

    async def _send_rest(self) -> None:
        """Send `_unsent`."""
        try:
            while self._unsent:
                # This either sends and returns, or is cancelled and has sent nothing.
                sent = await self._sock.send(self._unsent)
                self._unsent = self._unsent[sent:]
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def messages(self) -> AsyncIterator[Message]:
        """Yield what the other side says until it is gone; answers go to those who asked.

        Raises ControlError.
        """
        buffer = bytearray()
        with suppress(OSError, trio.ClosedResourceError):
            while True:
                data = await self._sock.recv(READ_BYTES)
                if not data:
                    return
                buffer += data
                while (found := taken(buffer)) is not None:
                    message = decoded(found)
                    if isinstance(message, QuestionAnswer):
                        self._answered(message)
                    else:
                        yield message

    async def ask(self, what: str, values: dict[str, Any], body: bytes = b"") -> Any:
        """Return the answer of the other side, None if there is none in time.

        Raises AskRefusedError if one of both is too large.
        """
        number, self._next = self._next, self._next + 1
        asked = self._asked[number] = Asked()
        try:
            with trio.move_on_after(WORKER_ASK_TIMEOUT_S):
                await self.send(Question(number, what, values, body))
                await asked.answered.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        finally:
            del self._asked[number]
        if asked.refused is not None:
            raise AskRefusedError(asked.refused)
        return asked.value if asked.answered.is_set() else None

    def _answered(self, answer: QuestionAnswer) -> None:
        asked = self._asked.get(answer.number)
        if asked is None:
            return
        asked.refused = asked.refused or answer.refused
        asked.value = answer.value if asked.value is None else asked.value + answer.value
        if not answer.more:
            asked.answered.set()

    def close(self) -> None:
        """Close this side; the other one notices the end."""
        self._sock.close()


def too_large(size: int) -> str:
    """Return why a message cannot be sent."""
    most = WORKER_CONTROL_BYTES_MAX
    return f"A worker and its server send each other {most:,} bytes at once, not {size:,}."


def taken(buffer: bytearray) -> bytes | None:
    """Take the first whole message out of a buffer; None if there is none. Raises ControlError."""
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    if length > WORKER_CONTROL_BYTES_MAX:
        raise ControlError(f"a control message has {length} bytes")
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    data = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return data


def decoded(data: bytes) -> Message:
    """Return a message. Raises ControlError."""
    try:
        message: Message = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ControlError(f"a control message cannot be understood: {error}") from None
    return message


def first_message(sock: socket.socket) -> Message:
    """Wait for the first message, before anything runs. Raises ControlError."""
    buffer = bytearray()
    while (data := taken(buffer)) is None:
        # No byte more than the message has, so that `Channel` finds the next one whole.
        wanted = _LENGTH.size
        if len(buffer) >= wanted:
            wanted += _LENGTH.unpack_from(buffer)[0]
        received = sock.recv(wanted - len(buffer))
        if not received:
            raise ControlError("the server ended before it said anything")
        buffer += received
    return decoded(data)
