"""Runs a `ClientCore` under Trio or asyncio: its transports, its timers, and its outputs in order.

`perform` carries out outputs and never waits: it queues frames, starts tasks and sets timers. There
is one task for all timers, and for each attempt one that reads and one that writes. They report to
the core what happened, and perform the outputs that it returns. All of this runs in one thread, and
no call of the core waits, so no call is interrupted by another.
"""

import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio

from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.errors import TransportError
from mdserver.client.tasks import Tasks
from mdserver.client.transport import CLOSED_WITHOUT_HANDSHAKE, Target, Transport
from mdserver.codec.encoding import ClientCodec
from mdserver.errors import leaves
from mdserver.limits import CLIENT_CLOSE_TIMEOUT_S, CLIENT_JOIN_BYTES, NS_PER_S

OpenTransport = Callable[[Target], AbstractAsyncContextManager[Transport]]


class Application(Protocol):
    """The receiver of those outputs of the core that are for the application."""

    def take(self, output: out.Output) -> None:
        """Handle an output, such as a notice, messages, a result or a stop; never waits."""


def now() -> int:
    """Return the time of the event loop's clock, in nanoseconds."""
    return int(anyio.current_time() * NS_PER_S)


class Attempt:
    """One attempt to connect: the frames to send, and how to close it.

    `attempt` is the number that the core gave it. `scope` contains all of its work. `closing` is
    the close code and reason, None until it is to be closed. `established`: the transport is open.
    `ended` is set when nothing of it runs any more.
    """

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.frames: list[bytes] = []
        self.scope = anyio.CancelScope()
        self.closing: tuple[int, str] | None = None
        self.established = False
        self.ended = anyio.Event()
        self._wake = anyio.Event()

    def transmit(self, frame: bytes) -> None:
        """Queue a frame."""
        self.frames.append(frame)
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Have the queued frames sent and the transport closed, within `CLIENT_CLOSE_TIMEOUT_S`.

        If the transport is not open yet, cancel the attempt at once.
        """
        self.closing = (code, reason)
        self._wake.set()
        if self.established:
            self.scope.deadline = anyio.current_time() + CLIENT_CLOSE_TIMEOUT_S
        else:
            self.scope.cancel()

    async def next_payload(self, codec: ClientCodec) -> bytes | None:
        """Wait for frames, and join as many as one message may carry.

        A single frame is returned even if it exceeds that size. Returns None when all frames are
        sent and the transport is to be closed.
        """
        while not self.frames:
            if self.closing is not None:
                return None
            self._wake = anyio.Event()
            await self._wake.wait()
        size = 0
        for count, frame in enumerate(self.frames):
            size += len(frame) + 1
            if count and size > CLIENT_JOIN_BYTES:
                break
        else:
            count = len(self.frames)
        taken, self.frames = self.frames[:count], self.frames[count:]
        return codec.join(taken)


class Driver:
    """Carries out the outputs of a core, and reports to it what happens.

    `tls` is the context for encrypted connections; the default context of Python is made when it is
    first needed. `open_transport` is used from the next attempt on.
    """

    def __init__(
        self,
        core: ClientCore,
        codec: ClientCodec,
        open_transport: OpenTransport,
        application: Application,
    ) -> None:
        self.tls: ssl.SSLContext | None = None
        self.open_transport = open_transport
        self._core = core
        self._codec = codec  # only joins frames, which needs no state of a connection
        self._application = application
        self._tasks: Tasks | None = None
        self._link: Attempt | None = None
        self._timers: dict[str, int] = {}
        self._timers_changed = anyio.Event()

    def start(self, tasks: Tasks) -> None:
        """Run timers and transports in these tasks, until they are cancelled."""
        self._tasks = tasks
        tasks.start_soon(self._run_timers)

    def perform(self, outputs: list[out.Output]) -> None:
        """Carry out outputs, in order; never waits.

        The application may call the core while it takes an output. The outputs of that call are
        carried out at once, before the rest of these.
        """
        for output in outputs:
            match output:
                case out.Transmit(_, frame):
                    assert self._link is not None
                    self._link.transmit(frame)
                case out.OpenTransport():
                    assert self._tasks is not None
                    self._link = Attempt(output.attempt)
                    self._tasks.start_soon(self._run_transport, self._link, output)
                case out.CloseTransport(_, code, reason):
                    assert self._link is not None
                    self._link.close(code, reason)
                case out.SetTimer(timer, at):
                    self._timers[timer] = at
                    self._timers_changed.set()
                case out.CancelTimer(timer):
                    self._timers.pop(timer, None)
                case _:
                    self._application.take(output)

    async def _run_timers(self) -> None:
        """Report each timer when it is due, until cancelled."""
        while True:
            self._timers_changed = anyio.Event()
            soonest = min(self._timers.items(), key=lambda item: item[1], default=None)
            if soonest is None:
                await self._timers_changed.wait()
                continue
            timer, at = soonest
            with anyio.CancelScope(deadline=at / NS_PER_S) as waiting:
                await self._timers_changed.wait()
            # The timer may have been moved or cancelled in the moment in which it came due.
            if waiting.cancelled_caught and self._timers.get(timer) == at:
                del self._timers[timer]
                self.perform(self._core.due(timer, max(at, now())))

    async def _run_transport(self, link: Attempt, opening: out.OpenTransport) -> None:
        """Run one connection from its opening to its end, and report `closed` however it ends."""
        target = Target(
            opening.server,
            self._tls(secure=opening.secure),
            self._codec.text,
            lambda: self.perform(self._core.heard(link.attempt, now())),
        )
        code, reason = CLOSED_WITHOUT_HANDSHAKE, "the connection was lost"
        try:
            with link.scope:
                async with self.open_transport(target) as transport:
                    await self._converse(link, transport)
        except* TransportError as group:
            error = leaves(group)[0]
            code, reason = error.code, error.reason
        finally:
            link.ended.set()
        self.perform(self._core.closed(link.attempt, code, reason, now()))

    async def leave(self) -> None:
        """Wait until the last connection has ended; after `disconnect` that takes bounded time."""
        if self._link is not None:
            await self._link.ended.wait()

    async def _converse(self, link: Attempt, transport: Transport) -> None:
        """Report what arrives, while `_write` sends what is queued."""
        link.established = True
        self.perform(self._core.opened(link.attempt, now()))
        async with anyio.create_task_group() as nursery:
            nursery.start_soon(self._write, link, transport)
            while True:
                payload = await transport.receive()
                self.perform(self._core.received(link.attempt, payload, now()))

    async def _write(self, link: Attempt, transport: Transport) -> None:
        """Send queued frames until the attempt is to be closed; then close it and end its tasks."""
        while (payload := await link.next_payload(self._codec)) is not None:
            await transport.send(payload)
        assert link.closing is not None
        code, reason = link.closing
        await transport.close(code, reason)
        link.scope.cancel()

    def _tls(self, *, secure: bool) -> ssl.SSLContext | None:
        if not secure:
            return None
        if self.tls is None:
            self.tls = ssl.create_default_context()
        return self.tls
