"""One worker process as the server sees it: its start, its channels, and its end."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

import structlog
import trio
from attrs import field, frozen

from mdserver.limits import KB, WORKER_END_S
from mdserver.server.workers.control import Channel

LOG_READ_BYTES = 64 * KB
COMMAND = (sys.executable, "-P", "-m", "mdserver.server.worker")
log = structlog.get_logger()


@frozen(eq=False)
class Descriptors:
    """The descriptors that a worker inherits beside those of all workers; it knows their numbers.

    They are open in this process only until the worker was started.
    """

    peer: int
    control: int
    log: int


@frozen(eq=False)
class WorkerProcess:
    """A worker that was started, with this end of each of its channels.

    `ended` is set when the process has ended and nothing more will be read of it.
    """

    process: trio.Process
    channel: Channel
    peer: socket.socket
    descriptors: Descriptors
    _log: int
    ended: trio.Event = field(factory=trio.Event, init=False)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    async def watch(self) -> None:
        """Wait until the process has ended; what it said last may not have been read then."""
        await self.process.wait()

    async def pump_log(self, write: Callable[[bytes], None]) -> None:
        """Pass the lines of the worker's log on until its end; takes over the pipe."""
        rest = b""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._log)
                data = os.read(self._log, LOG_READ_BYTES)
                if not data:
                    break
                lines, end, rest = (rest + data).rpartition(b"\n")
                if end:
                    write(lines + end)
        finally:
            os.close(self._log)
            if rest:
                write(rest + b"\n")

    async def end(self) -> None:
        """End the process: it does so when its channels end, and is killed if it does not."""
        self.channel.close()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(WORKER_END_S):
                await self.process.wait()
            if self.process.returncode is None:
                log.error("worker killed", pid=self.pid, reason="it did not end by itself")
                self.kill()
                with trio.move_on_after(WORKER_END_S):
                    await self.process.wait()
        self.ended.set()

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessLookupError):
            self.process.kill()

    def describe_end(self) -> str:
        """Return how the process ended."""
        status = self.process.returncode
        if status is None:
            return "it does not end"
        if status < 0:
            return f"signal {signal_name(-status)}"
        return f"exit status {status}"


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number: most real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


async def start_process(inherited: Sequence[int]) -> WorkerProcess:
    """Start a worker, which inherits these descriptors and those of its channels.

    Raises OSError if the system lacks descriptors, memory or processes, for example.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        peer, its_peer = opened(socket.socketpair(), ours, theirs)
        control, its_control = opened(socket.socketpair(), ours, theirs)
        log_end, its_log = os.pipe()
        ours.callback(os.close, log_end)
        theirs.callback(os.close, its_log)
        os.set_blocking(log_end, False)
        channel = Channel(control)
        descriptors = Descriptors(its_peer.fileno(), its_control.fileno(), its_log)
        process = await trio.lowlevel.open_process(
            [*COMMAND, str(descriptors.control)],
            stdin=subprocess.DEVNULL,
            pass_fds=(descriptors.peer, descriptors.control, descriptors.log, *inherited),
        )
        ours.pop_all()
    return WorkerProcess(process, channel, peer, descriptors, log_end)


def opened(
    pair: tuple[socket.socket, socket.socket], ours: ExitStack, theirs: ExitStack
) -> tuple[socket.socket, socket.socket]:
    """Have each socket of a pair closed by the stack of its side; return the pair."""
    ours.callback(pair[0].close)
    theirs.callback(pair[1].close)
    return pair
