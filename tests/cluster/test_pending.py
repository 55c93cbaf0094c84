"""What waits at the member that a publisher speaks to, and when it is forwarded."""

import pytest

from mdserver.cluster.log import Run
from mdserver.cluster.messages import Forward, SendPeer
from mdserver.cluster.node import TICK
from mdserver.cluster.pending import GroupQueue, PendingPublications, contact_name
from mdserver.core.events import StatusName
from mdserver.core.inputs import TimerDue
from mdserver.core.message import Entry, Publication
from mdserver.core.proposal import Origin, Proposal
from mdserver.limits import (
    FORWARD_BYTES_MAX,
    FORWARD_PUBLICATIONS_MAX,
    MB,
    PENDING_BYTES_MAX,
    PENDING_BYTES_PER_GROUP_MAX,
    PENDING_PER_GROUP_MAX,
    PUBLISHER_NUMBERS_KEPT,
)
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

NAME = contact_name("m1:1", 1, 7)
SUBJECT = "/a/b"


def waiting(*contents: bytes) -> GroupQueue:
    """A queue into which publications with these contents came."""
    queue = GroupQueue(PendingPublications(NAME))
    queue.take([proposal(content) for content in contents])
    return queue


def proposal(content: bytes) -> Proposal:
    return Proposal(Origin(1, None, None), Publication(SUBJECT, content, time=10 * S))


def forwarded(queue: GroupQueue) -> tuple[int, list[bytes]] | None:
    row = queue.unsent()
    return None if row is None else (row[0], [publication.content for publication in row[1]])


def commit(queue: GroupQueue, first: int, count: int) -> None:
    entries = [Entry(1, seq, Publication(SUBJECT, b"")) for seq in range(1, count + 1)]
    assert len(queue.committed(0, entries, Run(0, count, NAME, first))) == count


def test_what_comes_while_something_is_on_its_way_goes_together_afterwards() -> None:
    queue = waiting(b"1", b"2")
    assert forwarded(queue) == (1, [b"1", b"2"])
    queue.take([proposal(b"3")])
    assert forwarded(queue) is None
    commit(queue, 1, 1)
    queue.take([proposal(b"4")])
    assert forwarded(queue) is None
    commit(queue, 2, 1)
    assert forwarded(queue) == (3, [b"3", b"4"])
    commit(queue, 3, 2)
    assert forwarded(queue) is None


@pytest.mark.parametrize(
    ("contents", "counts"),
    [
        ([b""] * (FORWARD_PUBLICATIONS_MAX + 1), [FORWARD_PUBLICATIONS_MAX, 1]),
        ([bytes(FORWARD_BYTES_MAX), b"x", b""], [2, 1]),
        ([bytes(FORWARD_BYTES_MAX + 1), b"", b""], [1, 2]),
    ],
)
def test_no_more_goes_at_once_than_a_frame_takes(contents: list[bytes], counts: list[int]) -> None:
    queue = waiting(*contents)
    first = 1
    for count in counts:
        row = queue.unsent()
        assert row is not None
        assert (row[0], len(row[1])) == (first, count)
        commit(queue, first, count)
        first += count
    assert queue.unsent() is None


def test_a_new_coordinator_gets_what_was_forwarded_and_is_not_in_its_log() -> None:
    queue = waiting(*(b"%d" % ticket for ticket in range(1, 8)))
    queue.unsent()
    queue.take([proposal(b"later")] * FORWARD_PUBLICATIONS_MAX)
    tail = [Run(4, 1, NAME, 2), Run(5, 2, "m2:1#1", 1), Run(7, 1, NAME, 5)]
    rows = queue.not_taken(tail)
    assert [(first, [p.content for p in publications]) for first, publications in rows] == [
        (1, [b"1"]),
        (3, [b"3", b"4"]),
        (6, [b"6", b"7"]),
    ]
    assert queue.unsent() is None  # a frame has no room for all that waits
    commit(queue, 1, 7)
    assert forwarded(queue) == (8, [b"later"] * FORWARD_PUBLICATIONS_MAX)


def test_what_is_given_up_keeps_nothing_back() -> None:
    queue = waiting(b"1")
    queue.unsent()
    later = Publication(SUBJECT, b"2", time=15 * S)
    queue.take([Proposal(Origin(1, None, None), later)])
    (outcome,) = queue.expired(20 * S, 10 * S)
    assert not outcome.certain
    assert forwarded(queue) == (2, [b"2"])


def test_what_waits_in_a_group_is_bounded_by_bytes_and_the_rest_is_certainly_not_taken() -> None:
    """Without a quorum nothing commits: publishers hear at once that there is no room."""
    pending = PendingPublications(NAME)
    queue, other = GroupQueue(pending), GroupQueue(pending)
    block = proposal(bytes(MB))
    count = PENDING_BYTES_PER_GROUP_MAX // MB
    refused = queue.take([block] * (count + 2))
    assert [(outcome.reason, outcome.certain) for outcome in refused] == [
        ("too many bytes wait here", True)
    ] * 2
    assert len(queue.proposals) == count
    assert other.take([block]) == [], "another group has room"
    queue.unsent()
    commit(queue, 1, 3)
    assert len(queue.take([block] * 4)) == 1, "what is committed makes room"


