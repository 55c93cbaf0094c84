"""Publishers and subscribers of a chaos run: the Python client, with what it sees written down."""

import random
import ssl
from collections.abc import Callable, Sequence

import attrs
import trio

from mdserver.client import Client, ReconnectSettings
from mdserver.client.client import Encoding, TransportName
from mdserver.client.core import values
from mdserver.client.driver import now
from mdserver.client.errors import ClientError
from mdserver.limits import CLIENT_PUBLICATIONS_MAX
from simulation.recording import Recorder
from simulation.session_rules import SessionRules

RECONNECT = ReconnectSettings(
    quick_initial_delay_s=0.1, time_interval_s=0.2, max_delay_s=1.0, notify_rate_threshold=10**6
)
KEEPALIVE_MS = 1000
BURSTS = (1, 1, 1, 1, 5, 20)
POUR_EVERY_S = 0.5
PUBLISHER = "pub"  # how names of publishers begin
SLOW = "reads too slowly"  # in what a server says that disconnects for it


class RecordedClient(Client):
    """A client that writes a history. `connections`: how many stood so far.

    `met` is told the name of the member at each; `broken` says which rules of a session one broke.
    `ahead`: how many of its publications may be without a result, whatever servers allow. Without
    `once` a publication that is repeated may have two places. `told_where`: servers say where a
    subject stood that had nothing to bring, as the release before does not. `slow`: how often it
    was disconnected because it read too slowly.
    """

    def __init__(
        self,
        recorder: Recorder,
        servers: Sequence[str],
        encoding: Encoding,
        transport: TransportName,
        rng: random.Random,
        met: Callable[[str, str], None],
        *,
        ahead: int = CLIENT_PUBLICATIONS_MAX,
        tls: ssl.SSLContext | None = None,
        filling_bytes: int = 0,
        once: bool = True,
        told_where: bool = True,
    ) -> None:
        super().__init__(
            servers,
            encoding=encoding,
            encryption=tls is not None,
            tls=tls,
            transport=transport,
            keepalive_ms=KEEPALIVE_MS,
            reconnect=RECONNECT,
            publisher=recorder.name,
            rng=rng,
        )
        # A client of others may not keep the bound that ours keeps: servers have to.
        self._core.settings = attrs.evolve(self._core.settings, publications_max=ahead)
        self._core._publications._max = ahead
        codec = self._core._new_codec
        self._core._new_codec = lambda: SessionRules(codec(), self._broken)
        self.recorder = recorder
        self.broken: list[str] = []
        self.connections = 0
        self._met = met
        self.stopped: str | None = None
        self._sent = 0
        self._filling = "." * filling_bytes
        self._once = once
        self._told_where = told_where
        self.slow = 0

    def _broken(self, kind: str, what: str) -> None:
        self.broken.append(f"{kind}: {self.recorder.name}: {what}")

    @property
    def history(self) -> str:
        """The history id under which its member numbers messages now."""
        return self._core.positions.history

    def take(self, output: values.Output) -> None:
        """Write down what the application is about to see."""
        history = self.history
        match output:
            case values.DeliverMessages(messages):
                self.recorder.messages(now(), history, messages)
            case values.Subscribed(subjects) if self._told_where:
                self.recorder.confirmed(now(), subjects, self._core.positions.get)
            case values.Published(result):
                self.recorder.result(now(), history, result)
            case values.Notify(notice):
                self.recorder.notified(now(), notice)
                self.slow += SLOW in (notice.info or "")
            case values.Connected(event):
                self.connections += 1
                self._met(self.recorder.name, event.member)
            case values.Stopped(_, reason):
                self.stopped = reason
        super().take(output)

    async def send(self, publication: str, subject: str) -> None:
        """Publish without waiting for the result; the client counts publications as we do."""
        self._sent += 1
        publication += self._filling
        self.recorder.published(now(), self._sent, publication, subject, once=self._once)
        await self.submit(subject, publication)

    async def read(self, wanted: Sequence[str], *, task_status: trio.TaskStatus[None]) -> None:
        """Subscribe for good, say so when it is confirmed, and take what comes.

        Returns where no server wants this client any more; `stopped` says why.
        """
        self.recorder.subscribed(now(), wanted)
        subscription = self.subscribe(*wanted)
        await subscription.confirmed()
        task_status.started()
        try:
            while True:
                await subscription.batch()
        except ClientError as error:
            self.stopped = self.stopped or str(error)

    async def write(
        self, subjects: Callable[[], Sequence[str]], per_second: float, rng: random.Random
    ) -> None:
        """Publish one by one and in bursts, until cancelled.

        `subjects` are those of the time, of which the last one gets half of the publications.
        """
        mean = sum(BURSTS) / len(BURSTS)
        count = 0
        while True:
            for _ in range(rng.choice(BURSTS)):
                count += 1
                begun = subjects()
                subject = rng.choice((begun[-1], rng.choice(begun)))
                await self.send(f"{self.recorder.name}-{count}", subject)
            await trio.sleep(rng.expovariate(per_second / mean))

    async def pour(self, subject: str, ahead: int) -> None:
        """Publish to one subject, always so many ahead of their results, until cancelled."""
        count = 0
        while True:
            for _ in range(ahead - len(self.recorder.pending)):
                count += 1
                await self.send(f"{self.recorder.name}-{count}", subject)
            await trio.sleep(POUR_EVERY_S)
