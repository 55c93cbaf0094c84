"""A chaos run from its plan to its outcome."""

import json
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import trio
from attrs import define, field

from mdserver.client.driver import now
from mdserver.limits import NS_PER_S
from simulation.chaos.clients import RecordedClient
from simulation.chaos.cluster import Cluster
from simulation.chaos.faults import Faults
from simulation.chaos.members import logged
from simulation.chaos.plan import BLACKOUT, JOURNAL_AHEAD, SERVED_WITHIN_S, Plan
from simulation.chaos.proxy import Address
from simulation.chaos.statuses import NoAnswerError, ask
from simulation.chaos.wire import Wire, text
from simulation.checker import Checker
from simulation.diagram import drawing
from simulation.history import Event, Settled, line_of
from simulation.recording import Recorder
from simulation.service import overdue

START_TIMEOUT_S = 120
PATIENCE_S = 120  # after the faults, until everything must have come to rest
SILENCE_MAX_S = 30  # without an acknowledgement, although a majority of seeds could give it
ERRORS_SHOWN = 5
WHOLE_S = 45  # a run of this length has every kind of fault, so more has to happen in it
Step = Callable[[float], None]


@define
class Outcome:
    """What came of a run. `problems` are "class: sentence"; none means that it passed."""

    plan: Plan
    problems: list[str] = field(factory=list)
    coverage: Counter[str] = field(factory=Counter)
    happened: Counter[str] = field(factory=Counter)
    skipped: Counter[str] = field(factory=Counter)
    interrupted: bool = False
    figures: dict[str, str] = field(factory=dict)


