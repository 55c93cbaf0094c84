"""The tasks of a client, under Trio and under asyncio.

Under Trio they run in a nursery that is open as long as the client's `async with`, so an error in
one of them cancels the block and is raised from it. Under asyncio a task group that is opened by
the caller's task has to be closed by the same task, which notebooks, fixtures and web frameworks
do not guarantee. So there a task of its own holds the task group open, and an error is reported by
a callback.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Protocol

import anyio
import anyio.abc

from mdserver.limits import CLIENT_CLOSE_TIMEOUT_S


class Tasks(Protocol):
    """A place for tasks."""

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start a task."""

    async def close(self, error: BaseException | None) -> bool:
        """Cancel all tasks and wait until they have ended; return whether to suppress `error`.

        `error` is the exception with which the block ends, None without one. Raises an exception
        group if a task failed.
        """


class OwnTasks:
    """Tasks in a task group of the calling task (Trio)."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._group: anyio.abc.TaskGroup | None = None

    async def open(self) -> None:
        """Open the task group; the same task has to close it."""
        self._group = await self._stack.enter_async_context(anyio.create_task_group())

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start a task."""
        assert self._group is not None
        self._group.start_soon(function, *args)

    async def close(self, error: BaseException | None) -> bool:
        """Cancel all tasks and wait until they have ended; see `Tasks.close`."""
        assert self._group is not None
        self._group.cancel_scope.cancel()
        if error is None or isinstance(error, Exception):
            # The task group does not see the exception of the block, which it would wrap in an
            # exception group.
            await self._stack.aclose()
            return False
        return bool(await self._stack.__aexit__(type(error), error, error.__traceback__))


class HostedTasks:
    """Tasks in a task group that a task of its own holds open (asyncio).

    `failed` is called with the error if a task fails.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._group: anyio.abc.TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the task group."""
        opened = asyncio.Event()
        self._host = asyncio.create_task(self._hold_open(opened), name="mdserver client")
        self._host.add_done_callback(self._ended)
        try:
            await opened.wait()
        except asyncio.CancelledError:
            self._host.cancel()
            raise

    async def _hold_open(self, opened: asyncio.Event) -> None:
        async with anyio.create_task_group() as self._group:
            opened.set()
            await anyio.sleep_forever()

    def _ended(self, host: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if host.cancelled() else host.exception()
        if error is not None:
            self._failed(error)

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start a task."""
        assert self._group is not None
        self._group.start_soon(function, *args)

    async def close(self, error: BaseException | None) -> bool:
        """Cancel all tasks and wait until they have ended; see `Tasks.close`."""
        assert self._group is not None
        assert self._host is not None
        self._group.cancel_scope.cancel()
        # `wait` does not raise the error of the task, which must not replace that of the block.
        with anyio.move_on_after(2 * CLIENT_CLOSE_TIMEOUT_S, shield=True):
            await asyncio.wait([self._host])
        if error is None and self._host.done() and not self._host.cancelled():
            self._host.result()
        return False


async def open_tasks(failed: Callable[[BaseException], None]) -> Tasks:
    """Return a place for tasks under the running event loop; `failed` is for asyncio alone."""
    tasks: OwnTasks | HostedTasks
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        tasks = HostedTasks(failed)
    else:
        tasks = OwnTasks()
    await tasks.open()
    return tasks
