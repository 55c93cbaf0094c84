"""The present list of seeds: who votes, what is a majority, and how lists follow each other."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster import votes
from mdserver.cluster.identity import Identity
from mdserver.cluster.seeds import Seeds
from mdserver.cluster.votes import Vote, VoteRecord

FIRST = ("a", "b", "c")
Names = tuple[str, ...]


@pytest.mark.parametrize(
    ("names", "majority"), [("a", 1), ("ab", 2), ("abc", 2), ("abcd", 3), ("abcde", 3)]
)
def test_any_two_majorities_share_a_seed(names: str, majority: int) -> None:
    found = Seeds("a", tuple(names))
    assert found.majority == majority
    assert 2 * found.majority > len(names)
    assert found.include_me
    assert found.others == list(names[1:])


def test_a_member_beyond_the_list_does_not_vote() -> None:
    found = Seeds("x", FIRST)
    assert not found.include_me
    assert found.others == list(FIRST)


def test_nobody_votes_in_standard_mode() -> None:
    assert not Seeds("a", ()).include_me


def seeds(me: str = "a", **known: Any) -> Seeds:
    """A seed of the first list whose record is sure of what it named."""
    record = VoteRecord(me, "test", 1, True, [Vote()], {}, may_name=True)
    return Seeds(me, FIRST, votes.read(msgspec.structs.replace(record, **known).encode()))


def test_a_list_follows_if_it_differs_in_one_seed() -> None:
    found = seeds()
    assert found.follows(("a", "b", "c", "d"))
    assert found.follows(("a", "c"))
    for names in (FIRST, ("a", "b", "d"), ("a",), ("a", "b", "c", "c"), ("d", "a", "b", "c")):
        assert not found.follows(names)


def test_a_next_list_is_named_once_and_only_if_the_present_one_is_settled() -> None:
    found = seeds()
    assert not found.name(("a", "b"), {}, settled=False)
    assert found.next == ()
    assert found.name(("a", "b"), {}, settled=True)
    assert not found.name(("a", "b", "c", "d"), {}, settled=True)
    assert found.next == ("a", "b")
    assert found.note(2, ("a", "b"))
    assert (found.number, found.names, found.next) == (2, ("a", "b"), ())
    assert found.name(FIRST, {}, settled=True)


def test_who_is_no_seed_and_whose_record_is_new_names_nothing() -> None:
    assert not seeds("x").name(("a", "b"), {}, settled=True)
    found = seeds(may_name=False)
    assert not found.name(("a", "b"), {}, settled=True)
    found.named_none(["b"])
    assert not found.may_name
    found.named_none(["c", "b"])
    found.named_none([])
    assert found.may_name, "what was known once stays so"
    assert found.name(("a", "b"), {}, settled=True)


def test_a_list_begins_once_a_majority_has_named_it() -> None:
    found, named = seeds(), ("a", "b")
    assert found.begun({}) is None
    assert found.begun({"a": named, "x": named, "b": (*FIRST, "d")}) is None
    assert found.begun({"a": named, "b": named, "c": (*FIRST, "d")}) == named
    assert not found.note(1, named), "an older list, and one of the same number, says nothing"
    assert found.names == FIRST


def test_a_list_begins_only_if_the_namers_are_a_majority_of_it_too() -> None:
    """A seed that lost its record names nothing: so many as could elect have to have named it."""
    five = ("a", "b", "c", "d", "e")
    found, named = Seeds("a", five), five[1:]
    assert found.begun(dict.fromkeys("abc", named)) is None
    assert found.begun(dict.fromkeys("bcd", named)) == named
    found, named = Seeds("a", FIRST), (*FIRST, "d")
    assert found.begun(dict.fromkeys("ab", named)) == named, "the new one takes part already"


def test_what_a_majority_has_named_is_named_after_a_loss_too() -> None:
    found, named = seeds(may_name=False), (*FIRST, "d")
    assert not found.name(named, {"b": named}, settled=True)
    assert not found.name((*FIRST, "e"), {"b": named, "c": named}, settled=True)
    assert found.name(named, {"b": named, "c": named}, settled=True)


def test_the_record_has_the_list_and_what_was_named() -> None:
    found = seeds()
    found.note(2, ("a", "b", "c", "d"))
    found.name(("a", "b", "c"), {}, settled=True)
    assert found._votes is not None
    again = Seeds("a", FIRST, votes.read(found._votes.encode()))
    assert (again.number, again.names, again.next) == (2, ("a", "b", "c", "d"), ("a", "b", "c"))


def test_a_version_that_knows_no_changes_ends_its_start_on_a_changed_record() -> None:
    """It compares what the record has as seeds with its configuration, and writes nothing."""
    identity = Identity("a", FIRST, 1)
    record = VoteRecord("a", identity.cluster, 1, True, [Vote()], {}, seeds=list(FIRST))

    def refused(content: bytes) -> str | None:
        shown = msgspec.json.decode(content)
        return identity.differs(shown["member"], shown["cluster"], 1, shown["seeds"])

    assert refused(record.encode()) is None
    for changed in (
        {"next": ["a", "b"]},
        {"number": 3, "listed": list(FIRST)},
        {"number": 2, "listed": ["a", "b"], "next": list(FIRST)},
    ):
        content = msgspec.structs.replace(record, **changed).encode()
        assert "ClusterMembers" in (refused(content) or "")
        read = votes.read(content)
        assert read.seeds == list(FIRST), "this version compares the list of the beginning"
        assert read.founding == []
        assert (read.number, read.listed, read.next) == (
            changed.get("number", 1),
            changed.get("listed", []),
            changed.get("next", []),
        )


# Any order of what can happen to several seeds


class Lists:
    """Seeds with disks and links; whatever they say arrives later, or never.

    `said`: what a member heard last from another one, on the link that it holds for the present
    one. `linked`: links of the present lives of both sides. `settled`: numbers of settled lists.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = "abcd"
        self.lossy = rng.choice((0.0, 0.0, 0.3, 0.6))
        self.agreed = rng.choice((0.3, 0.9))
        self.disks: dict[str, bytes | None] = dict.fromkeys(self.names)
        self.alive = {name: self._start(name) for name in self.names}
        self.said: dict[tuple[str, str], tuple[int, Names, Names]] = {}
        self.heard: dict[tuple[str, str], bool] = {}
        self.linked: set[frozenset[str]] = set()
        self.settled = {1}
        self.begun: dict[int, set[Names]] = {1: {FIRST}}

    def _start(self, name: str) -> Seeds:
        record = votes.started(self.disks[name], name, "test", 1)
        self.disks[name] = record.encode()
        return Seeds(name, FIRST, record)

    def store(self, name: str) -> None:
        record = self.alive[name]._votes
        assert record is not None
        self.disks[name] = record.encode()

    def stored(self, name: str) -> tuple[int, Names, Names]:
        """What the disk of a member has, which is all that it says to others."""
        content = self.disks[name]
        assert content is not None
        record = votes.read(content)
        return record.number, record.present(FIRST), tuple(record.next)

    # What can happen

    def restart(self, name: str, *, lost: bool) -> None:
        if lost:
            self.disks[name] = None
        self.alive[name] = self._start(name)
        for other in self.names:
            self.linked.discard(frozenset((name, other)))
            self.said.pop((name, other), None)
            self.heard.pop((name, other), None)
        self._forget_lists()

    def _forget_lists(self) -> None:
        """Forget the lists of which all who had noted them lost their records: they elect nothing.

        That is more than a majority may lose at once, and another list of the number may follow.
        """
        known = max(
            *(seeds.number for seeds in self.alive.values()),
            *(self.stored(name)[0] for name in self.names),
            *(number for number, _, _ in self.said.values()),
        )
        self.begun = {number: lists for number, lists in self.begun.items() if number <= known}
        self.settled = {number for number in self.settled if number <= known}

    def link(self, name: str, other: str) -> None:
        """A new link: each side forgets what it heard of the other one."""
        if frozenset((name, other)) not in self.linked:
            self.linked.add(frozenset((name, other)))
            self.said.pop((name, other), None)
            self.said.pop((other, name), None)

    def tell(self, name: str, other: str) -> None:
        """A heartbeat of `other` comes to a member."""
        if frozenset((name, other)) not in self.linked:
            return
        number, names, named = self.said[name, other] = self.stored(other)
        here = self.alive[name]
        here.note(number, names)
        self.heard[name, other] = number == here.number and not named
        here.named_none(
            [
                seed
                for seed in here.others
                if self.heard.get((name, seed))
                and self.said.get((name, seed), (0,))[0] == here.number
            ]
        )

    def named(self, name: str) -> dict[str, Names]:
        """What a member knows that seeds of its list have named."""
        here = self.alive[name]
        found = {
            other: told[2]
            for (me, other), told in self.said.items()
            if me == name and told[0] == here.number and told[2]
        }
        number, _, mine = self.stored(name)
        return found | ({name: mine} if mine and number == here.number else {})

    def name_one(self, name: str) -> None:
        here = self.alive[name]
        known = [*self.named(name).values()]
        ordered = [here.with_seed(one) for one in self.names if one not in here.names]
        ordered += [here.without_seed(one) for one in here.names if len(here.names) > 2]
        choice = self.rng.choice(known if known and self.rng.random() < self.agreed else ordered)
        here.name(choice, self.named(name), settled=here.number in self.settled)

    def begin(self, name: str) -> None:
        here = self.alive[name]
        names = here.begun(self.named(name))
        if names is not None:
            self.begun.setdefault(here.number + 1, set()).add(names)
            here.note(here.number + 1, names)

    def step(self) -> None:
        rng = self.rng
        name, other = rng.sample(self.names, 2)
        what = rng.random()
        if what < 0.45:
            self.link(name, other)
            self.tell(name, other)
        elif what < 0.55:
            self.name_one(name)
        elif what < 0.75:
            self.store(name)
        elif what < 0.92:
            self.begin(name)
        elif what < 0.97:
            self.settled.add(rng.choice(list(self.begun)))
        else:
            self.restart(name, lost=rng.random() < self.lossy)

    def problem(self) -> str | None:
        """What is not as the specification says (`OneListANumber`), or None."""
        for number, lists in self.begun.items():
            if len(lists) > 1:
                return f"there are {len(lists)} lists {number}"
            (names,) = lists
            if number > 1:
                (before,) = self.begun[number - 1]
                if len(set(names) ^ set(before)) != 1:
                    return f"list {number} differs from the one before in several seeds"
        return None


