"""What operators ask of members: whom they call, what they see, whom they drain."""

import random

import pytest

from mdserver.limits import NS_PER_S as S
from tests.cluster.started import started


def test_a_drained_member_coordinates_nothing() -> None:
    cluster = started(groups=12)
    cluster.run(3 * S)
    assert cluster.operate("m3:1", "drain", "m2:1").refused is None
    cluster.run(5 * S)
    assert "m2:1" not in {cluster.coordinator(group) for group in range(12)}
    assert cluster.operate("m1:1", "undrain", "m2:1").refused is None
    cluster.run(5 * S)
    assert "m2:1" in {cluster.coordinator(group) for group in range(12)}


def test_draining_a_second_seed_is_refused_without_force() -> None:
    cluster = started()
    cluster.kill("m3:1")
    cluster.run(3 * S)
    refused = cluster.operate("m1:1", "drain", "m2:1").refused
    assert "only 1 of 3 seeds would vote" in str(refused)
    assert cluster.operate("m1:1", "drain", "m2:1", force=True).refused is None


def test_seeds_that_are_drained_are_no_votes_to_rely_on() -> None:
    cluster = started()
    cluster.run(3 * S)
    assert cluster.operate("m1:1", "drain", "m1:1").refused is None
    for wait in (0, 3 * S):
        cluster.run(wait)
        for asked in ("m1:1", "m2:1", "m3:1")[: 3 if wait else 1]:
            refused = cluster.operate(asked, "drain", "m2:1").refused
            assert str(refused).startswith("m1:1 drained already: without m2:1 only 1 of 3 seeds")
    assert cluster.operate("m2:1", "drain", "m1:1").refused is None, "it is drained already"
    assert cluster.operate("m3:1", "drain", "m2:1", force=True).refused is None
    cluster.run(3 * S)
    assert {cluster.coordinator(group) for group in range(cluster.groups)} == {"m3:1"}
    assert "drained" in str(cluster.members["m1:1"].node.service.drained())
    assert cluster.operate("m2:1", "undrain", "m1:1").refused is None
    cluster.run(S)
    assert cluster.members["m1:1"].node.service.drained() is None


@pytest.mark.parametrize("seed", range(5))
def test_whatever_operators_drain_a_majority_of_seeds_is_left(seed: int) -> None:
    rng = random.Random(seed)
    cluster = started(count=5)
    cluster.run(3 * S)
    drained: dict[str, None] = {}
    for _ in range(20):
        asked, member = rng.choice(cluster.names), rng.choice(cluster.names)
        action = rng.choice(["drain", "drain", "undrain"])
        if cluster.operate(asked, action, member).refused is None:
            drained.pop(member, None)
            if action == "drain":
                drained[member] = None
        assert len(drained) <= 2
        cluster.run(rng.choice([S, 2 * S]))


def test_members_are_called_by_address_or_name() -> None:
    cluster = started()
    cluster.run(S)
    admin = cluster.members["m1:1"].node.admin
    peers = cluster.members["m1:1"].node.members.peers
    peers["m2:1"].name, peers["m3:1"].name = "paris", "m1:1"
    assert admin.called("") == ("m1:1", None)
    assert admin.called("paris") == ("m2:1", None)
    assert admin.called("m1:1") == ("m1:1", None), "an address comes before a name"
    peers["m3:1"].name = "paris"
    assert admin.called("paris") == ("", "paris is the name of m2:1 and m3:1: give the address")
    known = "m1:1 (m1:1), paris (m2:1), paris (m3:1)"
    drained = admin._needed("m2:1")
    assert drained is None
    peers["m2:1"].weight = 0
    told = str(admin._needed("m1:1"))
    assert told.startswith("m2:1 drained already: without m1:1"), "a name that two members have"
    peers["m3:1"].name = "berlin"
    told = str(admin._needed("m1:1"))
    assert told.startswith("paris drained already: without m1:1"), "as commands take it"
    peers["m3:1"].name = "paris"
    assert admin.called("rome")[1] == f"there is no member rome; the members are {known}"


def test_the_status_names_members_groups_and_quorum() -> None:
    cluster = started()
    cluster.run(3 * S)
    status = cluster.operate("m2:1", "status").answer
    assert status["quorum"] is True
    members = status["members"]
    assert isinstance(members, list)
    assert {(row["address"], row["seed"], row["state"]) for row in members} == {
        (name, True, "NORMAL") for name in cluster.names
    }
    groups = status["groups"]
    assert isinstance(groups, list)
    assert [row["group"] for row in groups] == list(range(cluster.groups))
    assert all(row["coordinator"] in cluster.names and row["lag"] == 0 for row in groups)


def test_a_seed_knows_when_the_majority_ends_with_it() -> None:
    cluster = started()
    cluster.run(3 * S)
    node = cluster.members["m1:1"].node
    assert node.needed_for_quorum() is None
    assert node.service.elsewhere() == ["c-m2:1", "c-m3:1"]
    cluster.kill("m2:1")
    cluster.run(S)
    assert "only 1 of 3 seeds would vote" in str(node.needed_for_quorum())
