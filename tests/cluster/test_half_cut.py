"""Links that break between two members and stay broken: every client is served, or sent away.

A way is a pair (from, to): a cut that is whole takes both ways and ends the connection, one that is
half takes one way while the other still carries.
"""

from itertools import combinations

import pytest

from mdserver.core.events import Delivery, Move, StatusName
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

Way = tuple[int, int]
GROUPS = 16
SUBJECTS = [f"/s/{index}" for index in range(24)]
BOUND = 5 * S
ONE_CUT: list[tuple[Way, ...]] = [
    ways
    for one, other in combinations(range(3), 2)
    for ways in (((one, other), (other, one)), ((one, other),), ((other, one),))
]
TWO_CUTS: list[tuple[Way, ...]] = [
    (*first, *second)
    for first, second in (
        (((0, 1), (1, 0)), ((2, 3), (3, 2))),
        (((0, 1), (1, 0)), ((1, 2), (2, 1))),
        (((0, 3), (3, 0)), ((1, 3), (3, 1))),
        (((0, 2), (2, 0)), ((1, 3),)),
        (((0, 1),), ((3, 2),)),
        (((0, 1),), ((1, 2),)),
    )
]


def started(count: int, **settings: object) -> Cluster:
    """A cluster that rests, with a subscriber and a publisher at each member."""
    cluster = Cluster(count, GROUPS, **settings)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(4 * S)
    for name in cluster.names:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, *SUBJECTS)
        cluster.open(name, 2)
    return cluster


def cut(cluster: Cluster, ways: tuple[Way, ...]) -> None:
    """Break the ways for good."""
    for one, other in ways:
        first, second = cluster.names[one], cluster.names[other]
        if (other, one) in ways:
            cluster.cut.add((min(first, second), max(first, second)))
            cluster.disconnect(first, second)
        else:
            cluster.loss.add((first, second))


def published(cluster: Cluster, name: str, prefix: str) -> list[str]:
    """Have a member's publisher publish to every subject; returns the names of what it sent."""
    sent = [f"{prefix}-{name}-{subject}" for subject in SUBJECTS]
    for content, subject in zip(sent, SUBJECTS, strict=True):
        cluster.publish(name, 2, subject, content)
    return sent


def sent_away(cluster: Cluster, name: str) -> bool:
    """Whether the clients of a member were told to go, and where to."""
    member = cluster.members[name]
    moves = [event for event in member.inboxes.get(1, []) if isinstance(event, Move)]
    return any(gone.session == 1 for gone in member.closed) and bool(moves and moves[-1].servers)


def results(cluster: Cluster, name: str) -> dict[object, StatusName]:
    statuses = cluster.members[name].statuses
    return {s.id: s.status for s in statuses if s.status.value.startswith("PUBLISH")}


def heard(cluster: Cluster, name: str) -> set[str]:
    """The contents that a member's subscriber got."""
    events = cluster.members[name].inboxes.get(1, [])
    return {e.entry.publication.content.decode() for e in events if isinstance(e, Delivery)}


def unserved(cluster: Cluster, sent: dict[str, list[str]]) -> list[str]:
    """What is missing at members whose clients were not sent away."""
    everything = {content for contents in sent.values() for content in contents}
    found: list[str] = []
    for name in cluster.names:
        if sent_away(cluster, name):
            continue
        answers = results(cluster, name)
        found += [f"{c} has no result" for c in sent.get(name, ()) if c not in answers]
        found += [
            f"{c} failed" for c in sent.get(name, ()) if answers.get(c) is StatusName.PUBLISH_FAILED
        ]
        missing = everything - heard(cluster, name)
        if missing:
            found.append(f"{name} lacks {len(missing)} of {len(everything)}")
    return found


def check(cluster: Cluster, ways: tuple[Way, ...]) -> list[str]:
    """Cut, publish, and look after the bound and later; returns the members that serve."""
    cut(cluster, ways)
    cluster.run(50 * MS)
    early = {name: published(cluster, name, "early") for name in cluster.names}
    cluster.run(BOUND)
    away = [name for name in cluster.names if sent_away(cluster, name)]
    # What was published at a member that sent its clients away is theirs to repeat elsewhere.
    early = {name: contents for name, contents in early.items() if name not in away}
    assert unserved(cluster, early) == []
    left = [name for name in cluster.names if name not in away]
    late = {name: published(cluster, name, "late") for name in left}
    cluster.run(500 * MS)
    assert unserved(cluster, late) == []
    cluster.run(30 * S)
    assert [name for name in cluster.names if sent_away(cluster, name)] == away, "it flaps"
    return left


@pytest.mark.parametrize("ways", ONE_CUT, ids=str)
def test_one_link_between_three_seeds_is_cut_for_good_and_all_members_serve(
    ways: tuple[Way, ...],
) -> None:
    cluster = started(3)
    assert check(cluster, ways) == list(cluster.names)
    assert cluster.ready()


@pytest.mark.parametrize("ways", TWO_CUTS, ids=str)
@pytest.mark.parametrize("count", [4, 5])
def test_two_links_are_cut_for_good_and_every_client_is_served_or_sent_away(
    ways: tuple[Way, ...], count: int
) -> None:
    cluster = started(count)
    assert len(check(cluster, ways)) >= 2


@pytest.mark.parametrize("ways", ONE_CUT[:3], ids=str)
def test_nobody_takes_groups_over_twice_while_a_link_is_cut_and_all_share_them_after_it(
    ways: tuple[Way, ...],
) -> None:
    cluster = started(3)
    check(cluster, ways)
    epochs = [group.epoch for group in cluster.statistics("m3:1").groups]
    cluster.run(30 * S)
    assert [group.epoch for group in cluster.statistics("m3:1").groups] == epochs
    cluster.heal()
    cluster.run(15 * S)
    led = [cluster.coordinator(group) for group in range(GROUPS)]
    assert set(led) == set(cluster.names)


@pytest.mark.parametrize("ways", ONE_CUT, ids=str)
def test_without_votes_one_cut_link_splits_nothing(ways: tuple[Way, ...]) -> None:
    cluster = started(3, guaranteed=False)
    histories = [group.history for group in cluster.statistics("m1:1").groups]
    assert check(cluster, ways) == list(cluster.names)
    for member in cluster.members.values():
        assert [group.history for group in member.node.statistics().groups] == histories
