"""A chaos run from its plan to its outcome."""

import json
import random
import shutil
import signal
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import trio
from attrs import define, field

from mdserver.bench.certificate import certificate
from mdserver.client.driver import now
from mdserver.limits import NS_PER_S
from simulation.chaos.clients import PUBLISHER, RecordedClient
from simulation.chaos.cluster import Cluster
from simulation.chaos.faults import Faults
from simulation.chaos.members import Member, at_wrong_times, logged
from simulation.chaos.plan import BLACKOUT, CLOCK, LOSE_RESULTS, SERVED_WITHIN_S, Plan
from simulation.chaos.profiles import (
    CLOCK_SET,
    DISK_FULL,
    JOURNAL_AHEAD,
    POWER_CUT,
    POWER_CUT_ALL,
    SHUFFLE,
)
from simulation.chaos.promises import Cached, Witness
from simulation.chaos.proxy import Address
from simulation.chaos.resting import Held, differences
from simulation.chaos.statuses import NoAnswerError, ask
from simulation.chaos.timeline import Moment, Timeline
from simulation.chaos.wire import Wire, text
from simulation.checker import Checker
from simulation.diagram import drawing
from simulation.history import Acked, Event, Settled, line_of
from simulation.recording import Recorder
from simulation.service import overdue

START_TIMEOUT_S = 120
PATIENCE_S = 60  # after the faults, until everything must have come to rest
CLOCKS_JUDGED = 3  # set while a member runs: one alone may be killed before it says its time
RESULTS_JUDGED = 3  # kept from a publisher: it may have nothing on its way just then
CUTS_JUDGED = 6  # disks: one alone may have been synced to its last byte
ERRORS_SHOWN = 5
QUESTION_EVERY_S = 0.5
READY_EVERY_S = 0.05  # what a member lacks that is ready too early it may have soon
QUESTION_MESSAGES = 200  # fewer than are kept: what is asked about is the newest
WHOLE_S = 45  # a run of this length has every kind of fault, so more has to happen in it
Step = Callable[[int], None]
"""Told after each fault how many there were."""


@define
class Outcome:
    """What came of a run. `problems` are "class: sentence"; none means that it passed."""

    plan: Plan
    problems: list[str] = field(factory=list)
    coverage: Counter[str] = field(factory=Counter)
    happened: Counter[str] = field(factory=Counter)
    skipped: Counter[str] = field(factory=Counter)
    interrupted: bool = False
    timeline: Timeline = field(factory=Timeline)
    figures: dict[str, str] = field(factory=dict)


