"""Publishers that send more numbers than they may have without a result."""

import pytest

from mdserver.cluster.coordinator import Coordinator
from mdserver.cluster.log import GroupLog, Run
from mdserver.cluster.pending import GroupQueue, PendingPublications
from mdserver.core.events import Status, StatusName
from mdserver.core.message import Entry, Publication
from mdserver.core.proposal import Origin, Proposal
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

KEPT = 4


def proposals(session: int, first: int, count: int, publisher: str = "p") -> list[Proposal]:
    return [
        Proposal(
            Origin(session, None, number),
            Publication("/a/b", b"", publisher=publisher, number=number, time=10 * S),
        )
        for number in range(first, first + count)
    ]


def test_a_contact_takes_so_many_numbers_of_a_session_and_refuses_the_rest_for_certain() -> None:
    pending = PendingPublications("m1:1#1", KEPT)
    queue, other = GroupQueue(pending), GroupQueue(pending)
    refused = queue.take(proposals(1, 1, 6))
    assert [(outcome.origin.id, outcome.certain) for outcome in refused] == [(5, True), (6, True)]
    assert "4 numbers of this publisher have no result yet" in (refused[0].reason or "")
    assert other.take(proposals(1, 1, KEPT)) == []  # another group
    assert queue.take(proposals(2, 1, KEPT)) == []  # another session
    unnumbered = Proposal(Origin(1, None, None), Publication("/a/b", b"", time=10 * S))
    assert queue.take([unnumbered] * 20) == []


def test_a_contact_takes_more_once_there_are_results() -> None:
    queue = GroupQueue(PendingPublications("m1:1#1", KEPT))
    queue.take(proposals(1, 1, KEPT))
    row = queue.unsent()
    assert row is not None
    entries = [Entry(1, seq, publication) for seq, publication in enumerate(row[1][:2], 1)]
    assert len(queue.committed(0, entries, Run(0, 2, "m1:1#1", row[0]))) == 2
    refused = queue.take(proposals(1, 5, 3))
    assert [outcome.origin.id for outcome in refused] == [7]
    assert len(queue.expired(100 * S, 10 * S)) == KEPT
    assert queue.take(proposals(1, 7, KEPT)) == []


def test_a_coordinator_counts_what_came_through_all_members() -> None:
    log = GroupLog(10, KEPT)
    coordinator = Coordinator(0, 1, log, ("a", "b", "c"), 0)
    coordinator.assume()
    first = [proposal.publication for proposal in proposals(1, 1, 3)]
    assert coordinator.append(first, "a", 1) == []
    more = [proposal.publication for proposal in proposals(1, 3, 4)]  # the third one once more
    answers = coordinator.append(more, "b", 1)
    assert log.length == KEPT
    assert [(answer.ticket, answer.reason is None, answer.expected) for answer in answers] == [
        (3, False, 5),
    ]
    assert [(at, held.ticket, held.expected) for at, _, held in coordinator.deferred] == [
        (3, 1, None),
        (4, 4, 5),
    ], "the repeat and the gap"
    assert coordinator.append([Publication("/a/b", b"")] * 20, "a", 4) == []
    assert coordinator.append([p.publication for p in proposals(1, 1, 9, "q")], "a", 24)
    log.commit(1)
    assert coordinator.append(more[2:3], "b", 5) == []
    assert log.entries[-1].publication.number == 5


@pytest.mark.parametrize("crash", [False, True])
def test_nothing_of_a_burst_is_taken_out_of_order(crash: bool) -> None:
    """What is acknowledged is the beginning of it, in order, although the coordinator may go."""
    cluster = Cluster(3, groups=1, numbers_kept=KEPT)
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    leader = cluster.coordinator(0)
    contact = next(name for name in cluster.names if name != leader)
    cluster.open(contact, 1, publisher="p")
    for number in range(1, 31):
        cluster.publish(contact, 1, "/a/b", str(number), number=number)
    if crash:
        assert leader is not None
        cluster.kill(leader)

    def told() -> dict[object, Status]:
        return {
            status.id: status
            for status in cluster.members[contact].statuses
            if status.status in (StatusName.PUBLISH_OK, StatusName.PUBLISH_FAILED)
        }

    cluster.until(lambda: len(told()) == 30)
    taken = [name for name, status in told().items() if status.status is StatusName.PUBLISH_OK]
    refused = [status for status in told().values() if status.status is StatusName.PUBLISH_FAILED]
    assert len(taken) >= KEPT
    assert len(refused) > KEPT
    assert all(status.certain for status in refused)
    assert cluster.statistics(contact).groups[0].publishers["p"] == len(taken)
