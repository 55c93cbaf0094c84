"""What a seed promises, takes and acks, and what a learner takes, each rule by itself."""

from typing import Any

import msgspec

from mdserver.cluster.guards import Guard
from mdserver.cluster.log import Run
from mdserver.cluster.messages import (
    Accept,
    AcceptItem,
    Ack,
    CopyItem,
    CopyReply,
    Forward,
    LedGroup,
    PeerReceived,
    Prepare,
    PrepareItem,
    Promise,
    Sync,
    SyncItem,
    SyncRequest,
)
from mdserver.cluster.pending import contact_name
from mdserver.cluster.wal import WalLog, WriteWal
from mdserver.core.events import Status, StatusName
from mdserver.core.message import Entry, Publication
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster
from tests.cluster.test_guards import committed, published, refused
from tests.cluster.test_learner import Group
from tests.cluster.test_membership import heartbeat
from tests.cluster.test_rules import Recorded, supported
from tests.cluster.test_rules_of_candidates import told

# Promises


def promise_of(cluster: Recorded, seed: str, candidate: str, **ballot: Any) -> tuple[Promise, Any]:
    """Return what a seed promises a candidate of the next epoch."""
    epoch = cluster.statistics(seed).groups[0].epoch
    asked = msgspec.structs.replace(PrepareItem(0, epoch + 1, 0, ""), **ballot)
    cluster.feed(seed, PeerReceived(candidate, [Prepare([asked], {}, False)]))
    cluster.run(20 * MS)
    (promise,) = (
        message
        for name, to, message in cluster.sent_messages
        if (name, to) == (seed, candidate) and isinstance(message, Promise)
    )
    return promise, promise.items[0]