class Chaos:
    """One run. Its history goes to `history.jsonl` in the folder, line by line."""

    def __init__(self, plan: Plan, wire: Wire, folder: Path, step: Step) -> None:
        self.plan = plan
        self.folder = folder
        self.checker = Checker(majority_kept=not plan.standard)
        self.witness = Witness(self._cached)
        self.cluster = Cluster(plan, wire, folder, self._tell, self._found, self._starting)
        self.outcome = Outcome(plan, timeline=self.cluster.timeline)
        self.faults = Faults(
            self.cluster, self._lost, self._watch_service, self._tell, self._clients_of
        )
        self.publishers: list[RecordedClient] = []
        self.subscribers: list[RecordedClient] = []
        self.subjects = [f"/s/{number}" for number in range(plan.subjects)]
        self._writing_since = 0.0
        self._unserved = False
        self._at: dict[str, str] = {}
        self._step = step
        self._lines: IO[str] | None = None
        self._trust: ssl.SSLContext | None = None

    def _found(self, problem: str) -> None:
        self.outcome.problems.append(problem)
        timeline = self.outcome.timeline
        timeline.violations.append(Moment(self.cluster.at_s(), problem))

    def _tell(self, problem: str) -> None:
        self._found(f"process: {problem}")

    def _lost(self) -> None:
        """A majority of the seeds is about to lose its memory: clients will be told of it."""
        self.checker.majority_kept = False
        self.cluster.majorities = None

    def _starting(self, member: int) -> None:
        self.witness.started(member, self.checker.newest)

    def _watch_service(self) -> None:
        """Every client has to be served by now, in spite of a fault that lasts.

        Time in which a seed waited for a processor does not count, up to a bound.
        """
        found = overdue(
            (client.recorder for client in self.publishers),
            (client.recorder for client in self.subscribers),
            self.checker,
            int(self.cluster.served_since(SERVED_WITHIN_S) * NS_PER_S),
        )
        if found is not None and not self._unserved:
            self._unserved = True
            self._found(f"service: {SERVED_WITHIN_S} s later, {found}")

    def _see(self, event: Event) -> None:
        known = len(self.checker.violations)
        self.checker.see(event)
        if isinstance(event, Acked):
            self._acked(event)
        timeline, at_s = self.outcome.timeline, self.cluster.at_s()
        timeline.violations += [
            Moment(at_s, f"{found.kind}: {found.what}") for found in self.checker.violations[known:]
        ]
        if self._lines is not None:
            self._lines.write(line_of(event))

    def _acked(self, event: Acked) -> None:
        """Note which member acknowledged this."""
        client = event.publication.partition("-")[0]
        name = self._at.get(client)
        for member in self.cluster.members:
            if member.name == name:
                self.witness.acked(client, event, member.number, member.starts)

    def _cover(self, what: str) -> None:
        self.outcome.coverage[what] += 1
        if what == "acked":
            self.cluster.acked()

    async def run(self, interrupted: Callable[[], bool]) -> Outcome:
        """Everything; whichever way it ends, no process is left.

        `interrupted`: whether a signal came before this run could see one.
        """
        if self.plan.encrypted:
            with certificate() as (keys, self._trust):
                shutil.copy(keys, self.cluster.members[0].keys)
        with (
            (self.folder / "history.jsonl").open("w", encoding="utf-8") as self._lines,
            trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
        ):
            self.outcome.interrupted = interrupted()
            if not self.outcome.interrupted:
                await self._alive(signals)
            self._finish()  # a signal that comes now interrupts nothing any more
        return self.outcome

    async def _alive(self, signals: AsyncIterator[int]) -> None:
        """All in which the members run, until its end or a signal."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._interrupted, signals, nursery.cancel_scope)
            await nursery.start(self.cluster.run)
            await self._within()
            nursery.cancel_scope.cancel()

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
            for member in self.cluster.members:
                clients.start_soon(self._question, member)
            self._writing_since = trio.current_time()
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
        name = f"{PUBLISHER}{number}" if publishes else f"sub{number - plan.publishers}"
        http = number % 4 == 3
        scheme = ("http" if http else "ws") + "s" * plan.encrypted
        doors = [f"{scheme}://{text(door.address)}" for door in self.cluster.doors]
        client = RecordedClient(
            Recorder(name, self._see, self._cover),
            doors,
            "json" if number % 2 else "binary",
            "http" if http else "websocket",
            random.Random(f"{plan.seed} {name}"),
            self._met,
            ahead=max(JOURNAL_AHEAD),
            tls=self._trust,
            filling_bytes=plan.filling_bytes,
            once=not plan.standard,
            told_where=not plan.upgraded,
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
            await client.write(self._begun, self.plan.per_second, rng)

    def _begun(self) -> list[str]:
        """Return the subjects that have messages by now, but for those that have one publisher.

        With faults that begin further ones get their first messages: clients that were confirmed
        for them before lose their connections just then, and members their memory.
        """
        shared, faults = self.subjects[len(self.plan.ahead) :], self.plan.faults
        passed = (trio.current_time() - self._writing_since) * NS_PER_S
        begun = sum(fault.at <= passed for fault in faults)
        return shared[: 1 + len(shared) * begun // max(1, len(faults))]

    def _clients_of(self, member: str) -> list[str]:
        return [client for client, at in self._at.items() if at == member]

    def _met(self, client: str, member: str) -> None:
        number = next(m.number for m in self.cluster.members if m.name == member)
        self.cluster.mark(number, f"{client} is here", fault=False)
        self._at[client] = member
        moment = Moment(self.cluster.at_s(), f"{client} connected to {member}", number)
        self.outcome.timeline.clients.append(moment)

    # While faults go on

    async def _question(self, member: Member) -> None:
        """Ask a member again and again for what it has promised, until cancelled."""
        while True:
            waits = self.witness.waits(member.number)
            await trio.sleep(READY_EVERY_S if waits else QUESTION_EVERY_S)
            if member.up and self.checker.majority_kept:
                problem = await self._broken_by(member)
                if problem is not None and self.checker.majority_kept:
                    self._found(problem)

    async def _broken_by(self, member: Member) -> str | None:
        """Return which promise a member breaks; None if it breaks none, or does not answer."""
        witness, number = self.witness, member.number
        if not witness.waits(number):
            return await witness.look(number, lambda: member.starts)
        try:
            await ask(self.cluster.wire.monitor(number), "/health/ready")
        except NoAnswerError:
            return None
        return await witness.ready(number, lambda: member.starts)

    async def _cached(self, member: int, subject: str) -> Cached:
        """Return the newest messages of a subject at a member. Raises NoAnswerError."""
        path = f"/rest/consume?subject={subject}&history={QUESTION_MESSAGES}"
        return cached_of(await ask(self.cluster.wire.clients(member), path))

    # The end

    async def _settled(self, kind: str, unrest: Callable[[], str | None], timeout_s: float) -> bool:
        """Wait until nothing is the matter; a problem of this kind where that takes too long."""
        since = trio.current_time()
        with trio.move_on_after(timeout_s):
            while not self.outcome.problems:
                await self.cluster.looked.park()
                if self._fresh(since) and unrest() is None:
                    return True
        if self.outcome.problems:  # what was found may be why nothing comes to rest
            return False
        seconds = trio.current_time() - since
        self._found(f"{kind}: {seconds:.0f} s later, {unrest()}")
        return False

    async def _compare(self) -> None:
        """At rest every member has the same history and, of each subject, the same messages."""
        histories = {
            member.name: self.cluster.statuses[member.number].history
            for member in self.cluster.members
        }
        # In Standard mode clients get an id of their member's own (`Groups.reset`).
        if len(set(histories.values())) > 1 and not self.plan.standard:
            self._found(f"convergence: the history ids are {histories}")
        for subject in self.subjects:
            held: dict[str, Held] = {}
            for member in self.cluster.members:
                try:
                    held[member.name] = await self._held(member, subject)
                except NoAnswerError as error:
                    self._found(f"convergence: {member.name}: {error}")
            for difference in differences(subject, held):
                self._found(f"convergence: {difference}")
            known: dict[int, tuple[int, str]] = {}
            for one in held.values():
                self.outcome.coverage["compared"] += len(one.messages)
                known.update(one.messages)
            self._compare_acked(subject, known)

    async def _held(self, member: Member, subject: str) -> Held:
        """Return what a member has of a subject. Raises NoAnswerError."""
        address = self.cluster.wire.clients(member.number)
        path = f"/rest/consume?subject={subject}"
        messages = cached_of(await self._asked(address, f"{path}&history=1000"))
        return Held(messages, cached_of(await self._asked(address, path)))

    def _compare_acked(self, subject: str, cached: dict[int, tuple[int, str]]) -> None:
        """What was acknowledged is what members have at its position, if they still have any."""
        current = {client.recorder.positions.get(subject, ("",))[0] for client in self.subscribers}
        for (history, about, seq), acked in self.checker.acked.items():
            if about != subject or current != {history} or seq not in cached:
                continue
            self.outcome.coverage["acknowledged and compared"] += 1
            if cached[seq] != (acked.epoch, acked.publication):
                self._found(
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
            found = self.checker.behind(
                recorder.name, client.history, recorder.positions, self.subjects
            )
            if found is not None:
                return found
        return None

    def _finish(self) -> None:
        """What only the end can tell."""
        outcome, cluster = self.outcome, self.cluster
        outcome.timeline.end_s = cluster.at_s()
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
        silent = cluster.silence.problem()
        if silent is not None:
            outcome.problems.append(f"availability: {silent}")
        lines, errors = logged(cluster.members, full=DISK_FULL in self.plan.kinds)
        outcome.problems += [f"log: {line}" for line in errors[:ERRORS_SHOWN]]
        outcome.happened, outcome.skipped = self.faults.happened, self.faults.skipped
        again = sum(max(0, client.connections - 1) for client in clients)
        outcome.coverage["links lost"] = lines["link down"]
        until = datetime.now(UTC)
        since = until - timedelta(seconds=cluster.at_s())
        outcome.coverage["wrong clock"] = at_wrong_times(cluster.members, since, until)
        self._count(again)
        if not outcome.interrupted and not outcome.problems:
            outcome.problems += self._vacuous(again)
        marked = {moment.what for moment in outcome.timeline.violations}
        outcome.timeline.violations += [
            Moment(outcome.timeline.end_s, problem)
            for problem in outcome.problems
            if problem not in marked
        ]
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
            "first ones after a confirmation": f"{len(self.checker.firsts):,}",
            "recoveries": f"{coverage['recovered']:,}",
            "clients connected again": f"{again:,}",
            "links lost": f"{coverage['links lost']:,}",
            "coordinators changed": f"{self.cluster.changes:,}",
            "cached messages compared": f"{coverage['compared']:,}",
            "of them acknowledged": f"{coverage['acknowledged and compared']:,}",
            "members asked for what they promised": f"{self.witness.looked:,}",
            "processes started": f"{sum(member.starts for member in self.cluster.members):,}",
            "slow consumers disconnected": f"{sum(c.slow for c in self.subscribers):,}",
            "packets out of order": f"{self.cluster.wire.disordered:,}",
            "bytes lost by power cuts": f"{self.faults.bytes_lost:,}",
            "lines logged by a wrong clock": f"{coverage['wrong clock']:,}",
            "longest silence": f"{self.cluster.silence.wall.longest_s:.1f} s",
            "of it with processors": f"{self.cluster.silence.served.longest_s:.1f} s",
        }

    def _vacuous(self, again: int) -> list[str]:
        """What had to happen and did not: a run without it proves little."""
        plan, outcome, coverage = self.plan, self.outcome, self.outcome.coverage
        wanted = {
            "faults of the kind " + kind: self.outcome.happened[kind] for kind in plan.kinds
        } | {
            "publications acknowledged": coverage["acked"] // max(1, plan.seconds),
            "messages delivered": coverage["delivered UPDATE"] // max(1, plan.seconds),
        }
        if not plan.upgraded:
            wanted["first messages after a confirmation"] = len(self.checker.firsts)
        if SHUFFLE in plan.kinds:
            wanted["packets out of order"] = self.cluster.wire.disordered
        if outcome.happened[CLOCK] or outcome.happened[CLOCK_SET] >= CLOCKS_JUDGED:
            wanted["lines logged by a wrong clock"] = coverage["wrong clock"]
        cuts = [outcome.happened[kind] for kind in (POWER_CUT, POWER_CUT_ALL)]
        if cuts[0] + plan.members * cuts[1] >= CUTS_JUDGED:
            wanted["bytes lost by power cuts"] = self.faults.bytes_lost
        if plan.narrow:
            wanted["slow consumers"] = sum(client.slow for client in self.subscribers)
        if BLACKOUT in plan.kinds:
            wanted["resets after a blackout"] = coverage["told of a reset"]
        if plan.seconds >= WHOLE_S:
            wanted |= {
                "clients that connected again": again,
                "coordinators that changed": self.cluster.changes,
                "links lost": coverage["links lost"],
                "cached messages compared": coverage["compared"],
            }
        if plan.seconds >= WHOLE_S and not plan.standard:  # it has a new history after each of them
            wanted |= {
                "recoveries": coverage["recovered"],
                "acknowledged messages compared": coverage["acknowledged and compared"],
                "members asked for what they promised": self.witness.looked,
            }
        # Who publishes a few a second has hardly any on their way when a connection ends.
        poured = plan.ahead and plan.seconds >= WHOLE_S
        if poured or outcome.happened[LOSE_RESULTS] >= RESULTS_JUDGED:
            wanted["publications acknowledged as a repeat"] = coverage["acked as a repeat"]
        return [f"vacuous: too few {what}" for what, count in wanted.items() if not count]


def cached_of(body: bytes) -> Cached:
    """Return the messages of an answer of `/rest/consume`."""
    return {m["seq"]: (m["epoch"], m["content"]) for m in json.loads(body)["messages"]}
