"""One run: members, clients and the network over one heap of events, and what is seen of them."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from mdserver.cluster.node import Node
from mdserver.core.outputs import Committed, Trace
from mdserver.core.subjects import group_of
from simulation.checker import Checker
from simulation.clients import Client
from simulation.clock import Heap
from simulation.habits import LOOSE, Loose, Restless
from simulation.history import Acked, Event, Settled
from simulation.led import Led
from simulation.links import Links
from simulation.list_rules import ListRules
from simulation.members import Member
from simulation.plan import Plan
from simulation.promises import Promises
from simulation.rest import difference
from simulation.service import overdue
from simulation.sessions import Session
from simulation.watch import Watch


class World:
    """Everything of one run. All randomness comes from the plan's seed."""

    def __init__(self, plan: Plan, *, split: bool = False) -> None:
        self.plan = plan
        self.split = split  # links carry pieces of frames
        self.heap = self._make_heap()
        self.rng = random.Random(f"{plan.seed} world")
        self.names = tuple(f"m{i}" for i in range(plan.members))
        seeds = 0 if plan.standard else plan.seeds or (5 if plan.members >= 5 else 3)
        self.seeds = self.names[:seeds]
        self.moves: dict[str, int] = {}  # how often the machine of a member was replaced
        self.watch = Watch(forgets=bool(plan.idle), standard=plan.standard)
        published = len(plan.sendings) + (max(LOOSE) if plan.habits else 0)
        evicts = plan.cached < published
        cached = 0 if plan.idle else plan.cached if evicts else None
        self.checker = Checker(not plan.standard, cached=cached, expires=bool(plan.idle))
        self.promises = Promises(self)
        self.list_rules = ListRules(self)
        self.coverage: Counter[str] = Counter()
        self.traced: list[dict[str, Any]] = []
        self.history: list[Event] = []
        self.dirty: list[Session] = []
        self.triggers: list[tuple[str, Callable[[Member], bool]]] = []  # True: done with
        self._tokens = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self.links = self._make_links(random.Random(f"{plan.seed} links"))
        self.members = {
            name: self._make_member(name, random.Random(f"{plan.seed} {name}"))
            for name in self.names
        }
        self.publishers = [self._client(f"pub{i}", True) for i in range(plan.publishers)]
        self.subscribers = [self._client(f"sub{i}", False) for i in range(plan.subscribers)]
        self.subjects = [f"/s/{i}" for i in range(plan.subjects)]
        self.restless: list[Restless] = []
        self.loose: list[Loose] = []
        self.led = Led(self)
        if plan.habits:
            self._add_habits()

    # What another level makes in its own way (simulation/server)

    def _make_heap(self) -> Heap:
        return Heap()

    def _make_links(self, rng: random.Random) -> Links:
        return Links(self, rng)

    def _make_member(self, name: str, rng: random.Random) -> Member:
        return Member(self, name, rng)

    def _client(self, name: str, publisher: bool) -> Client:
        return Client(self, name, random.Random(f"{self.plan.seed} {name}"), publisher)

    def _add_habits(self) -> None:
        names = [f"restless{number}" for number in range(2)]
        seed = self.plan.seed
        self.restless = [Restless(self, name, random.Random(f"{seed} {name}")) for name in names]
        self.loose = [Loose(self, "loose", random.Random(f"{seed} loose"))]
        self.checker.restless = frozenset(names)
        self.subscribers += self.restless
        self.publishers += self.loose

    # What the parts of a run need of each other

    def next_token(self) -> int:
        """A number that was never used."""
        self._tokens += 1
        return self._tokens

    def open(self, client: Client, attempt: int, member: str) -> Session:
        """A client connects to a member."""
        return Session(self, client, attempt, self.members[member], client.rng)

    def cover(self, what: str) -> None:
        """Count something that must happen sometimes."""
        self.coverage[what] += 1

    def cover_refusals(self, node: Node) -> None:
        """Count what a node refused in its life, which is over."""
        for guard, count in node.refused.items():
            self.coverage[f"refused: {guard.value}"] += count

    def hash(self, what: bytes) -> None:
        """Add to the hash by which two runs are compared."""
        self._hash.update(self.heap.now.to_bytes(8, "big"))
        self._hash.update(what)

    @property
    def trace_hash(self) -> str:
        """The hash of everything that members and clients said to each other."""
        return self._hash.hexdigest()

    def trace(self, values: dict[str, Any]) -> None:
        """Write a step of the protocol down."""
        self.traced.append({**values, "at": self.heap.now})

    def step_traced(self, member: Member, output: Trace) -> None:
        """A member took a step of the protocol."""
        self.watch.now = self.heap.now
        self.trace({"name": output.name, **output.values})
        assert member.node is not None
        history = member.node.groups[int(output.values["group"] or 0)].history
        self.watch.saw_step(f"{member.name}#{member.life}", history, output.name, output.values)
        self.list_rules.step(member, output.name, output.values)
        self.cover(output.name)
        for trigger in [trigger for trigger in self.triggers if trigger[0] == output.name]:
            if trigger[1](member):
                self.triggers.remove(trigger)
        if output.name in {"Activate", "Commit"} and member.votes_writing:
            self._check_own_vote(member, output.values)
        if output.values.get("cold"):
            self.cover("cold start")

    def _check_own_vote(self, member: Member, values: dict[str, Any]) -> None:
        """No majority may lean on a coordinator's own seed whose promise is not on its disk yet."""
        node, group, epoch = member.node, int(values["group"]), int(values["epoch"])
        assert node is not None
        coordinator = node.groups[group].coordinator
        seeds = self.seeds if coordinator is None else coordinator.seeds
        if member.name not in seeds or member.promised_on_disk(group) >= epoch:
            return
        acked = node.group_statistics(group).acked
        others = [s for s, n in acked.items() if s != member.name and n >= values["committed"]]
        if 2 * len(others) <= len(seeds):
            self.watch.violate(
                "I1",
                f"{member.name} counts its own vote in epoch {epoch} of group "
                f"{group}, which is not on its disk",
            )

    def committed(self, member: Member, output: Committed) -> None:
        """A member applied committed entries."""
        self.watch.now = self.heap.now
        assert member.node is not None
        history = member.node.groups[output.group].history
        entries = member.version.entries(output.entries)
        self.watch.saw_commit(
            f"{member.name}#{member.life}",
            history,
            output.group,
            entries,
            may_begin_anew=not self.checker.majority_kept,
        )

    def see(self, event: Event) -> None:
        """A client saw something."""
        self.hash(repr(event).encode())
        self.history.append(event)
        self.checker.see(event)
        if isinstance(event, Acked) and event.epoch:
            self.watch.now = self.heap.now
            self.promises.acked(event)

    # The state of the cluster, for faults and for the end

    def lists(self) -> dict[int, tuple[str, ...]]:
        """Return the lists of seeds that members have noted, by number; two of one are a fork."""
        found: dict[int, tuple[str, ...]] = {}
        for member in self.members.values():
            # The release before knows the first list only.
            here = getattr(member.node, "seeds", None)
            number, names = (1, self.seeds) if here is None else (here.number, here.names)
            if found.setdefault(number, names) != names:
                self.watch.violate("lists", f"list {number} of the seeds: {found[number]}, {names}")
        return found

    def voters(self) -> tuple[str, ...]:
        """Return the newest list of seeds that a member has noted."""
        found = self.lists()
        return found[max(found)]

    def normal(self, group: int, without: str = "", seeds: tuple[str, ...] = ()) -> int:
        """How many of these seeds, or of the newest list, count in a group, but for one of them."""
        count = 0
        for name in seeds or self.voters():
            node = self.members[name].node
            count += name != without and node is not None and node.groups[group].votes_here
        return count

    def group_of(self, subject: str) -> int:
        """Return the group of a subject."""
        return group_of(subject, self.plan.groups)

    def majority(self, without: str = "") -> bool:
        """Whether each group has a majority of normal seeds, also without one of them.

        While lists change, all of those that somebody goes by need one, and that which is to come.
        """
        coming = (getattr(m.node, "seeds", None) for m in self.members.values())
        lists = [*self.lists().values(), *(seeds.next for seeds in coming if seeds)]
        return all(
            2 * self.normal(group, without, names) > len(names)
            for names in dict.fromkeys(lists)
            for group in range(self.plan.groups if names else 0)
        )

    def at_rest(self) -> str | None:
        """What is not as it should be at the end; None if everything is."""
        for member in self.members.values():
            if member.node is None:
                return f"{member.name} is down"
            reason = member.node.unready()
            if reason is not None:
                return f"{member.name}: {reason}"
        for client in self.publishers:
            if client.waiting:
                return f"{client.name} waits for {client.waiting} results"
        told = {m.name: m.node.broker.history for m in self.members.values() if m.node}
        # In Standard mode clients get an id of their member's own (`Groups.reset`).
        if len(set(told.values())) > 1 and not self.plan.standard:
            return f"members tell clients different history ids: {told}"
        return self._behind() or self._unequal() or self._unlinked() or self._unsettled()

    @property
    def _reseeds_apart(self) -> bool:
        return "reseed-apart" in self.plan.kinds

    def _unsettled(self) -> str | None:
        """Whether a change of seeds is not over, in plans that have some."""
        strict = "reseed" in self.plan.kinds
        for name, member in self.members.items() if strict or self._reseeds_apart else ():
            assert member.node is not None
            here = member.node.statistics()
            named = (
                strict and here.next_seeds
            )  # two names of half of the seeds each come to nothing
            if here.seeds != self.voters() or named or not here.settled:
                return f"{name} has list {here.list_number}, which is not settled"
        return None

    def _unlinked(self) -> str | None:
        """Whether a member has no link to another one, in plans in which lists change."""
        for name, member in self.members.items() if self.plan.elastic else ():
            assert member.node is not None
            linked = (name, *member.node.statistics().linked)
            lacking = [other for other in self.names if other not in linked]
            if lacking:
                return f"{name} has no link to {lacking[0]}"
        return None

    def _unequal(self) -> str | None:
        nodes = {m.name: m.node for m in self.members.values() if m.node}
        if self.plan.idle and any(
            group.log.floor.seq for node in nodes.values() for group in node.groups
        ):
            self.cover("subjects forgotten")
        # A member that takes another log in Standard mode gets snapshots, and no older messages.
        evicts = self.checker.cached is not None or self.plan.standard
        expires = bool(self.plan.idle)
        return difference(nodes, evicts=evicts, expires=expires)

    def look(self) -> None:
        """See whether all promises hold just now."""
        self.watch.now = self.heap.now
        self.lists()
        self.promises.look()

    def overdue(self) -> str | None:
        """What a client waits for longer than the plan's bound; None before that can be said."""
        plan, now = self.plan, self.heap.now
        if not plan.bound or now < plan.bound + max(fault.at for fault in plan.faults):
            return None
        return overdue(
            (client.recorder for client in self.publishers),
            (client.recorder for client in self.subscribers),
            self.checker,
            now - plan.bound,
        )

    def _behind(self) -> str | None:
        for group in range(self.plan.groups):
            ends = [m.node.groups[group].log.committed for m in self.members.values() if m.node]
            if min(ends) != max(ends):
                return f"group {group} is committed up to {ends} by the members"
        nodes = [member.node for member in self.members.values() if member.node]
        known = {
            subject
            for group in range(self.plan.groups)
            for node in nodes
            for subject in node.groups[group].log.numbering
        }
        unknown = [subject for subject in self.subjects if subject not in known]
        for client in self.subscribers:
            behind = self.checker.behind(
                client.name,
                client.core.positions.history,
                client.recorder.positions,
                self.subjects,
                unknown,
            )
            if behind is not None:
                return behind
        return None

    def settle(self) -> None:
        """The run is over: what subscribers were to have seen by now."""
        for client in self.subscribers:
            for subject in self.subjects:
                self.see(Settled(self.heap.now, client.name, subject))

    def trace_lines(self) -> str:
        """The protocol steps as JSON lines (spec/README.md)."""
        return "".join(json.dumps(line) + "\n" for line in self.traced)
