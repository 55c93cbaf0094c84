"""Deliberate bugs of the cluster, switched on in tests only: each must be found by a run.

Those that show only beside members of another version are in `version_mutants`, and those that
leave out a rule which random plans hardly ever need in `rare_mutants`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from attrs import frozen

from mdserver.client.core.positions import Positions
from mdserver.client.core.returning import Returning
from mdserver.cluster.acceptor import Acceptor, AcceptorEvent, Standing, Voter
from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.coordinators import Coordinators
from mdserver.cluster.dedupe import FORGOTTEN, Numbers, Publishers, Verdict
from mdserver.cluster.election import UNKNOWN_EPOCHS, Election
from mdserver.cluster.following import Following
from mdserver.cluster.group import Group
from mdserver.cluster.learner import Learner
from mdserver.cluster.log import GroupLog, Tables
from mdserver.cluster.membership import Membership
from mdserver.cluster.messages import (
    Accept,
    AcceptItem,
    AckItem,
    Heartbeat,
    LedGroup,
    MembersListed,
    Prepare,
    PromiseItem,
    Sync,
    SyncRequest,
)
from mdserver.cluster.stable_storage import StableStorage
from mdserver.cluster.transfer import Transfer
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.core import backfill, recovery
from mdserver.core.catch_up import CatchUp
from mdserver.core.histories import Histories
from mdserver.core.message import NO_FLOOR, Entry, Position
from mdserver.core.recovery import Ahead, Lost, Missed
from simulation import profiles
from simulation.chaos import releases
from simulation.mutant import Mutant, Wrap, stored, switched_on
from simulation.rare_mutants import RARE, not_held
from simulation.relisting_mutants import OF_LISTS
from simulation.run import Result, run
from simulation.standard_mutants import OF_STANDARD
from simulation.version_mutants import OF_VERSIONS


@frozen
class Hunt:
    """How a bug was looked for: `found` is the run that showed it, None if no run did.

    `plan` names the plans; `seconds` are of the processor.
    """

    title: str
    plan: str
    found: Result | None
    runs: int
    seconds: float


def hunt(mutant: Mutant, seeds: range) -> Hunt:
    """Run the mutant's plans until one of them shows the bug.

    An error in the mutant itself is an AssertionError: the bug would not have been found.
    """
    name = mutant.plan.__name__.replace("_", " ")
    began = time.process_time()
    with switched_on(mutant):
        for runs, seed in enumerate(seeds, 1):
            result = run(mutant.plan(seed))[0]
            if result.problems:
                # One that no longer fits what it replaces fails where it is called, by its name.
                faulty = "mutants.py" in result.problems[0] or "<locals>" in result.problems[0]
                assert not faulty, result.problems[0]
                return Hunt(mutant.title, name, result, runs, time.process_time() - began)
    return Hunt(mutant.title, name, None, len(seeds), time.process_time() - began)


# The bugs


def one_ack_is_enough(original: Callable[..., int | None]) -> Any:
    def ack(self: Coordinator, seed: str, incarnation: int, length: int) -> int | None:
        agreed = original(self, seed, incarnation, length)
        if self.state is CoordinatorState.ACTIVE and length > self.log.committed:
            return length
        return agreed

    return ack


def longest_log(original: Callable[..., PromiseItem | None]) -> Any:
    def promised(
        self: Coordinator, seed: str, incarnation: int, known: dict[str, int], item: PromiseItem
    ) -> PromiseItem | None:
        return original(self, seed, incarnation, known, msgspec.structs.replace(item, accepted=0))

    return promised


def no_recovery(original: Callable[..., None]) -> Any:
    def init(self: Acceptor, group: int, votes: VoteRecord, *others: Any) -> None:
        original(self, group, votes, *others)
        if votes.admitted:
            self.standing = Standing.NORMAL

    return init


def forgotten_promises(original: Callable[[VoteRecord], bytes]) -> Any:
    def encode(self: VoteRecord) -> bytes:
        blank = [Vote()] * len(self.promised)
        return original(msgspec.structs.replace(self, promised=blank))

    return encode


def sent_before_the_disk(_: object) -> Any:
    def send_stored(self: StableStorage, peer: str, message: Any) -> None:
        self.store()
        self._outgoing.send((peer,), message)

    return send_stored


def no_dedupe(original: Callable[..., tuple[Verdict, int, Position]]) -> Any:
    def verdict(self: Publishers, publisher: str, number: int) -> tuple[Verdict, int, Position]:
        found = original(self, publisher, number)
        return (Verdict.NEXT, number, FORGOTTEN) if found[0] is Verdict.TAKEN else found

    return verdict


def gaps_are_taken(original: Callable[..., tuple[Verdict, int, Position]]) -> Any:
    def verdict(self: Publishers, publisher: str, number: int) -> tuple[Verdict, int, Position]:
        found = original(self, publisher, number)
        return (Verdict.NEXT, number, FORGOTTEN) if found[0] is Verdict.GAP else found

    return verdict


def dropped_before_the_commit(original: Callable[..., None]) -> Any:
    def apply(self: Publishers, entry: Entry, at: int) -> None:
        original(self, entry, at)
        positions = self.table[entry.publication.publisher].positions
        if len(positions) >= 2 * self.kept:
            del positions[: -self.kept]

    return apply


def held_to_nothing(_: object) -> Any:
    def tail(self: Coordinator, more: int) -> None:
        pass

    return tail


def delivered_when_accepted(original: Callable[..., bool]) -> Any:
    def extend(self: Group, coordinator: str, item: AcceptItem) -> bool:
        fits = original(self, coordinator, item)
        if self.log.epoch == item.epoch and self.log.length > self.log.committed:
            self.commit(self.log.length)
        return fits

    return extend


def accepted_below_the_promise(_: object) -> Any:
    def accepts(self: Acceptor, epoch: int) -> bool:
        return self.may(AcceptorEvent.ACCEPT) and self._log.epoch == epoch

    return accepts


def gap_is_skipped(original: Callable[..., None]) -> Any:
    def accept(self: Learner, peer: str, message: Accept) -> None:
        items = [
            msgspec.structs.replace(i, start=min(i.start, self.groups[i.group].log.length))
            for i in message.items
        ]
        original(self, peer, Accept(items))

    return accept


def asking_everybody(original: Callable[..., None]) -> Any:
    def heartbeat(self: Learner, peer: str, message: Heartbeat) -> None:
        original(self, peer, message)
        recovering = [self.groups[index] for index in self.groups.not_voting]
        for group in recovering:
            group.transfer.requested_until = 0
        self.ask(peer, {group.index: group.leadership.epoch for group in recovering})

    return heartbeat


def answered_by_anybody(original: Callable[..., None]) -> Any:
    """A seed that votes hands its log to one that recovers, as if it coordinated the group."""

    def need(self: Coordinators, peer: str, message: SyncRequest) -> None:
        original(self, peer, message)
        for item in message.items:
            group = self.groups[item.group]
            if item.recovering and group.votes_here and group.coordinator is None:
                seeds = self._members.seeds.names
                mine = Coordinator(item.group, group.log.epoch, group.log, seeds, 0)
                synced = group.transfer.synced(mine, 0, message.incarnation)
                self._outgoing.send((peer,), Sync([synced]))

    return need


def nobody_is_missed(_: object) -> Any:
    return lambda _, now: not now


def every_member_serves(_: object) -> Any:
    return lambda _: None


def one_way_is_enough(original: Callable[..., bool]) -> Any:
    def alive(self: Membership, name: str, now: int) -> bool:
        return original(self, name, now) or name in self.hears(now)

    return alive


def the_last_history_is_told(original: Callable[..., None]) -> Any:
    def begin(self: Histories, history: str, groups: Any) -> None:
        original(self, history, groups)
        self.current = history

    return begin


def recovered_from_one_before(original: Callable[..., None]) -> Any:
    def recover(
        self: CatchUp, subscription: Any, subject: str, after: Position, *others: Any
    ) -> None:
        before = Position(after.epoch, max(0, after.seq - 1))
        original(self, subscription, subject, before, *others)

    return recover


def joined_at_once(_: object) -> Any:
    def join(self: Following) -> None:
        self._members.joined = True

    return join


def half_of_the_cache_is_used(original: Callable[..., Any]) -> Any:
    """A client that missed more than half of what is cached is told that it is lost."""

    def recover(state: Any, entries: Sequence[Entry], after: Position, floor: Position) -> Any:
        found = original(state, entries, after, floor)
        if state is None or state.seq - after.seq <= len(entries) // 2:
            return found
        return Lost(Position(after.epoch, after.seq + 1), Position(state.epoch, state.seq))

    return recover


def numbered_from_one_again(original: Callable[..., None]) -> Any:
    """A subject that is not in the table begins at 1, whatever the floor is."""

    def number(self: GroupLog, *given: Any) -> None:
        floor, self.floor = self.floor, NO_FLOOR
        original(self, *given)
        self.floor = floor if self.floor == NO_FLOOR else self.floor

    return number


def the_floor_stays(original: Callable[..., None]) -> Any:
    """Forgetting subjects does not raise the floor."""

    def forget_subjects(
        self: GroupLog, epoch: int, subjects: list[str], place: int, now: int
    ) -> None:
        numbers, self.numbering = self.numbering, dict.fromkeys(self.numbering, 1)
        self.numbering[""] = numbers.get("", 0)
        try:
            original(self, epoch, subjects, place, now)
        finally:
            forgotten = self.numbering
            self.numbering = {one: seq for one, seq in numbers.items() if one in forgotten}
            self.numbering[""] = forgotten[""]

    return forget_subjects


def tables_without_the_floor(original: Callable[..., Tables]) -> Any:
    def tables(self: GroupLog) -> Tables:
        found = original(self)
        return Tables(found.numbering, found.publishers)

    return tables


def nothing_is_missed_of_the_unknown(_: Callable[..., Any]) -> Any:
    """A client that comes with a position of a forgotten subject is told that it has everything."""

    def recover_unknown(after: Position, floor: Position) -> Any:
        return Ahead() if after.seq > floor.seq else Missed(())

    return recover_unknown


def half_of_the_positions_are_told(original: Callable[..., dict[str, Numbers]]) -> Any:
    def told(self: Publishers) -> dict[str, Numbers]:
        return {
            name: Numbers(numbers.last, numbers.positions[len(numbers.positions) // 2 :])
            for name, numbers in original(self).items()
        }

    return told


def readmitted_by_seeds_only(original: Callable[..., None]) -> Any:
    def sync_request(self: Coordinators, peer: str, request: SyncRequest) -> None:
        if self._members.seeds.include_me or not request.returning:
            original(self, peer, request)

    return sync_request


def own_vote_at_once(original: Callable[..., None]) -> Any:
    def send_stored(self: StableStorage, peer: str, message: Any) -> None:
        if peer == self._settings.me:
            self._outgoing.send((peer,), message)
        else:
            original(self, peer, message)

    return send_stored


def own_ack_at_once(original: Callable[..., None]) -> Any:
    def ack(self: StableStorage, coordinator: str, item: AckItem, changed: bool) -> None:
        if coordinator != self._settings.me:
            original(self, coordinator, item, changed)
            return
        if changed:
            self.store()
        self._outgoing.ack(coordinator, item)

    return ack


def sent_from_what_is_committed_here(original: Callable[..., int]) -> Any:
    def common(self: Coordinators, coordinator: Coordinator) -> int:
        history = self.groups[coordinator.group].history
        promised = [item.history for _, item in coordinator.promises.values()]
        if coordinator.cold or any(one != history for one in promised):
            return original(self, coordinator)
        return coordinator.log.committed

    return common


def leaps_are_forgotten(original: Callable[..., int]) -> Any:
    def highest(self: Election, ordered: bool) -> int:
        found = original(self, ordered)
        return found if found < UNKNOWN_EPOCHS else UNKNOWN_EPOCHS + found % UNKNOWN_EPOCHS

    return highest


def the_end_of_an_epoch_is_not_told(original: Callable[..., Any]) -> Any:
    def compare(self: Transfer, peer: str, led: LedGroup) -> Any:
        over = led.epoch < self._group.newest_known[0]
        return None if over else original(self, peer, led)

    return compare


def promised_to_an_order(original: Callable[..., None]) -> Any:
    """A seed does to any cold start what it does to one that an operator ordered."""

    def prepare(self: Voter, candidate: str, message: Prepare) -> None:
        ordered = message.ordered or message.cold
        original(self, candidate, msgspec.structs.replace(message, ordered=ordered))

    return prepare


def in_sight_is_enough(_: object) -> Any:
    def full_attendance(self: Election) -> bool:
        members = self._members
        return not self.groups.record_lost and all(
            members.alive(seed, self._outgoing.now)
            and members.peers[seed].not_voting is not None
            and not members.peers[seed].record_lost
            for seed in members.seeds.others
        )

    return full_attendance


def those_unlisted_are_dropped(original: Callable[..., None]) -> Any:
    def relist(self: Membership, listed: MembersListed) -> None:
        original(self, listed)
        for name in [name for name in self.peers if name not in self.listed]:
            del self.peers[name]

    return relist


def nothing_is_told_of_where_subjects_stood(_: object) -> Any:
    def tell_begun(*_: object) -> None:
        pass

    return tell_begun


def where_subjects_stood_is_passed_over(_: object) -> Any:
    def begin(*_: object) -> None:
        pass

    return begin


def mutant(title: str, owner: type, name: str, make: Wrap) -> Mutant:
    """A bug of one function that crowded plans with all kinds of faults bring to light."""
    return Mutant(title, ((owner, name, make),), profiles.crowded)


ALL = (
    mutant("one acknowledgement commits", Coordinator, "ack", one_ack_is_enough),
    Mutant(
        "the longest log is adopted", ((Coordinator, "promised", longest_log),), profiles.stale_tail
    ),
    mutant("a restarted seed votes at once", Acceptor, "__init__", no_recovery),
    Mutant(
        "promises are not in the vote file",
        ((VoteRecord, "encode", forgotten_promises),),
        profiles.forgetful_voter,
    ),
    Mutant(
        "recovery from any seed",
        (
            (Learner, "heartbeat", asking_everybody),
            (Coordinators, "sync_request", answered_by_anybody),
        ),
        profiles.lagging_peer,
    ),
    mutant(
        "answers leave before the vote file", StableStorage, "send_stored", sent_before_the_disk
    ),
    mutant("repeats are taken again", Publishers, "verdict", no_dedupe),
    Mutant("numbers may have gaps", ((Publishers, "verdict", gaps_are_taken),), profiles.hasty),
    Mutant(
        "positions go before they are committed",
        ((Publishers, "apply", dropped_before_the_commit), (Coordinator, "_tail", held_to_nothing)),
        profiles.hasty,
    ),
    mutant("delivered when accepted", Group, "_extend", delivered_when_accepted),
    Mutant(
        "entries below the promise are taken",
        ((Acceptor, "accepts", accepted_below_the_promise),),
        profiles.slow_successor,
    ),
    mutant("a gap is skipped", Learner, "accept", gap_is_skipped),
    Mutant(
        "half-cut members go on",
        ((Membership, "look", nobody_is_missed), (Following, "unready", every_member_serves)),
        profiles.half_cut,
    ),
    Mutant(
        "a link that carries one way counts",
        ((Membership, "alive", one_way_is_enough),),
        profiles.half_cut,
    ),
    Mutant(
        "clients are told the history id heard last",
        ((Histories, "begin", the_last_history_is_told),),
        profiles.disturbed_start,
    ),
    mutant(
        "a client is sent again what it asked to go on from",
        CatchUp,
        "_recover",
        recovered_from_one_before,
    ),
    Mutant(
        "a repeat is acknowledged before it is committed",
        ((Coordinator, "append", not_held(repeats=True)),),
        profiles.repeated,
    ),
    Mutant(
        "a forgotten subject begins at 1 again",
        ((GroupLog, "number", numbered_from_one_again),),
        profiles.short_lived,
    ),
    Mutant(
        "forgetting does not raise the floor",
        ((GroupLog, "forget_subjects", the_floor_stays),),
        profiles.short_lived,
    ),
    Mutant(
        "tables go without the floor",
        ((GroupLog, "tables", tables_without_the_floor),),
        profiles.short_lived,
    ),
    Mutant(
        "a forgotten subject had no messages",
        ((recovery, "_recover_unknown", nothing_is_missed_of_the_unknown),),
        profiles.short_lived,
    ),
    Mutant(
        "a member is ready before it holds its groups",
        ((Following, "join", joined_at_once), (Following, "unready", every_member_serves)),
        profiles.joining,
    ),
    Mutant(
        "a gap is told although the cache has everything",
        ((backfill, "recover", half_of_the_cache_is_used),),
        profiles.forgetful,
    ),
    mutant(
        "a copy has half of the publishers' positions",
        Publishers,
        "told",
        half_of_the_positions_are_told,
    ),
    Mutant(
        "a coordinator that is no seed takes no seed back",
        ((Coordinators, "sync_request", readmitted_by_seeds_only),),
        stored("lost-under-a-non-seed"),
    ),
    Mutant(
        "a coordinator counts its own seed's vote before that is on the disk",
        (
            (StableStorage, "send_stored", own_vote_at_once),
            (StableStorage, "ack", own_ack_at_once),
        ),
        stored("own-vote"),
    ),
    Mutant(
        "a new log is sent from beyond what some seeds have",
        ((Coordinators, "_common", sent_from_what_is_committed_here),),
        stored("log-from-beyond"),
    ),
    Mutant(
        "a second cold start after losses leaps as far as the first",
        ((Election, "_highest_promise", leaps_are_forgotten),),
        stored("lost-again"),
    ),
    Mutant(
        "a seed promises a cold start before it heard every seed",
        (
            (Voter, "prepare", promised_to_an_order),
            (Election, "_full_attendance", in_sight_is_enough),
        ),
        stored("cut-off-at-the-start"),
    ),
    Mutant(
        "members that a new list does not name are dropped at once",
        ((Membership, "relist", those_unlisted_are_dropped),),
        profiles.elastic,
    ),
    Mutant(
        "a coordinator whose epoch is over is not told",
        ((Transfer, "compare", the_end_of_an_epoch_is_not_told),),
        stored("stranded-successor"),
    ),
    Mutant(
        "a member does not tell where a subject without messages stood",
        ((CatchUp, "_tell_begun", nothing_is_told_of_where_subjects_stood),),
        profiles.first_messages,
    ),
    Mutant(
        "a client passes over where a subject without messages stood",
        ((Positions, "begin", where_subjects_stood_is_passed_over),),
        profiles.first_messages,
    ),
    Mutant(
        "a client takes what was sent before it took a subscription up again",
        ((Returning, "takes", lambda _: lambda *_: True),),
        profiles.wavering,
    ),
    *RARE,
    *OF_VERSIONS,
    *OF_LISTS,
    *OF_STANDARD,
)
MUTANTS = tuple(one for one in ALL if not (one.beside_release and releases.missing()))
"""Those that can be looked for: the release before is not there without the history of git."""