def recorded() -> tuple[Recorded, str, str]:
    """Return a cluster with a committed message, and two seeds that do not coordinate."""
    cluster = Recorded(3, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    coordinator = str(cluster.coordinator(0))
    cluster.open(coordinator, 1)
    cluster.publish(coordinator, 1, "/s/0", "a")
    cluster.until(lambda: all(committed(cluster, name) for name in cluster.names))
    cluster.run(3 * S)
    cluster.sent_messages.clear()
    seed, candidate = (name for name in cluster.names if name != coordinator)
    return cluster, seed, candidate


def test_a_promise_says_which_log_it_is_about_and_which_incarnations_are_over() -> None:
    cluster, seed, candidate = recorded()
    epoch = cluster.statistics(seed).groups[0].epoch
    promise, item = promise_of(cluster, seed, candidate)
    assert promise.known == {name: 1 for name in cluster.names if name != seed}
    assert (item.epoch, item.accepted, item.length) == (epoch + 1, epoch, 1)
    assert not item.unverified


def test_a_promise_has_the_whole_log_for_a_candidate_of_another_history() -> None:
    cluster, seed, candidate = recorded()
    _, item = promise_of(cluster, seed, candidate, committed=1, history="another")
    assert (item.start, len(item.entries)) == (0, 1)


def test_a_promise_leaves_out_what_the_candidate_has() -> None:
    cluster, seed, candidate = recorded()
    history = cluster.statistics(seed).groups[0].history
    _, item = promise_of(cluster, seed, candidate, committed=1, history=history)
    assert (item.start, item.entries) == (1, [])


def test_a_promise_says_that_its_log_may_be_an_older_copy() -> None:
    cluster, seed, candidate = recorded()
    acceptor = cluster.members[seed].running.groups[0].acceptor
    assert acceptor is not None
    acceptor.unverified = True
    _, item = promise_of(cluster, seed, candidate)
    assert item.unverified


def test_no_seed_supports_a_candidate_while_it_sees_the_coordinator() -> None:
    cluster, seed, candidate = recorded()
    epoch = cluster.statistics(seed).groups[0].epoch
    assert cluster.members[seed].running.groups[0].led
    assert supported(cluster, seed, candidate, epoch + 1) == []


def test_a_seed_that_has_not_heard_every_other_promises_no_cold_start() -> None:
    cluster = Cluster(3, groups=1)
    cluster.start("m1:1", "m2:1")
    cluster.run(S)
    prepare = Prepare([PrepareItem(0, 1, 0, "")], {}, True)
    assert refused(cluster, "m1:1", "m2:1", prepare) == {Guard.PREPARE_COLD_EARLY}
    assert cluster.members["m1:1"].running.groups[0].promised_epoch == 0


# A coordinator's log


def test_the_tail_of_another_epoch_is_no_beginning_of_a_log() -> None:
    group = Group()
    group.say(group.accept(1, "two"))
    group.say(group.sync(2, "three", epoch=group.epoch + 1, committed=1))
    assert (group.held.log_epoch, group.held.length) == (group.epoch, 2)


def test_of_a_log_only_what_its_coordinator_committed_is() -> None:
    group = Group()
    group.say(group.sync(1, "two", "three", epoch=group.epoch + 1, committed=2))
    assert (group.held.length, group.held.committed) == (3, 2)


def test_the_first_ack_of_an_epoch_waits_for_the_vote_file() -> None:
    group = Group()
    said = group.say(group.sync(1, "two", epoch=group.epoch + 1, committed=1))
    assert group.held.length == 2
    assert [message for message in said if isinstance(message, Ack)] == []


def test_a_state_that_covers_no_more_than_is_committed_replaces_nothing() -> None:
    group = Group()
    here = group.cluster.members[group.seed].running.groups[group.index]
    sync = group.sync(1, epoch=group.epoch + 1, committed=1)
    item = msgspec.structs.replace(sync.items[0], state=here.state.export())
    group.say(msgspec.structs.replace(sync, items=[item]))
    assert group.held.log_epoch == group.epoch + 1
    assert (here.log.base, len(here.log.entries)) == (0, 1)


def test_a_log_from_the_disk_is_compared_although_it_seems_whole() -> None:
    group = Group()
    acceptor = group.cluster.members[group.seed].running.groups[group.index].acceptor
    assert acceptor is not None

    def asked() -> list[Any]:
        leads = [LedGroup(group.index, group.epoch, 1, 1)]
        said = group.say(heartbeat(leads=leads))
        return [one for one in said if isinstance(one, SyncRequest)]

    assert asked() == []
    acceptor.unverified = True
    assert len(asked()) == 1
    assert acceptor.unverified


def test_a_seed_whose_disk_is_far_behind_takes_no_entries() -> None:
    cluster = Cluster(3, groups=1, writes_wal=True, acks_wait_for_wal=True, behind_bytes=10)
    cluster.start()
    cluster.until(cluster.ready)
    coordinator = str(cluster.coordinator(0))
    seed = next(name for name in cluster.names if name != coordinator)
    cluster.run(S)
    cluster.disk_delays[seed] = 10 * S
    epoch = cluster.statistics(seed).groups[0].epoch

    def accept(place: int) -> Accept:
        entry = Entry(epoch, place, Publication("/s/0", b"x" * 50), place)
        return Accept([AcceptItem(0, epoch, place - 1, 0, [entry], [])])

    assert refused(cluster, seed, coordinator, accept(1)) == {Guard.ACK_UNSYNCED}
    assert refused(cluster, seed, coordinator, accept(2)) == {Guard.ENTRIES_DISK_BEHIND}
    assert cluster.statistics(seed).groups[0].length == 1


def test_a_log_is_written_down_with_what_is_committed_and_no_more() -> None:
    cluster = Cluster(3, groups=1, writes_wal=True, acks_wait_for_wal=True)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(S)
    coordinator = str(cluster.coordinator(0))
    seed = next(name for name in cluster.names if name != coordinator)
    held = cluster.statistics(seed).groups[0]
    epoch = held.epoch + 1
    entry = Entry(epoch, 1, Publication("/s/0", b"x"), 1)
    more: dict[str, Any] = {"active": False, "cold": False, "register": 0, "state": None}
    item = SyncItem(0, epoch, held.history, 0, [entry], [], 0, **more)
    outputs = cluster.feed(seed, PeerReceived(coordinator, [Sync([item])]))
    (write,) = (output for output in outputs if isinstance(output, WriteWal))
    (log,) = (one for one in write.entries if isinstance(one, WalLog))
    assert (log.epoch, len(log.entries), log.committed) == (epoch, 1, 0)


# What contacts forward


def test_what_a_lost_link_carried_is_forwarded_again_over_the_next_one() -> None:
    cluster, coordinator, (contact, _) = published()
    cluster.run(S)
    cluster.open(contact, 7)
    cluster.loss.add((contact, coordinator))
    cluster.publish(contact, 7, "/s/0", "again")
    cluster.run(5 * MS)
    cluster.disconnect(contact, coordinator)
    cluster.loss.clear()
    cluster.connect(contact, coordinator)
    cluster.until(lambda: bool(results(cluster, contact, "again")))
    assert [one.status for one in results(cluster, contact, "again")] == [StatusName.PUBLISH_OK]
    assert cluster.coordinator(0) == coordinator


def results(cluster: Cluster, name: str, command: str) -> list[Status]:
    return [status for status in cluster.members[name].statuses if status.id == command]


def test_what_stands_in_the_tail_of_a_new_log_is_not_forwarded_again() -> None:
    cluster, coordinator, (contact, other) = published()
    cluster.run(S)
    cluster.open(contact, 7)
    cluster.loss.add((contact, coordinator))
    cluster.publish(contact, 7, "/s/0", "b")
    group = cluster.members[contact].running.groups[0]
    ticket = group.queue.next_ticket - 1
    epoch = group.log.epoch + 1
    entry = Entry(epoch, 2, Publication("/s/0", b"b"), 2)
    more: dict[str, Any] = {"active": True, "cold": False, "register": 0, "state": None}

    def forwarded(contact_name: str) -> int:
        nonlocal epoch
        runs = [Run(1, 1, contact_name, ticket)]
        item = SyncItem(0, epoch, group.history, 1, [entry], runs, 1, **more)
        epoch += 1
        said = told(cluster, contact, other, Sync([item]))
        return sum(isinstance(message, Forward) for message in said)

    start = cluster.members[contact].running.storage.start
    assert forwarded(contact_name(contact, 1, start)) == 0
    assert forwarded(contact_name(contact, 1, start + 1)) == 1, "that is another start's"


def test_publishers_whose_publications_a_state_may_cover_are_told_so() -> None:
    cluster, coordinator, (contact, other) = published()
    cluster.run(S)
    cluster.open(contact, 7)
    cluster.loss |= {(contact, coordinator), (coordinator, contact)}
    cluster.publish(contact, 7, "/s/0", "b")
    cluster.publish(coordinator, 1, "/s/0", "c")
    cluster.run(100 * MS)
    held = cluster.members[coordinator].running.groups[0]
    state = held.state.export()
    more: dict[str, Any] = {"active": True, "cold": False, "register": 0, "state": state}
    item = SyncItem(0, held.log.epoch + 1, held.history, 2, [], [], 2, **more)
    assert results(cluster, contact, "b") == []
    told(cluster, contact, other, Sync([item]))
    (result,) = results(cluster, contact, "b")
    assert (result.status, result.certain) == (StatusName.PUBLISH_FAILED, False)


def test_a_new_coordinator_is_asked_at_once() -> None:
    cluster, _, (name, _) = published()
    group = cluster.members[name].running.groups[0]
    group.transfer.requested_until = 0
    assert group.transfer.may_request(5)
    assert not group.transfer.may_request(5)
    assert group.transfer.may_request(6)


# Copies


def test_a_copy_of_another_history_is_not_taken() -> None:
    cluster, _, others = published(4)
    learner = "m4:1"
    source = next(name for name in others if name != learner)
    group = cluster.members[learner].running.groups[0]
    if group.coordinator is not None:
        cluster.operate("m1:1", "drain", learner)
        cluster.until(lambda: group.coordinator is None)
    state = cluster.members[source].running.groups[0].state.export()
    more: dict[str, Any] = {"active": False, "cold": False, "register": 0, "state": state}
    copy = CopyItem(0, group.log.epoch, "another", 9, [], [], 9, **more)
    assert refused(cluster, learner, source, CopyReply([copy])) == {Guard.COPY_OLDER}
    assert group.log.committed == 1


def test_a_member_is_asked_for_a_copy_once_in_an_epoch() -> None:
    cluster = Cluster(5, groups=1, seed_count=3, log_kept=2)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(S)
    node = cluster.members["m5:1"].running
    group = node.groups[0]
    copying = node.mode._learner.copying  # type: ignore[attr-defined]
    epoch = group.log.epoch + 1
    group.transfer.requested_until = 0
    assert copying.ask("m1:1", {0: (epoch, 100)}) == {}
    group.transfer.requested_until = 0
    assert copying.ask("m1:1", {0: (epoch, 100)}) == {0: epoch}
