"""The time from a publication to the notification that a rule makes of it.

The server writes a journal, `mdserver pipeline derive` follows it and publishes what its rule says,
and a subscriber receives that. All three and the load share the processors, as they would on one
computer.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio
from attrs import Factory, define, frozen

from mdserver.bench import processes
from mdserver.bench.encodings import Encoding
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies, Row
from mdserver.client import Client, Subscription

CARS = 100
RULES = """\
rules:
  - name: speeding
    kind: threshold
    from: /vehicles/*/speed
    to: /notifications/{1}
    above: 0
"""
STEP_S = 0.01
FIRST_TIMEOUT_S = 180.0
LAST_TIMEOUT_S = 60.0


@frozen
class DeriveLoad:
    """The load: `rate` publications a second, one in `every` of which makes the rule notify.

    The first `warm_up` seconds are not measured, because Java compiles what it runs.
    """

    encoding: Encoding
    rate: int = 1000
    every: int = 10
    seconds: float = 30.0
    warm_up: float = 30.0
    settings: Sequence[str] = ()


@define
class Course:
    """When each number was published, and how often its notification came back."""

    published: dict[int, float] = Factory(dict)
    came: dict[int, int] = Factory(dict)
    latencies: Latencies = Factory(Latencies)
    measured_from: int = 0

    def arrived(self, number: int, now: float) -> None:
        """Note that a number came back at this moment (`time.perf_counter`)."""
        self.came[number] = self.came.get(number, 0) + 1
        if self.measured_from and number >= self.measured_from:
            self.latencies.add(int((now - self.published[number]) * 1e9), 1)

    def row(self, load: DeriveLoad, mode: str) -> Row:
        """Return the row of what was measured."""
        count = sum(number >= self.measured_from for number in self.came)
        row = Row(
            bench="derive",
            mode=f"{mode}{load.rate:,} publications a second, 1 in {load.every} speaks",
            encoding=load.encoding.name,
            connections=2,
            count=count,
            seconds=load.seconds,
            per_s=count / load.seconds,
            lost=len(self.published) - len(self.came),
            repeated=sum(times - 1 for times in self.came.values()),
        )
        self.latencies.fill(row)
        return row


@define
class WatchedCourse(Course):
    """A course whose end can be awaited under Trio."""

    arrival: trio.Event = Factory(trio.Event)

    async def complete(self) -> None:
        """Wait until everything came back."""
        while len(self.came) < len(self.published):
            self.arrival = trio.Event()
            await self.arrival.wait()


def measure(load: DeriveLoad, progress: Callable[[str], None]) -> Row:
    """Return one row; raise BenchError if the job does not start or ends early."""
    everywhere = set(processes.ALLOWED)
    with tempfile.TemporaryDirectory(prefix="mdserver-derive-") as name:
        folder = Path(name)
        (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
        journal = folder / "journal"
        journalled = ("Journal=on", f"JournalFolder={journal}", *load.settings)
        with processes.started(processes.server_command(journalled), on=everywhere) as server:
            url = f"http://127.0.0.1:{processes.server_port(server)}"
            job = [sys.executable, "-m", "mdserver.cli.main", "pipeline", "derive"]
            job += ["--rules", str(folder / "rules.yaml"), "--journal", str(journal)]
            job += ["--tables", str(folder / "tables"), "--server", url]
            with processes.started(job, on=everywhere) as derive:
                course = trio.run(_run, load, url, progress)
                if derive.poll() is not None:
                    raise BenchError(f"the job ended with status {derive.returncode}")
    return course.row(load, "")


async def _run(load: DeriveLoad, url: str, progress: Callable[[str], None]) -> Course:
    course = WatchedCourse()
    async with (
        Client([url], encoding="json" if load.encoding.name == "json" else "binary") as client,
        client.subscribe("/notifications/*") as notifications,
        trio.open_nursery() as nursery,
    ):
        await notifications.confirmed()
        nursery.start_soon(_receive, notifications, course)
        progress("waiting for Spark")
        number = await _first(client, course)
        progress(f"warming up for {load.warm_up:g} s")
        number = await _publish(client, load, course, number, load.warm_up)
        course.measured_from = number
        progress(f"{load.rate:,} publications a second for {load.seconds:g} s")
        await _publish(client, load, course, number, load.seconds)
        progress("waiting for the last")
        with trio.move_on_after(LAST_TIMEOUT_S):
            await course.complete()
        nursery.cancel_scope.cancel()
    return course


async def _first(client: Client, course: WatchedCourse) -> int:
    """Publish one message and wait until it comes back; return the next number."""
    course.published[1] = time.perf_counter()
    await client.publish("/vehicles/car1/speed", "1")
    with trio.move_on_after(FIRST_TIMEOUT_S):
        await course.complete()
    if not course.came:
        raise BenchError(f"the job derived nothing within {FIRST_TIMEOUT_S:g} s")
    return 2


async def _publish(
    client: Client, load: DeriveLoad, course: Course, number: int, seconds: float
) -> int:
    """Publish at the rate for this long; return the next number."""
    begun, first = trio.current_time(), number
    while number < first + load.rate * seconds:
        await trio.sleep_until(begun + (number - first) / load.rate)
        for _ in range(max(1, int(load.rate * STEP_S))):
            speaks = number % load.every == 0
            if speaks:
                course.published[number] = time.perf_counter()
            content = str(number if speaks else -number)
            await client.submit(f"/vehicles/car{number % CARS}/speed", content)
            number += 1
    return number


async def _receive(notifications: Subscription, course: WatchedCourse) -> None:
    while True:
        for message in await notifications.batch():
            course.arrived(int(message.content), time.perf_counter())
        course.arrival.set()
