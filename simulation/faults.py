"""What each kind of fault does, and how the world is healed of it."""

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from mdserver.cluster.messages import PeerReceived, SeedOrder
from mdserver.limits import NS_PER_MS, NS_PER_S
from simulation.strays import STRAYS

if TYPE_CHECKING:
    from simulation.members import Member
    from simulation.plan import Fault
    from simulation.world import World

JUST_AFTER = NS_PER_MS
READMIT_EVERY = NS_PER_S
RESEED_EVERY = 400 * NS_PER_MS
CHANGE_EVERY = 100 * NS_PER_MS
LOOKS = 60
MANY = 3
STEPS = (
    "Promise",
    "Promise",
    "Elect",
    "Sync",
    "Activate",
    "Publish",
    "Accept",
    "Commit",
    "Register",
    "Install",
)


class Faults:
    """Carries out a plan's faults. In a careful run none takes the majority of seeds away."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._undo: dict[int, Callable[[], None]] = {}
        self._kinds: dict[str, Callable[[Fault, Member, Member], None]] = {
            "crash": lambda fault, first, _: self._crash(fault, first),
            "crash-coordinator": lambda fault, _, __: self._crash(fault, self._coordinator(fault)),
            "crash-at-step": lambda fault, _, __: self._arm(fault),
            "restart-storm": lambda fault, first, _: self._storm(fault, first),
            "cut": lambda _, first, second: world.links.cut(first.name, second.name),
            "one-way": lambda fault, first, second: self._block(fault, [(first, second)]),
            "half-cut": self._half_cut,
            "isolate": self._isolate,
            "isolate-seeds": self._isolate_from_seeds,
            "slow": lambda fault, first, _: self._slow(fault, first),
            "stall-disk": lambda fault, first, _: first.stall(fault.lasting),
            "clock-jump": lambda fault, first, _: first.clock.jump(fault.lasting),
            "clock-rate": lambda fault, first, _: self._rate(fault, first),
            "client-cut": lambda fault, _, __: self._cut_client(fault),
            "crash-once-promised": lambda fault, first, _: self._arm_promise(
                first, partial(self._crash, fault, first)
            ),
            "downgrade-once-promised": lambda fault, first, _: self._arm_promise(
                first, partial(self._change_version, fault, first, newer=False)
            ),
            "pause": lambda fault, first, _: self._pause(fault, first),
            "drain": lambda fault, first, _: self._drain(fault, first),
            "upgrade": lambda fault, first, _: self._change_version(fault, first, newer=True),
            "downgrade": lambda fault, first, _: self._change_version(fault, first, newer=False),
            "relist": lambda fault, first, _: self._relist(fault, first),
            "reseed": self._reseed,
            "reseed-apart": self._reseed_apart,
            "move": lambda fault, first, _: self._move(fault, first),
            "lose-vote": lambda fault, first, _: self._lose_vote(fault, first),
            "put-back": lambda fault, first, _: self._put_back(fault, first),
            "put-back-majority": lambda fault, first, _: self._put_back_majority(fault, first),
        } | dict.fromkeys(STRAYS, self._stray)

    def apply(self, fault: "Fault") -> None:
        """Do it."""
        world = self.world
        members = list(world.members.values())
        world.cover(f"fault {fault.kind}")
        self._kinds[fault.kind](fault, members[fault.first], members[fault.second])

    def heal(self) -> None:
        """End everything that lasts, and start who is down."""
        undos, self._undo = list(self._undo.values()), {}
        for undo in undos:
            undo()
        for client in (*self.world.publishers, *self.world.subscribers):
            client.away_until = 0
        for member in self.world.members.values():
            member.start()
        if self.world.plan.elastic:
            for member in self.world.members.values():
                member.relist(member.listed)

    def _for_a_while(self, fault: "Fault", undo: Callable[[], None]) -> None:
        key = self.world.next_token()
        self._undo[key] = undo

        def over() -> None:
            if self._undo.pop(key, None) is not None:
                undo()

        self.world.heap.after(fault.lasting, over)

    # Crashes

    def _may(self, member: "Member") -> bool:
        """Whether the member may crash; notes where a reckless run breaks the assumption."""
        world = self.world
        if world.plan.standard:
            return True
        listed = [name for names in world.lists().values() for name in names]
        if member.name not in listed or world.majority(without=member.name):
            return True
        if world.plan.careful:
            return False
        world.checker.majority_kept = False
        world.cover("majority lost")
        return True

    def _crash(self, fault: "Fault", member: "Member") -> None:
        if member.node is not None and (self.world.plan.recorded or self._may(member)):
            member.crash(fault.draw)
            self._for_a_while(fault, member.start)

    def _change_version(self, fault: "Fault", member: "Member", *, newer: bool) -> None:
        """A member ends and starts as another version, once it may end."""
        world = self.world
        if member.node is None or not (world.plan.recorded or self._may(member)):
            if world.heap.now < world.plan.calm:
                again = partial(self._change_version, fault, member, newer=newer)
                world.heap.after(CHANGE_EVERY, again)
            return
        world.cover("upgraded" if newer else "downgraded")
        member.crash(fault.draw)
        member.newer = newer
        self._for_a_while(fault, member.start)

    def _arm(self, fault: "Fault") -> None:
        """The next member that takes a certain step dies right after it, or a little later."""
        world = self.world
        step = STEPS[fault.draw % len(STEPS)]
        delay = (0, 1_000_000, world.plan.delay_max)[fault.draw // 64 % 3]

        def strike(member: "Member") -> bool:
            world.heap.after(delay, lambda: self._crash(fault, member))
            return True

        world.triggers.append((step, strike))

    def _arm_promise(self, voter: "Member", then: Callable[[], None]) -> None:
        """Something happens to this member when its next promise just left."""
        world = self.world

        def strike(member: "Member") -> bool:
            if member is voter:
                world.heap.after(JUST_AFTER, then)
            return member is voter

        world.triggers.append(("Promise", strike))

    def _storm(self, fault: "Fault", member: "Member") -> None:
        """Several crashes in quick succession."""
        for again in range(1 + fault.draw % 4):
            self.world.heap.after(
                again * (fault.lasting // 4 + 1),
                lambda: self._crash(fault, member),
            )

    def _coordinator(self, fault: "Fault") -> "Member":
        """Who coordinates a group, by the newest epoch that any member knows."""
        world = self.world
        group = fault.draw % world.plan.groups
        newest, name = 0, world.names[0]
        for member in world.members.values():
            if member.node is not None:
                view = member.node.group_statistics(group)
                if view.epoch > newest and view.coordinator in world.members:
                    newest, name = view.epoch, view.coordinator
        return world.members[name]

    def _lose_vote(self, fault: "Fault", member: "Member") -> None:
        """A seed dies and its vote record with it; an operator has it taken back."""
        world = self.world
        if member.name not in world.voters() or member.node is None or not self._may(member):
            return
        if not world.plan.careful:
            return  # a lost majority with a lost record needs more of an operator than this
        if any(
            m.node is not None and m.node.statistics().record_lost for m in world.members.values()
        ):
            return
        member.crash(0)
        member.disk.votes = None
        member.record_lost = True
        self._for_a_while(fault, member.start)
        self._watch_readmission(fault, member)

    def _put_back(self, fault: "Fault", member: "Member") -> None:
        """A seed dies, and its disk is put back to what it was some time before; one at a time.

        Nothing may be lost or disclosed while all the others are whole. A seed that is alone has
        nobody who could know of it, so it is left alone.
        """
        world = self.world
        seeds = [world.members[name] for name in world.seeds]
        if not world.plan.recorded or len(seeds) < MANY or member not in seeds:
            return
        put_back = self._copied(member)

        def strike() -> None:
            if member.node is None or not whole(seeds, world.members.values()):
                return
            world.cover("disk put back")
            put_back()
            # Others may find it out at once, or only when they are in contact again.
            for look in range(1, LOOKS + 1):
                world.heap.after(look * READMIT_EVERY, lambda: self._readmit_lost(member))

        world.heap.after(fault.lasting, strike)

    def _copied(self, member: "Member") -> Callable[[], None]:
        """Copy the disk of a member; returns what ends the member and starts it with the copy."""
        copied = member.disk.copy()

        def put_back() -> None:
            member.crash(0)
            member.disk = copied.copy()
            member.record_lost = True
            member.start()

        return put_back

    def _put_back_majority(self, fault: "Fault", spared: "Member") -> None:
        """The disks of a majority of seeds are put back at once, copied at moments of their own.

        The others are whole and in sight, so that what they hold is not overlooked. Resets are to
        be expected; an operator finds LOST seeds and gives the order for them.
        """
        world = self.world
        seeds = [world.members[name] for name in world.seeds]
        if not world.plan.recorded or len(seeds) < MANY or spared not in seeds:
            return
        others = [seed for seed in seeds if seed is not spared][: len(seeds) // 2 + 1]
        copies = [self._copied(others[0])]

        def copy(member: "Member") -> None:
            copies.append(self._copied(member))

        for index, other in enumerate(others[1:], 1):
            world.heap.after(fault.lasting * index // len(others), partial(copy, other))

        def strike() -> None:
            if not whole(seeds, world.members.values()):
                return
            world.cover("disks of a majority put back")
            world.checker.majority_kept = False
            for put_back in copies:
                put_back()
            world.heap.after(READMIT_EVERY, look)

        def look() -> None:
            self._order(seeds, seeds[fault.draw % len(seeds)])
            world.heap.after(READMIT_EVERY, look)

        world.heap.after(fault.lasting + 1, strike)

    def _order(self, seeds: "list[Member]", asked: "Member") -> None:
        """An operator looks for LOST seeds: most of them start anew, a few are taken back."""
        lost = [
            seed.name
            for seed in seeds
            if seed.node is not None and seed.node.statistics().record_lost
        ]
        if 2 * len(lost) > len(seeds):
            self.world.cover("cold start ordered")
            asked.operate("cold-start", force=True)
        else:
            for name in lost:
                self.world.cover("readmission ordered")
                asked.operate("readmit", name)

    def _readmit_lost(self, member: "Member") -> None:
        if member.node is not None and member.node.statistics().record_lost:
            member.operate("readmit", member.name)

    def _watch_readmission(self, fault: "Fault", member: "Member") -> None:
        """An operator gives the word at some member, and looks every second whether it helped."""
        world = self.world
        members = list(world.members.values())
        asked = members[fault.draw % len(members)]

        def look() -> None:
            node = member.node
            votes = member.name in world.voters()
            if node is not None and votes and all(one.votes for one in node.statistics().groups):
                world.cover("readmitted or joined anew")
                return
            if node is not None and node.statistics().record_lost:
                asked.operate("readmit", member.name)
            world.heap.after(READMIT_EVERY, look)

        world.heap.after(READMIT_EVERY, look)

    def _pause(self, fault: "Fault", member: "Member") -> None:
        """The process is stopped, and goes on later with all that came meanwhile."""
        if member.node is not None and not member.paused:
            member.pause()
            self._for_a_while(fault, member.resume)

    def _drain(self, fault: "Fault", member: "Member") -> None:
        """An operator has the member give its groups away, for a while."""
        member.operate("drain", member.name)
        self._for_a_while(fault, lambda: member.operate("undrain", member.name))

    # The list of members

    def _relist(self, fault: "Fault", member: "Member") -> None:
        """A member reads another list: the seeds, and whichever others."""
        rng, world = random.Random(fault.draw), self.world
        others = [name for name in world.names if name not in world.seeds]
        member.relist((*world.seeds, *rng.sample(others, rng.randint(0, len(others)))))

    def _reseed(self, fault: "Fault", first: "Member", second: "Member") -> None:
        """An operator wants a member to be a seed, or to be none, and says so until it is."""
        world = self.world
        wanted = not fault.draw % 2
        over = min(world.heap.now + fault.lasting, world.plan.calm)

        def look() -> None:
            if (second.name in world.voters()) == wanted:
                world.cover("seed added" if wanted else "seed removed")
            elif world.heap.now < over:
                first.operate("add-seed" if wanted else "remove-seed", second.name)
                world.heap.after(RESEED_EVERY, look)

        look()

    def _reseed_apart(self, fault: "Fault", first: "Member", second: "Member") -> None:
        """A seed is taken for the one that begins changes, by a member that sees no other one."""
        if first.node is not None and first.name in self.world.voters():
            linked = first.node.statistics().linked
            order = SeedOrder(second.name, votes=not fault.draw % 2)
            if linked:
                first.step(PeerReceived(linked[fault.draw % len(linked)], [order]))

    def _stray(self, fault: "Fault", told: "Member", teller: "Member") -> None:
        """A member says once what no member says."""
        said = partial(STRAYS[fault.kind], self.world, told, teller)
        self.world.links.overhearing.append(said)

    def _move(self, fault: "Fault", member: "Member") -> None:
        """The machine of a member is replaced by one elsewhere, with its disk; lists follow."""
        rng, world = random.Random(fault.draw), self.world
        if member.node is None or not self._may(member):
            return
        member.crash(fault.draw)
        world.moves[member.name] = world.moves.get(member.name, 0) + 1
        self._for_a_while(fault, member.start)
        for other in world.members.values():

            def read(other: "Member" = other) -> None:
                other.relist(other.listed)

            world.heap.after(rng.randint(0, 2 * fault.lasting), read)

    # The network

    def _block(self, fault: "Fault", ways: "list[tuple[Member, Member]]") -> None:
        links = self.world.links
        pairs = [(a.name, b.name) for a, b in ways if a is not b]
        for pair in pairs:
            links.block(*pair)
            if fault.draw % 3 == 0:
                links.cut(*pair)

        def undo() -> None:
            for pair in pairs:
                links.unblock(*pair)

        self._for_a_while(fault, undo)

    def _half_cut(self, fault: "Fault", first: "Member", second: "Member") -> None:
        """One way between two members, or both; no other link is touched."""
        ways = [(first, second), (second, first)]
        self._block(fault, ways if fault.draw % 2 else ways[:1])

    def _isolate(self, fault: "Fault", first: "Member", second: "Member") -> None:
        del second
        others = [m for m in self.world.members.values() if m is not first]
        self._block(fault, [(first, m) for m in others] + [(m, first) for m in others])

    def _isolate_from_seeds(self, fault: "Fault", first: "Member", second: "Member") -> None:
        """The coordinator sees everybody but the seeds."""
        del first, second
        alone = self._coordinator(fault)
        seeds = [self.world.members[name] for name in self.world.seeds]
        self._block(fault, [(alone, s) for s in seeds] + [(s, alone) for s in seeds])

    def _cut_client(self, fault: "Fault") -> None:
        clients = [*self.world.publishers, *self.world.subscribers]
        client = clients[fault.draw % len(clients)]
        if self.world.plan.idle:
            client.away_until = self.world.heap.now + fault.lasting
        session = client.session
        if session is not None:
            session.end("the connection broke")

    # Slowness and clocks

    def _slow(self, fault: "Fault", member: "Member") -> None:
        by = self.world.plan.delay_max * (1 + fault.draw % 20)
        member.slow += by

        def undo() -> None:
            member.slow -= by

        self._for_a_while(fault, undo)

    def _rate(self, fault: "Fault", member: "Member") -> None:
        member.clock.set_rate((500, 800, 990, 1010, 1250, 2000)[fault.draw % 6])
        self._for_a_while(fault, lambda: member.clock.set_rate(1000))


def whole(seeds: "list[Member]", members: "Iterable[Member]") -> bool:
    """Whether all seeds serve, in the same epochs, and hold what any member has as committed."""
    nodes = [seed.node for seed in seeds if seed.node is not None and seed.node.unready() is None]
    if len(nodes) < len(seeds):
        return False
    known = [member.node for member in members if member.node is not None]
    for index in range(len(nodes[0].groups)):
        committed = max(node.group_statistics(index).committed for node in known)
        logs = [node.group_statistics(index) for node in nodes]
        if min(log.length for log in logs) < committed or len({log.log_epoch for log in logs}) > 1:
            return False
    return not any(node.statistics().unverified for node in nodes)
