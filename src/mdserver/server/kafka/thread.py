"""A thread of the Kafka engine: it blocks in librdkafka, and gives inputs to the node.

`give` waits until the node has taken the input, so a thread never gets ahead of the server: while
the server is busy, the queues of librdkafka fill up, and it asks the brokers for no more.
"""

import threading
from abc import ABC, abstractmethod
from typing import Any

import trio

from mdserver.server.engine import Engine


class EngineThread(ABC):
    """Base of the threads. `run` runs one until it is cancelled, and then waits for its end."""

    def __init__(self, engine: Engine) -> None:
        self.errors = 0
        """What failed since the start; read by the thread of the server."""
        self._engine = engine
        self._stopping = threading.Event()

    @abstractmethod
    def work(self) -> None:
        """Do the work in the thread, until `_stopping` is set."""

    def give(self, given: Any) -> None:
        """Give the node an input. Raises trio.Cancelled when the server ends."""
        trio.from_thread.run_sync(self._engine.dispatch, given)

    async def run(self) -> None:
        """Run the thread until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_cancelled)
            # It has a thread of its own: it would otherwise keep one from short calls for ever.
            await trio.to_thread.run_sync(self.work, limiter=trio.CapacityLimiter(1))
            nursery.cancel_scope.cancel()

    async def _stop_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._stopping.set()
