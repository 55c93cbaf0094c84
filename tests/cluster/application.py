"""An application on a cluster of processes: clients that publish and subscribe all the time.

What they do and see goes into one history, which `simulation.checker` judges, the same that judges
simulated runs. All waiting is for conditions; the pace of publishing is no synchronisation.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from mdserver.client import Client, ReconnectSettings
from mdserver.client.core import values
from mdserver.client.core.positions import Positions
from mdserver.client.core.subscriptions import DesiredSubscriptions
from mdserver.client.driver import now
from mdserver.core.events import MessageEvent
from simulation.checker import Checker
from simulation.history import Settled
from simulation.recording import Recorder

PACE_S = 0.01
PATIENCE_S = 60
RECONNECT = ReconnectSettings(
    quick_max_retries=1000, quick_initial_delay_s=0.2, notify_rate_threshold=10_000
)
KINDS = ("plain", "history", "wildcard", "conflated")


class NotedPositions(Positions):
    """Writes down every message that goes to the application, under the history id of then."""

    def __init__(self, recorder: Recorder, conflated: bool) -> None:
        super().__init__()
        self.contents: dict[str, str | None] = {}
        self._recorder = recorder
        self._conflated = conflated

    def accept(self, message: MessageEvent) -> bool:
        if not super().accept(message):
            return False
        self.contents[message.subject] = message.content
        self._recorder.messages(now(), self.history, [message], conflated=self._conflated)
        return True


class Watched(Client):
    """A client of the library whose application's view is written into a history."""

    def __init__(
        self, application: "Application", name: str, servers: list[str], *, conflated: bool = False
    ) -> None:
        super().__init__(
            servers, reconnect=RECONNECT, rng=random.Random(name), publisher=f"publisher of {name}"
        )
        self.name = name
        self.application = application
        self.recorder = Recorder(name, application.checker.see, application.cover)
        self.positions = NotedPositions(self.recorder, conflated)
        self._core.positions = self.positions
        self._core.subscriptions = DesiredSubscriptions(self._core.positions)
        self._count = 0
        self.newest = ""
        self.idle = trio.Event()

    def take(self, output: values.Output) -> None:
        match output:
            case values.Published(result) if self.application.judges_acks:
                self.recorder.result(now(), self._core.positions.history, result)
            case values.Published(result):
                self.application.cover("acked" if result.reason is None else "refused")
            case values.Notify(notice):
                self.recorder.notified(now(), notice)
        super().take(output)

    async def publish_one(self, subject: str) -> None:
        """Publish a content that names itself; the result comes later."""
        self._count += 1
        self.newest = f"{self.name}-{self._count}"
        self.recorder.published(now(), self._count, self.newest, subject)
        await self.submit(subject, self.newest)

    async def publish_all_the_time(self, subjects: list[str], until: trio.Event) -> None:
        while not until.is_set():
            for subject in subjects:
                await self.publish_one(subject)
                await trio.sleep(PACE_S)
        await self.settled()
        self.idle.set()

    async def read(self, kind: str, subjects: list[str], pattern: str) -> None:
        """Subscribe in one of the ways, and take all that comes."""
        self.recorder.subscribed(now(), subjects)
        if kind == "wildcard":
            subscription = self.subscribe(pattern)
        else:
            history = 50 if kind == "history" else 0
            conflation = 200 if kind == "conflated" else 0
            subscription = self.subscribe(*subjects, history=history, conflation_ms=conflation)
        while True:
            await subscription.batch()


class Application:
    """Publishers and subscribers at every server; `running` starts and ends one.

    Their subjects are all `under` a common one. Each client prefers its server, and goes to any
    other one when that is gone. Without `guaranteed` acknowledgements are counted only: they
    promise nothing, and each server has history ids of its own.
    """

    def __init__(
        self,
        servers: Iterable[str],
        *,
        under: str = "/load",
        kinds: Iterable[str] = KINDS,
        publishers: int = 2,
        guaranteed: bool = True,
    ) -> None:
        self.servers = list(servers)
        self.kinds = list(kinds)
        self.judges_acks = guaranteed
        self.checker = Checker(majority_kept=guaranteed)
        self.covered: Counter[str] = Counter()
        self.under = under
        self.subjects = [f"{under}/{index}" for index in range(8)]
        self.readers: list[Watched] = []
        self.publishers: list[Watched] = []
        self._publishers = publishers
        self._ended = trio.Event()
        self._changed = trio.Event()

    def cover(self, what: str) -> None:
        self.covered[what] += 1
        self._changed.set()

    def _client(self, name: str, home: str, *, conflated: bool = False) -> Watched:
        others = [f"1 {server}" for server in self.servers if server != home]
        return Watched(self, name, [f"100 {home}", *others], conflated=conflated)

    async def start(self, nursery: trio.Nursery) -> None:
        """Connect all clients, subscribers first."""
        for home in self.servers:
            for kind in self.kinds:
                client = self._client(f"{kind} at {home}", home, conflated=kind == "conflated")
                self.readers.append(client)
                read = partial(client.read, kind, self.subjects, f"{self.under}/**")
                await nursery.start(self._run, client, read)
        for index in range(self._publishers):
            home = self.servers[index % len(self.servers)]
            client = self._client(f"publisher-{index}", home)
            self.publishers.append(client)
            publish = partial(client.publish_all_the_time, self.subjects, self._ended)
            await nursery.start(self._run, client, publish)

    async def _run(
        self,
        client: Watched,
        body: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async with client:
            with trio.fail_after(PATIENCE_S):
                await client.connected()
            task_status.started()
            await body()
            await trio.sleep_forever()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; AssertionError where it does not come about."""
        with trio.move_on_after(PATIENCE_S) as waiting:
            while not condition():
                self._changed = trio.Event()
                await self._changed.wait()
        assert not waiting.cancelled_caught, f"not in {PATIENCE_S} s: {what}"

    async def flowing(self, count: int = 100) -> None:
        """Wait until so many more publications were acknowledged, and as many delivered."""
        acked, delivered = self.covered["acked"], self.checker.delivered
        await self.until(
            lambda: (
                self.covered["acked"] >= acked + count
                and self.checker.delivered >= delivered + count
            ),
            "publications flow",
        )

    async def finish(self) -> None:
        """End publishing, wait until all that was acknowledged came, and judge the history."""
        self._ended.set()
        with trio.fail_after(PATIENCE_S):
            for publisher in self.publishers:
                await publisher.idle.wait()
        last: dict[str, str] = {}
        for subject in self.subjects:
            await self.publishers[0].publish_one(subject)
            last[subject] = self.publishers[0].newest
        await self.until(
            lambda: all(client.positions.contents == last for client in self.readers),
            "every subscriber has the last message of every subject",
        )
        with trio.fail_after(PATIENCE_S):
            await self.publishers[0].settled()
        for client in self.readers:
            for subject in self.subjects:
                self.checker.see(Settled(now(), client.name, subject))
        violations = self.checker.finish()
        assert not violations, violations[:5]


@asynccontextmanager
async def running(servers: Iterable[str], **options: Any) -> AsyncIterator[Application]:
    """An application at work; its clients leave at the end, whatever they still wait for."""
    application = Application(servers, **options)
    async with trio.open_nursery() as nursery:
        await application.start(nursery)
        yield application
        nursery.cancel_scope.cancel()