def test_what_waits_in_all_groups_is_bounded_by_bytes() -> None:
    block = proposal(bytes(8 * MB))
    fit = PENDING_BYTES_MAX // (8 * MB)
    pending = PendingPublications(NAME)
    queues = [GroupQueue(pending) for _ in range(2 * fit)]
    refused = [outcome for queue in queues[:fit] for outcome in queue.take([block] * 2)]
    assert [outcome.certain for outcome in refused] == [True] * fit
    assert pending.size_bytes == PENDING_BYTES_MAX
    commit(queues[0], 1, 1)
    assert queues[fit].take([block]) == [], "what is committed makes room for any group"


def test_fields_count_as_what_waits() -> None:
    queue = waiting()
    fields = {"a": "x" * (PENDING_BYTES_PER_GROUP_MAX - 1)}
    large = Proposal(Origin(1, None, None), Publication(SUBJECT, b"", fields=fields))
    assert queue.take([large]) == []
    assert queue.take([proposal(b"")]) == []
    (outcome,) = queue.take([proposal(b"x")])
    assert outcome.certain


@pytest.mark.parametrize("how", ["refused", "unknown", "expired"])
def test_what_is_given_up_makes_room_for_as_much(how: str) -> None:
    """A publisher that was refused while the disk was full may have all its numbers wait again."""
    pending = PendingPublications(NAME)
    queue = GroupQueue(pending)
    numbered = [
        Proposal(Origin(1, None, None), Publication(SUBJECT, b"x", number=n, time=10 * S))
        for n in range(1, PUBLISHER_NUMBERS_KEPT + 1)
    ]
    assert queue.take(numbered) == []
    queue.next_unsent = queue.next_ticket  # all of it
    given_up = {
        "refused": lambda: queue.refused("the disk is full"),
        "unknown": queue.unknown,
        "expired": lambda: queue.expired(21 * S, 10 * S),
    }[how]()
    assert len(given_up) == PUBLISHER_NUMBERS_KEPT
    assert pending.size_bytes == queue.size_bytes == 0
    assert queue.take(numbered) == []


def started() -> tuple[Cluster, str]:
    """A cluster, and a member that does not coordinate `SUBJECT`, with session 1."""
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    coordinator = cluster.coordinator(cluster.group(SUBJECT))
    contact = next(name for name in cluster.names if name != coordinator)
    cluster.open(contact, 1)
    return cluster, contact


def test_a_cluster_joins_what_comes_while_a_group_is_busy() -> None:
    cluster, contact = started()
    for number in range(1, 11):
        cluster.publish(contact, 1, SUBJECT, str(number))
    statuses = cluster.members[contact].statuses
    cluster.until(lambda: len(statuses) == 10)
    assert [(status.id, status.seq) for status in statuses] == [(str(n), n) for n in range(1, 11)]
    log = cluster.statistics(contact).groups[cluster.group(SUBJECT)]
    assert [(run.first, run.count) for run in log.runs] == [(1, 1), (2, 9)]


def test_what_was_given_up_makes_way_for_what_waits_behind_it() -> None:
    cluster, contact = started()
    cluster.publish(contact, 1, SUBJECT, "1")
    cluster.heap.now += 5 * S
    cluster.publish(contact, 1, SUBJECT, "2")
    cluster.heap.now += 6 * S
    outputs = cluster.feed(contact, TimerDue(TICK))
    (status,) = cluster.members[contact].statuses
    assert (status.id, status.status) == ("1", StatusName.PUBLISH_FAILED)
    sent = [output.message for output in outputs if isinstance(output, SendPeer)]
    (forward,) = [message for message in sent if isinstance(message, Forward)]
    assert [(item.first, len(item.publications)) for item in forward.items] == [(2, 1)]


def test_publications_that_wait_in_a_group_are_bounded_by_number() -> None:
    queue = GroupQueue(PendingPublications(NAME))
    refused = queue.take([proposal(b"")] * (PENDING_PER_GROUP_MAX + 2))
    assert [one.reason for one in refused] == ["too many publications wait here"] * 2
    assert len(queue.proposals) == PENDING_PER_GROUP_MAX


def test_as_many_numbers_of_a_session_wait_as_are_kept_and_not_one_more() -> None:
    queue = GroupQueue(PendingPublications(NAME, numbers_max=3))
    numbered = [
        Proposal(Origin(1, None, None), Publication(SUBJECT, b"", publisher="p", number=number))
        for number in range(1, 6)
    ]
    assert len(queue.take(numbered)) == 2
    assert len(queue.proposals) == 3
