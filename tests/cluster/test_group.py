"""What one member holds of one group, alone: results, and what is forwarded."""

import random
from typing import Any, get_args

import msgspec
import pytest

from mdserver.cluster import messages
from mdserver.cluster.group import GroupItem
from mdserver.cluster.groups import new_history
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

SUBJECT = "/a/b"


def test_a_cleared_group_tells_those_who_wait_that_nothing_is_known() -> None:
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.open("m1:1", 1)
    cluster.publish("m1:1", 1, SUBJECT, "waits")
    member = cluster.members["m1:1"]
    group = member.running.groups[cluster.group(SUBJECT)]
    group.clear()
    (output,) = group._outgoing.out
    event: Any = output.event
    assert (event.id, event.certain) == ("waits", False)
    assert cluster.statistics("m1:1").waiting == 0


def test_every_message_about_groups_goes_through_the_one_step() -> None:
    items: set[type] = set()
    for message in get_args(messages.AnyPeerMessage):
        for field in msgspec.structs.fields(message):
            items |= {one for one in get_args(field.type) if of_a_group(one)}
    assert len(items) > 12
    taken = set(get_args(GroupItem)) | {messages.CopyItem}  # which is a SyncItem
    assert not items - taken


def of_a_group(one: object) -> bool:
    """Return whether something is a kind of item: a struct with the number of its group."""
    structs = isinstance(one, type) and issubclass(one, msgspec.Struct)
    return structs and "group" in one.__struct_fields__  # type: ignore[attr-defined]


def test_publications_wait_until_a_coordinator_is_active_and_go_to_each_new_one() -> None:
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    contact = next(n for n in cluster.names if n != cluster.coordinator(cluster.group(SUBJECT)))
    cluster.open(contact, 1)
    cluster.partition(contact)
    cluster.publish(contact, 1, SUBJECT, "one")
    cluster.run(S // 2)
    assert cluster.statistics(contact).waiting == 1
    cluster.heal()
    cluster.until(lambda: cluster.statistics(contact).waiting == 0)
    (status,) = cluster.members[contact].statuses
    assert (status.id, status.seq) == ("one", 1)


@pytest.mark.parametrize("age", [0, 1, 2**40])
def test_history_ids_of_a_greater_age_sort_behind(age: int) -> None:
    rng = random.Random(1)
    drawn = [new_history(rng, age) for _ in range(100)]
    assert len(set(drawn)) == 100
    assert max(drawn) < min(new_history(rng, age + 1) for _ in range(100))


def test_groups_that_an_operator_takes_back_vote_once_their_logs_are_here() -> None:
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready)
    groups = cluster.members["m3:1"].running.groups
    assert (groups.not_voting, groups.record_lost, groups.returning) == ([], False, False)
    groups.lose()
    assert groups.record_lost
    assert groups.not_voting == list(range(4))
    groups.readmit()
    assert (groups.record_lost, groups.returning) == (False, True)
    groups.lose()
    assert groups.returning, "what an operator said of this loss holds"