class Chaos:
    """One run. Its history goes to `history.jsonl` in the folder, line by line."""

    def __init__(self, plan: Plan, wire: Wire, folder: Path, step: Step) -> None:
        self.plan = plan
        self.folder = folder
        self.outcome = Outcome(plan)
        self.checker = Checker(majority_kept=True)
        self.cluster = Cluster(plan, wire, folder, self._tell)
        self.faults = Faults(self.cluster, self._lost, self._watch_service)
        self.publishers: list[RecordedClient] = []
        self.subscribers: list[RecordedClient] = []
        self.subjects = [f"/s/{number}" for number in range(plan.subjects)]
        self._unserved = False
        self._step = step
        self._lines: IO[str] | None = None

    def _tell(self, problem: str) -> None:
        self.outcome.problems.append(f"process: {problem}")

    def _lost(self) -> None:
        """A majority of the seeds is about to lose its memory: clients will be told of it."""
        self.checker.majority_kept = False

    def _watch_service(self) -> None:
        """Every client has to be served by now, in spite of a fault that lasts."""
        found = overdue(
            (client.recorder for client in self.publishers),
            (client.recorder for client in self.subscribers),
            self.checker,
            now() - SERVED_WITHIN_S * NS_PER_S,
        )
        if found is not None and not self._unserved:
            self._unserved = True
            self.outcome.problems.append(f"service: {SERVED_WITHIN_S} s later, {found}")

    def _see(self, event: Event) -> None:
        self.checker.see(event)
        if self._lines is not None:
            self._lines.write(line_of(event))

    def _cover(self, what: str) -> None:
        self.outcome.coverage[what] += 1
        if what == "acked":
            self.cluster.available.acked(trio.current_time())

    async def run(self) -> Outcome:
        """Everything; whichever way it ends, no process is left."""
        with (
            (self.folder / "history.jsonl").open("w", encoding="utf-8") as self._lines,
            trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._interrupted, signals, nursery.cancel_scope)
                await nursery.start(self.cluster.run)
                await self._within()
                nursery.cancel_scope.cancel()
        self._finish()
        return self.outcome

    async def _interrupted(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for _ in signals:
            self.outcome.interrupted = True
            scope.cancel()

    async def _within(self) -> None:
        """What happens while the members run."""
        if not await self._settled("start", self.cluster.unrest, START_TIMEOUT_S):
            return
        async with trio.open_nursery() as clients:
            for number in range(self.plan.publishers + self.plan.subscribers):
                await clients.start(self._client, number)
            async with trio.open_nursery() as writers:
                for number, client in enumerate(self.publishers):
                    writers.start_soon(self._write, number, client)
                await self.faults.run(self._step)
                writers.cancel_scope.cancel()
            await self.faults.heal()
            self.cluster.mark(None, "healed", fault=False)
            healed = trio.current_time()
            if await self._settled("liveness", self._unrest, PATIENCE_S):
                await self._compare()
                self.outcome.figures["at rest after"] = f"{trio.current_time() - healed:.1f} s"
                for client in self.subscribers:
                    for subject in self.subjects:
                        self._see(Settled(now(), client.recorder.name, subject))
            clients.cancel_scope.cancel()

    async def _client(self, number: int, *, task_status: trio.TaskStatus[None]) -> None:
        """One client from its start to the end of the run: of every second kind there is one."""
        plan = self.plan
        publishes = number < plan.publishers
        name = f"pub{number}" if publishes else f"sub{number - plan.publishers}"
        doors = [f"ws://{text(door.address)}" for door in self.cluster.doors]
        http = number % 4 == 3
        if http:
            doors = [door.replace("ws:", "http:") for door in doors]
        client = RecordedClient(
            Recorder(name, self._see, self._cover),
            doors,
            "json" if number % 2 else "binary",
            "http" if http else "websocket",
            random.Random(f"{plan.seed} {name}"),
            self._met,
            ahead=max(JOURNAL_AHEAD),
        )
        async with client:
            (self.publishers if publishes else self.subscribers).append(client)
            wanted = (self.subjects, ["/s/*"], ["/**"])[number % 3]
            if publishes:
                task_status.started()
                await trio.sleep_forever()
            await client.read(wanted, task_status=task_status)

    async def _write(self, number: int, client: RecordedClient) -> None:
        """Publish until cancelled; who is far ahead of its results has a subject of its own."""
        rng = random.Random(f"{self.plan.seed} {client.recorder.name}")
        poured = len(self.plan.ahead)
        if number < poured:
            await client.pour(self.subjects[number], self.plan.ahead[number])
        else:
            await client.write(self.subjects[poured:], self.plan.per_second, rng)

    def _met(self, client: str, member: str) -> None:
        number = next(m.number for m in self.cluster.members if m.name == member)
        self.cluster.mark(number, f"{client} is here", fault=False)

    # The end

    async def _settled(self, kind: str, unrest: Callable[[], str | None], timeout_s: float) -> bool:
        """Wait until nothing is the matter; a problem of this kind where that takes too long."""
        since = trio.current_time()
        with trio.move_on_after(timeout_s):
            while not self.outcome.problems:
                await self.cluster.looked.park()
                if self._fresh(since) and unrest() is None:
                    return True
        seconds = trio.current_time() - since
        self.outcome.problems.append(f"{kind}: {seconds:.0f} s later, {unrest()}")
        return False

    async def _compare(self) -> None:
        """At rest, every member has the same messages of each subject, but for how many."""
        for subject in self.subjects:
            known: dict[int, tuple[int, str]] = {}
            ends: dict[str, int] = {}
            for member in self.cluster.members:
                address = self.cluster.wire.clients(member.number)
                path = f"/rest/consume?subject={subject}&history=1000"
                try:
                    answer = json.loads(await self._asked(address, path))
                except NoAnswerError as error:
                    self.outcome.problems.append(f"convergence: {member.name}: {error}")
                    continue
                cached = {m["seq"]: (m["epoch"], m["content"]) for m in answer["messages"]}
                ends[member.name] = max(cached, default=0)
                self.outcome.coverage["compared"] += len(cached)
                for seq, held in cached.items():
                    if known.setdefault(seq, held) != held:
                        self.outcome.problems.append(
                            f"convergence: {member.name} has {held} at {seq} of {subject}, "
                            f"another member {known[seq]}"
                        )
            if len(set(ends.values())) > 1:
                self.outcome.problems.append(f"convergence: the last of {subject} is {ends}")
            self._compare_acked(subject, known)

    def _compare_acked(self, subject: str, cached: dict[int, tuple[int, str]]) -> None:
        """What was acknowledged is what members have at its position, if they still have any."""
        current = {client.recorder.positions.get(subject, ("",))[0] for client in self.subscribers}
        for (history, about, seq), acked in self.checker.acked.items():
            if about != subject or current != {history} or seq not in cached:
                continue
            self.outcome.coverage["acknowledged and compared"] += 1
            if cached[seq] != (acked.epoch, acked.publication):
                self.outcome.problems.append(
                    f"I8: {acked.publication} was acked at {acked.epoch}/{seq} of {subject}, "
                    f"members have {cached[seq]}"
                )

    async def _asked(self, address: Address, path: str) -> bytes:
        """As `ask`, with patience: members at rest leave it when the machine has other work.

        Raises NoAnswerError.
        """
        with trio.move_on_after(PATIENCE_S):
            while True:
                with suppress(NoAnswerError):
                    return await ask(address, path)
                await self.cluster.looked.park()
        return await ask(address, path)

    def _fresh(self, since: float) -> bool:
        """Whether all that is known of members is from later."""
        return all(status.at > since for status in self.cluster.statuses.values())

    def _unrest(self) -> str | None:
        found = self.cluster.unrest()
        if found is not None:
            return found
        for client in self.publishers:
            if client.recorder.pending:
                return f"{client.recorder.name} waits for {len(client.recorder.pending)} results"
        for client in self.subscribers:
            recorder = client.recorder
            found = self.checker.behind(recorder.name, recorder.positions, self.subjects)
            if found is not None:
                return found
        return None

    def _finish(self) -> None:
        """What only the end can tell."""
        outcome, cluster = self.outcome, self.cluster
        clients = (*self.publishers, *self.subscribers)
        outcome.problems += [f"{v.kind}: {v.what}" for v in self.checker.finish()]
        outcome.problems += [
            broken for client in clients for broken in client.broken[:ERRORS_SHOWN]
        ]
        outcome.problems += [
            f"client: {client.recorder.name} was turned away: {client.stopped}"
            for client in clients
            if client.stopped is not None
        ]
        longest = cluster.available.longest_s
        if longest > SILENCE_MAX_S:
            outcome.problems.append(
                f"availability: nothing was acknowledged for {longest:.1f} s, although a majority "
                "of seeds was up and in contact"
            )
        lines, errors = logged(cluster.members)
        outcome.problems += [f"log: {line}" for line in errors[:ERRORS_SHOWN]]
        outcome.happened, outcome.skipped = self.faults.happened, self.faults.skipped
        again = sum(max(0, client.connections - 1) for client in clients)
        outcome.coverage["links lost"] = lines["link down"]
        self._count(again)
        if not outcome.interrupted and not outcome.problems:
            outcome.problems += self._vacuous(again)
        title = f"seed {self.plan.seed}: {(outcome.problems or ['passed'])[0]}"
        columns = [
            "all",
            *(f"{m.name}{' (seed)' * (m.number in cluster.seeds)}" for m in cluster.members),
        ]
        picture = drawing(title, columns, cluster.marks)
        (self.folder / "diagram.svg").write_text(picture, encoding="utf-8")

    def _count(self, again: int) -> None:
        coverage = self.outcome.coverage
        self.outcome.figures |= {
            "publications": f"{len(self.checker.published):,}",
            "acknowledged": f"{coverage['acked']:,}",
            "as a repeat": f"{coverage['acked as a repeat']:,}",
            "refused": f"{coverage['publication failed']:,}",
            "delivered": f"{self.checker.delivered:,}",
            "recoveries": f"{coverage['recovered']:,}",
            "clients connected again": f"{again:,}",
            "links lost": f"{coverage['links lost']:,}",
            "coordinators changed": f"{self.cluster.changes:,}",
            "cached messages compared": f"{coverage['compared']:,}",
            "of them acknowledged": f"{coverage['acknowledged and compared']:,}",
            "processes started": f"{sum(member.starts for member in self.cluster.members):,}",
            "longest silence": f"{self.cluster.available.longest_s:.1f} s",
        }

    def _vacuous(self, again: int) -> list[str]:
        """What had to happen and did not: a run without it proves little."""
        plan, coverage = self.plan, self.outcome.coverage
        wanted = {
            "faults of the kind " + kind: self.outcome.happened[kind] for kind in plan.kinds
        } | {
            "publications acknowledged": coverage["acked"] // max(1, plan.seconds),
            "messages delivered": coverage["delivered UPDATE"] // max(1, plan.seconds),
        }
        if BLACKOUT in plan.kinds:
            wanted["resets after a blackout"] = coverage["told of a reset"]
        if plan.seconds >= WHOLE_S:
            wanted |= {
                "clients that connected again": again,
                "coordinators that changed": self.cluster.changes,
                "publications acknowledged as a repeat": coverage["acked as a repeat"],
                "recoveries": coverage["recovered"],
                "links lost": coverage["links lost"],
                "cached messages compared": coverage["compared"],
                "acknowledged messages compared": coverage["acknowledged and compared"],
            }
        return [f"vacuous: too few {what}" for what, count in wanted.items() if not count]
