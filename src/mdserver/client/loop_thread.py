"""Runs a client in a thread with an event loop of its own, for callers that block.

The life of the thread: the constructor starts it and waits until the client is entered. Then calls
are scheduled in its loop. `close` sets the event `leave`, after which the client is left and the
thread ends. A lock orders calls and `close`: a call is either scheduled before the client is left,
so that it ends or is cancelled with the loop, or refused.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

from mdserver.client.client import Client
from mdserver.client.errors import NotOpenError
from mdserver.limits import CLIENT_CLOSE_TIMEOUT_S, CLIENT_DRAIN_TIMEOUT_S

R = TypeVar("R")
_CLOSE_MAX_S = 2 * (CLIENT_DRAIN_TIMEOUT_S + 4 * CLIENT_CLOSE_TIMEOUT_S)  # on a busy machine


class LoopThread:
    """A client that is entered and left in a thread.

    The thread is a daemon, so that a program that forgets to close its client still ends. The
    client is closed at the exit of the interpreter in that case, which waits for the results of
    publications as `close` does.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._process = os.getpid()
        self._closing = threading.Lock()  # no call may be scheduled after `leave`
        self._closed = False
        self._failed = False
        self._ended: Future[None] = Future()
        entered: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        threading.Thread(
            target=self._run, args=(entered,), name="mdserver client", daemon=True
        ).start()
        self._loop, self._leave = entered.result()
        atexit.register(self._close_at_exit)

    def call(self, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine in the loop and return its result.

        An exception that interrupts the wait, such as KeyboardInterrupt, cancels the coroutine.
        Raises NotOpenError if the client was closed, or if the process forked since it was opened.
        """
        self._require_process()
        with self._closing:
            if self._closed:
                raise NotOpenError("the client was closed: its `with` is over; make another one")
            future = asyncio.run_coroutine_threadsafe(function(), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise NotOpenError("the client was closed while this call waited") from None
        finally:
            future.cancel()

    @property
    def ended(self) -> bool:
        """Whether the client was left and its thread has ended."""
        return self._ended.done()

    def close(self, *, failed: bool) -> None:
        """Leave the client and wait until the thread has ended.

        With `failed` the client is left as after an error in its block: it does not wait for
        results. Raises the error of the client, if it ended by one.
        """
        self._require_process()
        with self._closing:
            if not self._closed:
                self._closed = True
                self._failed = failed
                self._loop.call_soon_threadsafe(self._leave.set)
        atexit.unregister(self._close_at_exit)
        self._ended.result()

    @property
    def closing(self) -> bool:
        """Whether `close` was called in this process."""
        return self._closed and os.getpid() == self._process

    def wait_if_closing(self, timeout_s: float | None) -> bool:
        """If the client is being closed, wait for that; return whether its thread has ended.

        It waits no longer than `timeout_s`, in seconds, and never longer than closing can take.
        """
        if self.closing:
            wait_s = _CLOSE_MAX_S if timeout_s is None else min(timeout_s, _CLOSE_MAX_S)
            wait([self._ended], wait_s)
        return self.ended

    def _close_at_exit(self) -> None:
        if os.getpid() == self._process:
            self.close(failed=False)

    def _require_process(self) -> None:
        """Raise NotOpenError in a forked process, in which the thread does not run."""
        if os.getpid() != self._process:
            raise NotOpenError("the process forked since the client was opened: make one in each")

    def _run(self, entered: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        try:
            asyncio.run(self._live(entered))
        except BaseException as error:
            if not entered.done():
                entered.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self, entered: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        """Hold the client open until `close`."""
        leave = asyncio.Event()
        try:
            async with self._client:
                entered.set_result((asyncio.get_running_loop(), leave))
                await leave.wait()
                if self._failed:
                    raise _AbandonedError
        except _AbandonedError:
            pass


class _AbandonedError(Exception):
    """Raised in the client's block, so that the client is left as after an error."""
