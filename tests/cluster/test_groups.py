"""What is done to many groups of a member at once: the standing of a seed, and history ids."""

import random

from mdserver.cluster.acceptor import Standing
from mdserver.cluster.node import Node
from mdserver.cluster.settings import ClusterSettings
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.core.settings import BrokerSettings

NAMES = ("m1:1", "m2:1", "m3:1")
GROUPS = 4


def seed(*, admitted: bool, guaranteed: bool = True) -> Node:
    """A member that started and has heard nothing yet."""
    votes = VoteRecord(NAMES[0], "test", 2, admitted, [Vote() for _ in range(GROUPS)], {})
    settings = ClusterSettings(NAMES[0], NAMES, guaranteed=guaranteed)
    return Node(BrokerSettings(member=NAMES[0], groups=GROUPS), random.Random(1), settings, votes)


def test_a_seed_without_proof_knows_its_standing_once_all_others_spoke() -> None:
    node = seed(admitted=False)
    assert not node.groups.standing_known
    node.members.peers[NAMES[1]].greeted = True
    assert not node.groups.standing_known
    node.members.peers[NAMES[2]].greeted = True
    assert node.groups.standing_known
    assert seed(admitted=True).groups.standing_known, "its record says so"


def test_a_seed_is_counted_on_once_it_votes_everywhere() -> None:
    node = seed(admitted=False)
    assert node.groups.not_voting == list(range(GROUPS))
    for group in node.groups:
        assert not node.storage.admit()
        assert group.acceptor is not None
        group.acceptor.standing = Standing.NORMAL
    assert node.storage.admit()
    assert node.storage.votes.admitted
    assert not node.storage.admit(), "said once"


def test_a_lost_record_and_the_word_of_an_operator_are_about_all_groups() -> None:
    groups = seed(admitted=True).groups
    groups.lose()
    assert (groups.record_lost, groups.returning) == (True, False)
    groups.readmit()
    assert (groups.record_lost, groups.returning) == (False, True)
    groups.lose()
    assert (groups.record_lost, groups.returning) == (False, True), "the word holds"


def test_clients_hear_the_history_id_of_a_majority_and_of_one_member_its_own() -> None:
    everybody = range(GROUPS)
    elected, chosen = seed(admitted=True), seed(admitted=True, guaranteed=False)
    for node in (elected, chosen):
        node.groups.rename("new", everybody)
        assert [group.history for group in node.groups] == ["new"] * GROUPS
    assert elected.history == "new"
    assert chosen.history not in ("", "new"), "members may differ in what a history holds"
