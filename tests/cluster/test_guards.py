"""A member counts what it refuses."""

import random

from mdserver.cluster.coordinator import Coordinator
from mdserver.cluster.guards import Guard
from mdserver.cluster.log import GroupLog
from mdserver.cluster.messages import (
    Accept,
    AcceptItem,
    AnyPeerMessage,
    CopyItem,
    CopyReply,
    HandOver,
    Hello,
    PeerReceived,
    PeerUp,
    Prepare,
    PrepareItem,
    Promise,
    PromiseItem,
    Sync,
    SyncItem,
    SyncRequest,
    SyncRequestItem,
)
from mdserver.cluster.node import Node
from mdserver.cluster.settings import ClusterSettings
from mdserver.core.message import Entry, Publication
from mdserver.core.settings import BrokerSettings
from simulation.cluster import Cluster


def test_a_refused_prepare_is_counted() -> None:
    cluster = ClusterSettings("a:1", ("a:1", "b:1", "c:1"), client="a:2")
    settings = BrokerSettings(member="a", groups=1, publisher_secret=b"secret")
    node = Node(settings, random.Random(1), cluster)
    node.step(PeerUp("b:1"), 1)
    assert not any(node.refused.values())

    hello = Hello(1, False, "b:2", {}, (), 1, "b")
    node.step(PeerReceived("b:1", [hello, Prepare([PrepareItem(0, 1, 0, "")], {}, False)]), 2)

    assert {guard for guard, count in node.refused.items() if count} == {Guard.PREPARE_NOT_VOTING}


# What no plan of the simulator brings about: messages that a member is handed as they are


def refused(cluster: Cluster, name: str, peer: str, *messages: AnyPeerMessage) -> set[Guard]:
    """Return which guards of a member refuse something of these messages of another one."""
    node = cluster.members[name].running
    before = node.refused
    cluster.feed(name, PeerReceived(peer, list(messages)))
    return {guard for guard, count in node.refused.items() if count > before[guard]}


