"""What a candidate and a coordinator count, each rule by itself."""

from typing import Any

import msgspec

from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.guards import Guard
from mdserver.cluster.log import GroupLog
from mdserver.cluster.messages import (
    Ack,
    AckItem,
    HandOver,
    Hello,
    Nack,
    NackItem,
    PeerReceived,
    Prepare,
    PreVote,
    PreVoteGranted,
    PreVoteGrantedItem,
    Promise,
    PromiseItem,
    SendPeer,
    Sync,
    SyncItem,
    SyncRequest,
    SyncRequestItem,
)
from mdserver.cluster.wal import WalLog
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import WAL, Cluster
from tests.cluster.test_guards import committed, published, refused
from tests.cluster.test_rules import SEEDS, Recorded, active, numbered


def empty(epoch: int, **more: Any) -> PromiseItem:
    """Return a promise of a seed with an empty log."""
    return msgspec.structs.replace(PromiseItem(0, epoch, 0, 0, 0, "", 0, [], [], None), **more)


def preparing(**more: Any) -> Coordinator:
    """Return the candidate of epoch 7 that waits for promises."""
    made = Coordinator(0, 7, GroupLog(10), SEEDS, 0)
    made.prepare_at_once()
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_cold_start_needs_the_promise_of_every_seed() -> None:
    one = preparing(needed=3)
    assert one.promised("m1:1", 1, {}, empty(7)) is None
    assert one.promised("m2:1", 1, {}, empty(7)) is None
    assert one.promised("m3:1", 1, {}, empty(7)) is not None


def test_a_candidate_that_is_a_seed_waits_for_its_own_promise() -> None:
    one = preparing(own="m1:1")
    assert one.promised("m2:1", 1, {}, empty(7)) is None
    assert one.promised("m3:1", 1, {}, empty(7)) is None
    assert one.promised("m1:1", 1, {}, empty(7)) is not None


def test_a_log_is_active_once_a_majority_holds_all_of_it() -> None:
    one = Coordinator(0, 7, GroupLog(10), SEEDS, 0)
    one.log.number(6, [numbered(1), numbered(2)], None)
    one.state = CoordinatorState.SYNCING
    one.adopted()
    one.incarnations = {"m1:1": 1, "m2:1": 1}
    one.ack("m1:1", 1, 2)
    one.ack("m2:1", 1, 1)
    assert one.state is CoordinatorState.SYNCING
    one.ack("m2:1", 1, 2)
    assert one.state is CoordinatorState.ACTIVE


def test_what_an_earlier_incarnation_acked_is_forgotten() -> None:
    one = active()
    one.append([numbered(1)], "m1:1", 1)
    one.ack("m2:1", 1, 1)
    one.register("m2:1", 2)
    assert one.ack("m1:1", 1, 1) is None, "only one seed holds it for certain"
    assert one.ack("m2:1", 2, 1) == 1


def test_each_repeat_is_answered_with_its_own_commit() -> None:
    one = active()
    for number in (1, 2):
        one.append([numbered(number)], "m1:1", number)
        one.append([numbered(number)], "m2:1", number + 4)
    answered = []
    for length in (1, 2):
        one.log.commit(length)
        answered.append([answer.seq for _, answer in one.due()])
    assert answered == [[1], [2]]


def test_a_seed_that_started_with_less_than_it_acked_is_noticed() -> None:
    one = active()
    one.append([numbered(1)], "m1:1", 1)
    one.ack("m2:1", 1, 1)
    assert not one.holds_less("m2:1", 1, 7, 0), "within one incarnation nothing is lost"
    assert one.holds_less("m2:1", 2, 7, 0)
    assert one.holds_less("m2:1", 2, 6, 9)
    assert not one.holds_less("m2:1", 2, 7, 1)


def test_a_seed_is_to_be_taken_back_until_it_is() -> None:
    one = active()
    one.readmit = {"m3:1": 4}
    assert one.unregistered() == {"m3:1": 4}
    one.register("m3:1", 4)
    assert one.unregistered() == {}


def test_other_content_at_the_last_committed_place_is_missing_here() -> None:
    one = active()
    one.append([numbered(1)], "m1:1", 1)
    one.log.commit(1)
    here = one.log.checksum_at(0)
    assert not one.lacking(7, 1, here)
    assert not one.lacking(7, 1, 0), "it is not known"
    assert one.lacking(7, 1, here + 1)


# In a cluster, by messages


