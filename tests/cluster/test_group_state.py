"""What stands for the entries of a log that are gone: given, and taken."""

import random

from mdserver.cluster.group import Group
from mdserver.cluster.node import Node
from mdserver.core.commands import Connect, Publish
from mdserver.core.inputs import Opened, Received
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import group_of
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

SUBJECT = "/a/b"


def single(*contents: str, seed: int = 1) -> tuple[Node, Group]:
    """A single server that took these publications, and their group."""
    node = Node(BrokerSettings(groups=4), random.Random(seed))
    node.step(Opened(1, "127.0.0.1"), S)
    node.step(Received(1, [Connect()]), S)
    for content in contents:
        node.step(Received(1, [Publish(subject=SUBJECT, content=content)]), S)
    return node, node.groups[group_of(SUBJECT, 4)]


def held(group: Group) -> list[tuple[int, bytes]]:
    return [
        (entry.seq, entry.publication.content)
        for image in group.state.image().subjects
        for entry in image.entries
    ]


def test_a_state_stands_for_all_that_is_committed() -> None:
    _, group = single("one", "two", "three")
    _, other = single()
    other.state.install(group.log.committed, group.state.export())
    assert held(other) == held(group) == [(1, b"one"), (2, b"two"), (3, b"three")]
    assert (other.log.committed, other.log.length, other.log.base) == (3, 3, 3)
    assert other.log.numbering == {SUBJECT: 3}


def test_who_lacks_entries_that_are_gone_gets_a_state_instead() -> None:
    cluster = Cluster(3, log_kept=2)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.open("m1:1", 1)
    for number in range(10):
        cluster.publish("m1:1", 1, SUBJECT, str(number))
        cluster.run(S)
    group = cluster.members["m1:1"].running.groups[cluster.group(SUBJECT)]
    assert 0 < group.log.base < 10
    assert group.state.tail_or_state(group.log.base) == (group.log.base, None)
    start, state = group.state.tail_or_state(group.log.base - 1)
    assert start == group.log.committed
    assert state is not None


def test_a_state_stands_for_what_is_committed_and_not_for_the_tail() -> None:
    cluster = Cluster(3, log_kept=2)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)  # groups are handed over until each member has its share
    coordinator = cluster.coordinator(cluster.group(SUBJECT))
    assert coordinator is not None
    cluster.open(coordinator, 1)
    for number in range(5):
        cluster.publish(coordinator, 1, SUBJECT, str(number))
        cluster.run(S)
    group = cluster.members[coordinator].running.groups[cluster.group(SUBJECT)]
    cluster.publish(coordinator, 1, SUBJECT, "in the tail")  # no time passes, so nobody acks it
    assert (group.log.committed, group.log.length) == (5, 6)
    start, state = group.state.tail_or_state(0)
    assert start == 5
    assert state is not None


def test_publishers_get_an_uncertain_result_when_a_state_stands_for_what_they_wait_for() -> None:
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.open("m1:1", 1)
    cluster.publish("m1:1", 1, SUBJECT, "waits")
    group = cluster.members["m1:1"].running.groups[cluster.group(SUBJECT)]
    assert cluster.statistics("m1:1").waiting == 1
    _, other = single("one")
    group.state.install(1, other.state.export())
    assert cluster.statistics("m1:1").waiting == 0
    cluster.run(S // 100)
    (status,) = cluster.members["m1:1"].statuses
    assert (status.id, status.certain) == ("waits", False)


def test_a_cache_that_is_taken_goes_under_the_history_id_of_this_member() -> None:
    _, group = single("one")
    _, other = single(seed=2)
    before = other.state.image().history
    assert before != group.state.image().history
    other.state.install(1, group.state.export())
    assert other.state.image().history == before
