"""History ids of subject groups: which one clients are told, and which positions mean something."""

from itertools import permutations

from mdserver.core.histories import Histories
from mdserver.core.subjects import group_of

GROUPS = 4
SUBJECT = "/a/b"


def test_a_subject_has_the_id_of_its_group() -> None:
    histories = Histories("h1", GROUPS)
    group = group_of(SUBJECT, GROUPS)
    histories.begin("h2", [group])
    assert histories.group(SUBJECT) == group
    assert histories.of(SUBJECT) == histories.of_group(group) == "h2"
    assert {histories.of_group(other) for other in range(GROUPS) if other != group} == {"h1"}


def test_positions_under_the_newest_id_and_under_that_of_the_group_are_known() -> None:
    histories = Histories("h1", GROUPS)
    group = group_of(SUBJECT, GROUPS)
    histories.begin("h2", [(group + 1) % GROUPS])
    assert histories.current == "h2"
    assert histories.know(SUBJECT, "h1")
    assert histories.know(SUBJECT, "h2")
    assert not histories.know(SUBJECT, "h0")


def test_clients_are_told_the_same_id_in_whatever_order_a_member_heard_of_them() -> None:
    told = set()
    for order in permutations([("h2", 0), ("h3", 1), ("h9", 2), ("h10", 3)]):
        histories = Histories("h1", GROUPS)
        for history, group in order:
            histories.begin(history, [group])
        told.add(histories.current)
    assert told == {"h10"}  # longer ids are of later versions