def candidate() -> tuple[Cluster, str, int]:
    """Return a cluster with one committed message, a learner that stands, and its epoch."""
    cluster, coordinator, _ = published(4)
    if coordinator == "m4:1":
        cluster.operate("m1:1", "drain", "m4:1")
        cluster.until(lambda: cluster.coordinator(0) not in (None, "m4:1"))
    cluster.run(S)
    node = cluster.members["m4:1"].running
    for name in cluster.names:
        cluster.loss |= {("m4:1", name), (name, "m4:1")}
    node._election.force([0])
    told(cluster, "m4:1", "m1:1")  # a step, so that its PREPARE is out
    coordinator_here = node.groups[0].coordinator
    assert coordinator_here is not None
    return cluster, "m4:1", coordinator_here.epoch


def told(cluster: Cluster, name: str, peer: str, *messages: Any) -> list[Any]:
    """Return what a member sends when it takes messages."""
    outputs = cluster.feed(name, PeerReceived(peer, list(messages)))
    return [output.message for output in outputs if isinstance(output, SendPeer)]


def test_promises_of_another_epoch_elect_nobody() -> None:
    cluster, name, epoch = candidate()
    for seed in ("m1:1", "m2:1"):
        late = Promise(1, {}, [empty(epoch - 1)])
        assert Guard.PROMISE_LATE in refused(cluster, name, seed, late)
    coordinator = cluster.members[name].running.groups[0].coordinator
    assert coordinator is not None
    assert (coordinator.state, coordinator.promises) == (CoordinatorState.PREPARING, {})


def test_a_best_log_without_what_is_committed_here_is_not_adopted() -> None:
    cluster, name, epoch = candidate()
    history = cluster.members[name].running.groups[0].history
    less = Promise(1, {}, [empty(epoch, history=history, accepted=epoch - 1)])
    found = refused(cluster, name, "m1:1", less) | refused(cluster, name, "m2:1", less)
    assert Guard.ELECTED_LACKS_COMMITTED in found
    assert cluster.members[name].running.groups[0].log.epoch < epoch
    assert committed(cluster, name) == 1


def test_a_state_that_covers_no_more_than_is_committed_here_replaces_nothing() -> None:
    cluster, name, epoch = candidate()
    group = cluster.members[name].running.groups[0]
    state = cluster.members["m1:1"].running.groups[0].state.export()
    item = empty(epoch, history=group.history, accepted=epoch - 1, length=1, committed=1, start=1)
    promise = Promise(1, {}, [msgspec.structs.replace(item, state=state)])
    told(cluster, name, "m1:1", promise)
    told(cluster, name, "m2:1", promise)
    assert group.log.epoch == epoch
    assert (group.log.base, len(group.log.entries)) == (0, 1)


def test_a_best_log_of_another_history_goes_on_under_its_id() -> None:
    cluster, name, epoch = candidate()
    for seed in ("m1:1", "m2:1"):
        told(cluster, name, seed, Promise(1, {}, [empty(epoch, history="f" * 28, accepted=1)]))
    group = cluster.members[name].running.groups[0]
    assert (group.history, group.log.epoch) == ("f" * 28, epoch)


def test_a_candidate_gives_way_to_a_newer_epoch_of_another() -> None:
    cluster, name, epoch = candidate()
    group = cluster.members[name].running.groups[0]
    cluster.feed(name, PeerReceived("m1:1", [Nack([NackItem(0, epoch, epoch, name)])]))
    assert group.coordinator is not None, "that is this very epoch"
    cluster.feed(name, PeerReceived("m1:1", [Nack([NackItem(0, epoch, epoch - 1, "m2:1")])]))
    assert group.coordinator is not None, "that is an older one"
    cluster.feed(name, PeerReceived("m1:1", [Nack([NackItem(0, epoch, epoch + 1, "m2:1")])]))
    assert group.coordinator is None
    assert group.ballots.newest_epoch == epoch + 1


def test_a_coordinator_gives_way_to_a_newer_epoch_of_its_own_that_it_forgot() -> None:
    """Its disk was put back: members that follow the newer epoch take nothing of this one."""
    cluster, coordinator, (seed, _) = published()
    epoch = cluster.statistics(coordinator).groups[0].own_epoch
    nack = Nack([NackItem(0, epoch, epoch + 9, coordinator)])

    cluster.feed(coordinator, PeerReceived(seed, [nack]))

    assert not cluster.statistics(coordinator).groups[0].own_epoch
    cluster.until(lambda: cluster.coordinator(0) is not None)
    cluster.run(S)
    epochs = [member.running.groups[0].log.epoch for member in cluster.members.values()]
    assert min(epochs) > epoch