def first_problem(seed: int, steps: int = 400) -> str | None:
    lists = Lists(random.Random(seed))
    for _ in range(steps):
        lists.step()
        found = lists.problem()
        if found:
            return found
    return None


@given(st.integers(0, 2**32))
def test_there_are_never_two_lists_of_one_number(seed: int) -> None:
    assert first_problem(seed) is None


def test_lists_do_change_in_these_runs() -> None:
    reached = []
    for seed in range(40):
        lists = Lists(random.Random(seed))
        for _ in range(800):
            lists.step()
        reached.append(max(lists.begun))
    assert max(reached) > 3
    assert sum(number > 1 for number in reached) > 10


def named_again(_: object) -> Callable[..., bool]:
    def name(self: Seeds, names: Names, _: Mapping[str, Names], *, settled: bool) -> bool:
        self.next = ()
        assert self._votes is not None
        if not (settled and self.may_name and self.include_me and self.follows(names)):
            return False
        self.next, self._votes.next = names, list(names)
        return True

    return name


def one_is_enough(_: object) -> Callable[..., Names | None]:
    return lambda _, named: next(iter(named.values()), None)


def sure_after_a_loss(_: object) -> property:
    return property(lambda _: True)


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [("name", named_again), ("begun", one_is_enough), ("may_name", sure_after_a_loss)],
)
def test_without_a_rule_two_lists_of_one_number_begin(
    rule: str, wrong: Callable[[object], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Seeds, rule, wrong(Seeds.__dict__[rule]))
    assert any(first_problem(seed) for seed in range(3000))