def published(count: int = 3) -> tuple[Cluster, str, list[str]]:
    """Return a cluster with one committed message, its coordinator and the other members."""
    cluster = Cluster(count, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    coordinator = cluster.coordinator(0)
    assert coordinator is not None
    cluster.open(coordinator, 1)
    cluster.publish(coordinator, 1, "/s/0", "a")
    cluster.until(lambda: all(committed(cluster, name) for name in cluster.names))
    return cluster, coordinator, [name for name in cluster.names if name != coordinator]


def committed(cluster: Cluster, name: str) -> int:
    return cluster.statistics(name).groups[0].committed


def test_a_log_that_lacks_what_is_committed_is_refused() -> None:
    cluster, coordinator, (seed, _) = published()
    group = cluster.statistics(seed).groups[0]
    empty = SyncItem(
        0,
        group.epoch + 1,
        group.history,
        0,
        [],
        [],
        0,
        active=True,
        cold=False,
        register=0,
        state=None,
    )

    assert refused(cluster, seed, coordinator, Sync([empty])) == {Guard.LOG_LACKS_COMMITTED}

    assert committed(cluster, seed) == group.committed
    assert cluster.statistics(seed).groups[0].log_epoch == group.epoch


def test_a_cold_start_that_a_seed_did_not_promise_is_refused() -> None:
    cluster, coordinator, (seed, _) = published()
    group = cluster.statistics(seed).groups[0]
    cold = SyncItem(
        0,
        group.epoch + 1,
        "another",
        0,
        [],
        [],
        0,
        active=False,
        cold=True,
        register=0,
        state=None,
    )

    assert refused(cluster, seed, coordinator, Sync([cold])) == {Guard.LOG_COLD_UNPROMISED}

    assert cluster.statistics(seed).groups[0].history == group.history


def test_entries_are_refused_by_a_seed_that_lost_its_record() -> None:
    cluster, coordinator, (seed, other) = published()
    group = cluster.statistics(seed).groups[0]
    later = cluster.statistics(seed).incarnation + 1
    cluster.feed(seed, PeerReceived(other, [Hello(9, True, "c", {seed: later})]))
    assert cluster.statistics(seed).record_lost
    entry = Entry(group.epoch, 2, Publication("/s/0", b"b"), group.length + 1)
    accept = Accept([AcceptItem(0, group.epoch, group.length, group.length, [entry], [])])

    assert refused(cluster, seed, coordinator, accept) == {Guard.ENTRIES_NOT_VOTING}

    assert cluster.statistics(seed).groups[0].length == group.length


def test_a_seed_that_promised_a_newer_epoch_has_its_coordinator_elected_anew() -> None:
    cluster, coordinator, (seed, _) = published()
    group = cluster.statistics(coordinator).groups[0]
    item = SyncRequestItem(0, 0, group.history, group.epoch + 5, True)

    found = refused(cluster, coordinator, seed, SyncRequest(2, True, False, [item]))

    assert Guard.SEED_PROMISED_NEWER in found
    assert cluster.statistics(coordinator).groups[0].own_epoch > group.epoch + 5


def test_a_copy_older_than_what_is_here_changes_nothing() -> None:
    cluster, _, others = published(4)
    learner = cluster.names[3]
    source = next(name for name in others if name != learner)
    group = cluster.statistics(learner).groups[0]
    older = CopyItem(
        0,
        group.epoch,
        group.history,
        0,
        [],
        [],
        0,
        active=False,
        cold=False,
        register=0,
        state=cluster.members[source].running.groups[0].state.export(),
    )

    assert refused(cluster, learner, source, CopyReply([older])) == {Guard.COPY_OLDER}

    assert cluster.statistics(learner).groups[0].committed == group.committed


def test_a_best_log_that_lacks_its_beginning_is_not_adopted() -> None:
    """A candidate that is no seed takes a log under another history id after it asked."""
    cluster, coordinator, others = published(4)
    name = cluster.names[3]
    if coordinator == name:
        cluster.operate(name, "drain", name)
        cluster.until(lambda: cluster.coordinator(0) in others)
        coordinator = str(cluster.coordinator(0))
    group = cluster.statistics(name).groups[0]
    cluster.loss = {(name, other) for other in cluster.names}
    cluster.feed(name, PeerReceived(coordinator, [HandOver([0])]))
    epoch = cluster.statistics(name).groups[0].own_epoch
    assert epoch > group.epoch
    renewed = SyncItem(
        0,
        group.epoch,
        "another",
        0,
        [],
        [],
        0,
        active=False,
        cold=False,
        register=0,
        state=None,
    )
    cluster.feed(name, PeerReceived(coordinator, [Sync([renewed])]))
    item = PromiseItem(0, epoch, group.epoch, 1, 1, group.history, 1, [], [], None)
    for seed in cluster.names[:2]:
        promised = refused(cluster, name, seed, Promise(1, {}, [item]))

    assert promised == {Guard.ELECTED_LACKS_BEGINNING}
    assert cluster.statistics(name).groups[0].history == "another"
    assert not cluster.statistics(name).groups[0].own_epoch


def candidate(**readmit: int) -> Coordinator:
    """Return a candidate of epoch 7 among three seeds, at the point of asking for promises."""
    made = Coordinator(0, 7, GroupLog(10), ("a", "b", "c"), 0)
    made.readmit = readmit
    made.prepare_at_once()
    return made


def promise(length: int = 0) -> PromiseItem:
    return PromiseItem(0, 7, 1, length, 0, "h", 0, [], [], None, False)


def test_a_promise_of_an_incarnation_that_was_lost_does_not_count() -> None:
    made = candidate()
    made.promised("a", 1, {}, promise())

    assert made.promised("b", 1, {"a": 2}, promise()) is None

    assert made.refusals.counts[Guard.PROMISE_LOST] == 1
    assert made.promised("c", 1, {}, promise()) is not None
    assert set(made.incarnations) == {"b", "c"}


def test_the_promise_of_the_seed_that_is_taken_back_does_not_count() -> None:
    made = candidate(a=5)
    made.promised("a", 5, {}, promise(9))

    assert made.promised("b", 1, {}, promise()) is None

    best = made.promised("c", 1, {}, promise(3))
    assert best is not None
    assert best.length == 3


def test_pre_votes_and_promises_of_a_member_that_is_no_seed_do_not_count() -> None:
    asking = Coordinator(0, 7, GroupLog(10), ("a", "b", "c"), 0)
    assert not asking.pre_voted("a")

    assert not asking.pre_voted("d")

    assert asking.refusals.counts[Guard.VOTE_OF_NO_SEED] == 1
    assert asking.pre_voted("b")
    asking.promised("a", 1, {}, promise())
    assert asking.promised("d", 1, {"b": 9}, promise(9)) is None
    assert asking.refusals.counts[Guard.VOTE_OF_NO_SEED] == 2
    best = asking.promised("b", 1, {}, promise(3))
    assert best is not None, "what a stranger says of incarnations does not count either"
    assert best.length == 3


def active() -> Coordinator:
    """Return the coordinator of epoch 7, established, that heard of incarnation 4 of seed c."""
    made = candidate()
    made.promised("a", 1, {}, promise())
    made.promised("b", 1, {"c": 4}, promise())
    made.adopted()
    made.ack("a", 1, 0)
    made.ack("b", 1, 0)
    return made


def test_an_incarnation_that_was_lost_is_not_registered() -> None:
    made = active()

    assert not made.may_register("c", 3, True, {})

    assert made.refusals.counts[Guard.REGISTER_INCARNATION] == 1
    assert made.may_register("c", 4, True, {})


def test_an_ack_of_an_older_incarnation_does_not_count() -> None:
    made = active()
    made.log.number(7, [Publication("/s/0", b"a")], None)
    made.register("b", 2)

    assert made.ack("a", 1, 1) is None
    assert made.ack("b", 1, 1) is None

    assert made.refusals.counts[Guard.ACK_INCARNATION] == 1
    assert made.ack("b", 2, 1) == 1


def test_more_open_numbers_than_are_kept_are_refused() -> None:
    made = active()
    made.log.numbers_kept = 2
    coming = [Publication("/s/0", b"", publisher="p", number=n) for n in (1, 2, 3)]

    answers = made.append(coming, "m#1", 1)

    assert [answer.ticket for answer in answers] == [3]
    assert made.refusals.counts[Guard.NUMBERS_OPEN] == 1
    assert made.log.length == 2