def test_pre_votes_of_another_epoch_do_not_count() -> None:
    cluster, name, _ = candidate()
    node = cluster.members[name].running
    node._election.pre_vote([0])
    coordinator = node.groups[0].coordinator
    assert coordinator is not None
    epoch = coordinator.epoch

    def granted(of: int) -> list[Any]:
        ballots = [PreVoteGrantedItem(0, of, 0, "")]
        said = [told(cluster, name, seed, PreVoteGranted(ballots)) for seed in ("m1:1", "m2:1")]
        return [one for messages in said for one in messages if isinstance(one, Prepare)]

    assert granted(epoch - 1) == []
    assert [[ballot.epoch for ballot in one.items] for one in granted(epoch)] == [[epoch]]


def test_a_hand_over_counts_from_the_coordinator_only() -> None:
    cluster, coordinator, (member, other) = published()
    cluster.run(S)

    def prepares(peer: str) -> list[Any]:
        said = told(cluster, member, peer, HandOver([0]))
        return [message for message in said if isinstance(message, Prepare)]

    assert prepares(other) == []
    assert len(prepares(coordinator)) == 1


def lose(cluster: Cluster, seed: str, peer: str) -> None:
    """Have a seed hear that others know a later start of it."""
    later = cluster.statistics(seed).incarnation + 1
    cluster.feed(seed, PeerReceived(peer, [Hello(9, True, "c", {seed: later})]))
    assert cluster.statistics(seed).record_lost


def test_a_seed_that_does_not_vote_takes_no_group_over() -> None:
    cluster, coordinator, (seed, other) = published()
    cluster.run(S)
    lose(cluster, seed, other)
    said = told(cluster, seed, coordinator, HandOver([0]))
    assert [message for message in said if isinstance(message, Prepare)] == []


