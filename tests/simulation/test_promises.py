"""Promises that are broken are found: by acknowledgements, by members that are ready, at rest."""

import pytest

from mdserver.core.message import Entry, Publication
from simulation.history import Acked
from simulation.mutants import MUTANTS, hunt
from simulation.plan import Plan, make, small
from simulation.profiles import standard
from simulation.rest import difference
from simulation.run import run
from simulation.world import World

BY_TITLE = {mutant.title: mutant for mutant in MUTANTS}


@pytest.fixture(scope="module")
def rested() -> World:
    """A world of three members that came to rest after a few publications."""
    plan: Plan = small(1, 3 * 10**9, [], make(1).sendings[:20])
    result, world = run(plan)
    assert result.problems == ()
    return world


def test_an_acknowledgement_of_what_nobody_committed_is_found() -> None:
    world = World(make(1))
    world.watch.saw_commit("m0", "h", 0, [Entry(2, 1, Publication("/s/0", b"p1"))])

    world.see(Acked(1, "p1", "/s/0", "h", 2, 1))
    assert world.watch.findings == []

    world.see(Acked(2, "p2", "/s/0", "h", 2, 1))
    world.see(Acked(3, "p2", "/s/0", "h", 2, 2))
    assert [finding.kind for finding in world.watch.findings] == ["I8", "I8"]


@pytest.mark.parametrize(("plan", "kinds"), [(make(1), ["I8"]), (standard(1), [])])
def test_an_acknowledgement_is_of_the_last_history_unless_two_sides_serve(
    plan: Plan, kinds: list[str]
) -> None:
    world = World(plan)
    for history, text in (("h1", b"p1"), ("h2", b"p2")):
        world.watch.saw_commit("m0", history, 0, [Entry(2, 1, Publication("/s/0", text))])

    world.see(Acked(1, "p2", "/s/0", "h2", 2, 1))
    assert world.watch.findings == []

    world.see(Acked(2, "p1", "/s/0", "h1", 2, 1))
    assert [finding.kind for finding in world.watch.findings] == kinds


def test_a_member_that_applies_again_what_it_has_is_found_unless_it_may_begin_anew() -> None:
    world = World(make(1))
    first, second = (Entry(2, seq, Publication("/s/0", b""), seq) for seq in (1, 2))
    world.watch.saw_commit("m0", "h", 0, [first, second])

    world.watch.saw_commit("m0", "h", 0, [first], may_begin_anew=True)
    assert world.watch.findings == []

    world.watch.saw_commit("m0", "h", 0, [second])
    world.watch.saw_commit("m0", "h", 0, [second], may_begin_anew=True)  # not its beginning
    assert [finding.kind for finding in world.watch.findings] == ["I7"]


@pytest.mark.parametrize(("length", "kinds"), [(3, []), (2, ["I1"])])
def test_a_coordinator_with_less_than_the_best_promised_log_is_found(
    length: int, kinds: list[str]
) -> None:
    world = World(make(1))
    promised = {"group": 0, "epoch": 5, "candidate": "m2"}
    # The longest log is not the best one: it is of an older epoch.
    for seed, accepted, held in (("m0", 4, 3), ("m1", 3, 7)):
        step = promised | {"node": seed, "accepted": accepted, "length": held}
        world.watch.saw_step(seed, "h", "Promise", step)

    elected = {"group": 0, "epoch": 5, "node": "m2", "promises": "m0,m1", "length": length}
    world.watch.saw_step("m2", "h", "Elect", elected)

    assert [finding.kind for finding in world.watch.findings] == kinds


def test_members_that_hold_the_same_do_not_differ(rested: World) -> None:
    nodes = {name: member.running for name, member in rested.members.items()}

    assert difference(nodes, evicts=False) is None


def test_a_table_that_lacks_a_position_differs(rested: World) -> None:
    nodes = {name: member.running for name, member in rested.members.items()}
    tables = [node.groups[0].log.publishers.table for node in nodes.values()]
    publisher = next(iter(tables[1]))
    lost = tables[1][publisher].positions.pop(0)
    try:
        found = difference(nodes, evicts=False)
    finally:
        tables[1][publisher].positions.insert(0, lost)

    assert found is not None
    assert "the publishers' numbers of m0" in found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("one acknowledgement commits", "I1"),
        ("a client is sent again what it asked to go on from", "repeated"),
        ("a repeat is acknowledged before it is committed", "I8"),
        ("a member is ready before it holds its groups", "I10"),
        ("a gap is told although the cache has everything", "disclosed loss"),
        ("a copy has half of the publishers' positions", "liveness"),
    ],
)
def test_a_bug_is_found_by_the_promise_that_it_breaks(title: str, kind: str) -> None:
    found = hunt(BY_TITLE[title], range(1, 41)).found

    assert found is not None
    assert kind in found.kinds
