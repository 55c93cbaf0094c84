"""Three ways to run one scenario: under Trio, under asyncio, and with the blocking client.

A scenario is written against the asynchronous client. The blocking client is put behind the same
names: each of its calls runs in a thread, as a program with threads would make it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from mdserver.client import Client, aio, sync

WAYS = ["trio", "asyncio", "blocking"]
PATIENCE_S = 300  # of a whole scenario, on a busy machine
THREADS = 100


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a call in a thread; a cancelled scenario does not wait for it."""
    return await anyio.to_thread.run_sync(
        partial(function, *args, **kwargs), abandon_on_cancel=True
    )


class Threaded:
    """An object of the blocking client whose calls are awaited."""

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.blocking, name)
        return partial(in_thread, value) if callable(value) else value


class ThreadedFeed(Threaded):
    """A subscription, or statuses."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.blocking.end()

    def end(self) -> None:
        self.blocking.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await in_thread(self.blocking.receive)
        if item is None:
            raise StopAsyncIteration
        return item


class ThreadedClient(Threaded):
    """The blocking client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(sync.Client(*args, **kwargs))

    async def __aenter__(self) -> Self:
        await in_thread(self.blocking.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await in_thread(self.blocking.__exit__, kind, error, trace)

    @property
    def statuses(self) -> ThreadedFeed:
        return ThreadedFeed(self.blocking.statuses)

    def subscribe(self, *subjects: str, **options: Any) -> ThreadedFeed:
        return ThreadedFeed(self.blocking.subscribe(*subjects, **options))

    async def submit(self, *args: Any, **kwargs: Any) -> Threaded:
        return Threaded(await in_thread(self.blocking.submit, *args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        if name in {"publish", "request", "reply", "settled", "connected", "reported"}:
            return super().__getattr__(name)
        return getattr(self.blocking, name)


CLIENTS: dict[str, Any] = {"trio": Client, "asyncio": aio.Client, "blocking": ThreadedClient}


def run(way: str, scenario: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run a scenario, which gets the class of the client first."""

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        with anyio.fail_after(PATIENCE_S):
            await scenario(CLIENTS[way], *arguments)

    anyio.run(main, backend="trio" if way == "trio" else "asyncio")