def test_a_seed_that_does_not_vote_does_not_stand() -> None:
    cluster = Recorded(5, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(2 * S)
    coordinator = str(cluster.coordinator(0))
    seed, other, *_ = (name for name in cluster.names if name != coordinator)
    lose(cluster, seed, other)
    cluster.sent_messages.clear()
    cluster.kill(coordinator)
    cluster.until(lambda: cluster.coordinator(0) not in (None, coordinator))
    stood = {name for name, _, message in cluster.sent_messages if isinstance(message, PreVote)}
    assert stood
    assert seed not in stood


def test_a_seed_that_does_not_vote_has_no_turn() -> None:
    cluster, _, _ = published(5)
    cluster.run(2 * S)
    coordinator = str(cluster.coordinator(0))
    seed, other, *_ = (name for name in cluster.names if name != coordinator)
    lose(cluster, seed, other)
    cluster.kill(coordinator)
    node = cluster.members[seed].running
    for member in cluster.members.values():
        ballots = member.running.groups[0].ballots
        ballots.leaderless_since, ballots.no_vote_until, ballots.retry_at = 1, 0, 0
        member.running._election.look()
    assert node.groups[0].votable
    assert node.groups[0].coordinator is None
    running = [member.running for member in cluster.members.values()]
    assert any(member.groups[0].coordinator is not None for member in running), "others have"


def test_a_seed_that_lost_its_record_says_so_under_a_new_incarnation() -> None:
    cluster = Recorded(3, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    before = cluster.statistics("m2:1").incarnation
    cluster.sent_messages.clear()
    lose(cluster, "m2:1", "m1:1")
    cluster.run(20 * MS)
    said = {
        to: (message.incarnation > before + 1, message.admitted)
        for name, to, message in cluster.sent_messages
        if name == "m2:1" and isinstance(message, Hello)
    }
    assert said == {"m1:1": (True, False), "m3:1": (True, False)}


def test_a_seed_that_lost_its_record_comes_back_once_an_operator_says_so() -> None:
    cluster = Recorded(3, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    lose(cluster, "m2:1", "m1:1")
    cluster.run(S)
    assert cluster.statistics("m2:1").not_voting
    assert cluster.operate("m1:1", "readmit", "m2:1").refused is None
    cluster.until(lambda: not cluster.statistics("m2:1").not_voting)


def test_acks_of_an_incarnation_before_a_registration_are_refused() -> None:
    cluster, coordinator, (seed, _) = published()
    cluster.kill(seed)
    cluster.run(100 * MS)
    cluster.start(seed)
    cluster.until(cluster.ready)
    epoch = cluster.statistics(coordinator).groups[0].epoch
    assert cluster.coordinator(0) == coordinator
    assert refused(cluster, coordinator, seed, Ack(1, [AckItem(0, epoch, 1)])) == {
        Guard.ACK_INCARNATION
    }


def test_a_seed_that_says_that_it_holds_less_than_it_acked_is_told_that_it_is_older() -> None:
    cluster, coordinator, (seed, _) = published()
    group = cluster.statistics(coordinator).groups[0]
    incarnation = cluster.statistics(seed).incarnation
    item = SyncRequestItem(0, 0, group.history, group.epoch, False, group.epoch, 0)
    request = SyncRequest(incarnation + 1, True, False, [item])
    said = told(cluster, coordinator, seed, request)
    (hello,) = (message for message in said if isinstance(message, Hello))
    assert hello.known[seed] == incarnation + 2
    assert not [message for message in said if isinstance(message, Sync)]


def test_a_coordinator_stops_for_the_log_of_a_newer_epoch() -> None:
    cluster, coordinator, (other, _) = published()
    group = cluster.members[coordinator].running.groups[0]
    more: dict[str, Any] = {"active": False, "cold": False, "register": 0, "state": None}
    newer = SyncItem(0, group.log.epoch + 1, group.history, 1, [], [], 1, **more)
    cluster.feed(coordinator, PeerReceived(other, [Sync([newer])]))
    assert group.coordinator is None


def test_an_elected_log_is_written_down_under_its_new_epoch() -> None:
    cluster = Cluster(3, groups=1, writes_wal=True, acks_wait_for_wal=True)
    cluster.start()
    cluster.until(cluster.ready)
    before = str(cluster.coordinator(0))
    cluster.kill(before)
    cluster.until(lambda: cluster.coordinator(0) not in (None, before))
    cluster.run(S)
    name = str(cluster.coordinator(0))
    epoch = cluster.statistics(name).groups[0].epoch
    written = [WAL.decode(entry) for entry in cluster.disks[name].wal]
    assert [entry.epoch for entry in written if isinstance(entry, WalLog)][-1] == epoch


def cold_prepares(cluster: Recorded) -> list[str]:
    return [
        name
        for name, _, message in cluster.sent_messages
        if isinstance(message, Prepare) and message.cold
    ]


def lost_majority() -> Recorded:
    """Return a cluster two seeds of which restarted, so that none of them votes."""
    cluster = Recorded(3, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(S)
    for name in ("m1:1", "m2:1"):
        cluster.kill(name)
    cluster.run(3 * S)
    cluster.sent_messages.clear()
    cluster.start("m1:1", "m2:1")
    return cluster


def test_a_cold_start_waits_for_a_coordinator_that_may_have_survived() -> None:
    cluster = lost_majority()
    settings = cluster.members["m1:1"].running.settings
    waited = cluster.until(lambda: bool(cold_prepares(cluster)))
    assert waited >= 4 * settings.suspect
    cluster.until(cluster.ready)


def test_no_cold_start_is_tried_while_a_seed_says_nothing() -> None:
    cluster = lost_majority()
    cluster.until(cluster.members["m1:1"].running._election._full_attendance)
    for name in ("m1:1", "m2:1"):
        cluster.loss |= {("m3:1", name), (name, "m3:1")}
    cluster.run(5 * S)
    assert cold_prepares(cluster) == []
    cluster.loss.clear()
    cluster.until(cluster.ready)


def test_groups_with_a_majority_that_votes_are_not_started_anew() -> None:
    cluster = Recorded(3, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(S)
    other = next(name for name in cluster.names if name != cluster.coordinator(0))
    cluster.members[other].running._election.cold_start([0])
    assert cluster.members[other].running.groups[0].coordinator is None


def test_the_first_coordinator_notes_who_promised_before_it_is_active() -> None:
    cluster = Cluster(3, groups=1)
    cluster.start()

    def elected() -> str | None:
        for name, member in cluster.members.items():
            group = member.running.groups[0].coordinator
            if group is not None and group.state is CoordinatorState.SYNCING:
                return name
        return None

    while elected() is None:
        cluster.run(MS // 10)
    name = elected()
    assert name is not None
    known = cluster.members[name].running.storage.votes.known
    assert known == {seed: 1 for seed in cluster.names if seed != name}


def test_a_cold_start_after_a_second_loss_is_above_the_one_after_the_first() -> None:
    """The record is the older copy both times, so it does not know the epoch of the first."""
    cluster = Cluster(3, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    election = cluster.members["m2:1"].running._election
    lose(cluster, "m2:1", "m1:1")
    first = election._highest_promise(ordered=True)
    lose(cluster, "m2:1", "m1:1")
    assert election._highest_promise(ordered=True) >= first + 2**20
