"""Two coordinators of members that are linked are found, and groups that nobody coordinates."""

import pytest

from mdserver.cluster.coordinator import Coordinator
from simulation.leaderships import SETTLED
from simulation.mutants import hunt
from simulation.profiles import standard_apart
from simulation.run import LOOK_EVERY, run
from simulation.standard_mutants import OF_STANDARD
from simulation.world import World

BY_TITLE = {mutant.title: mutant for mutant in OF_STANDARD}


@pytest.fixture
def rested() -> World:
    """A world of Standard mode that came to rest, and goes on without faults."""
    plan = standard_apart(1)
    result, world = run(plan)
    assert result.problems == ()
    return world


def looked(world: World, until: int) -> list[str]:
    """What is found while time goes by."""
    while world.heap.now < until and not world.watch.findings:
        moment = world.heap.now + LOOK_EVERY
        while world.heap.step(moment):
            pass
        world.promises.leaderships.look()
    return [finding.kind for finding in world.watch.findings]


def second_coordinator(world: World) -> None:
    nodes = [member.node for member in world.members.values() if member.node]
    group = next(node.groups[0] for node in nodes if node.groups[0].coordinator is None)
    group.coordinator = Coordinator(0, 1, group.log, (), 0)


def test_nothing_is_found_while_all_is_as_it_should_be(rested: World) -> None:
    assert looked(rested, rested.heap.now + 3 * SETTLED) == []


def test_two_coordinators_are_found_once_their_links_were_whole_for_long(rested: World) -> None:
    looked(rested, rested.heap.now + 2 * SETTLED)
    second_coordinator(rested)
    rested.promises.leaderships.look()
    found = rested.watch.findings
    assert {finding.kind for finding in found} == {"one coordinator"}
    assert "coordinate group 0, linked by" in found[0].what


def test_a_link_that_was_made_anew_is_given_time(rested: World) -> None:
    looked(rested, rested.heap.now + 2 * SETTLED)
    for name in rested.names:
        for other in rested.names:
            rested.links.cut(name, other)
    rested.promises.leaderships.look()
    second_coordinator(rested)
    rested.promises.leaderships.look()
    assert rested.watch.findings == []


def test_a_group_that_a_member_does_not_follow_is_found_after_a_while(rested: World) -> None:
    looked(rested, rested.heap.now + 2 * SETTLED)
    node = rested.members["m0"].node
    assert node is not None
    node.groups[0].leadership.active = False
    for _ in range(SETTLED // LOOK_EVERY - 1):
        rested.heap.now += LOOK_EVERY
        rested.promises.leaderships.look()
    assert rested.watch.findings == []
    rested.heap.now += LOOK_EVERY
    rested.promises.leaderships.look()
    assert [finding.kind for finding in rested.watch.findings] == ["one coordinator"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "title",
    [
        "two that do not see each other have the first turn",
        "a coordinator stays beside one that prevails",
    ],
)
def test_bugs_of_standard_mode_are_found_by_it(title: str) -> None:
    found = hunt(BY_TITLE[title], range(1, 101)).found
    assert found is not None
    assert "one coordinator" in found.kinds


@pytest.mark.parametrize("seed", range(1, 6))
def test_of_two_that_do_not_see_each_other_one_succeeds(seed: int) -> None:
    result, _ = run(standard_apart(seed))
    assert result.problems == ()
