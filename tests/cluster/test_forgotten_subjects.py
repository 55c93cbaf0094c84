"""Subjects that nobody publishes to are forgotten, and none of their numbers is given twice."""

from typing import Any

import msgspec
import pytest

from mdserver.cluster.messages import ClosePeer, Hello, PeerReceived
from mdserver.core.commands import PositionAfter
from mdserver.core.events import StatusName
from mdserver.core.message import GroupFloor
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster
from tests.cluster.started import acked

SHORT = {"cache_expire": S, "snapshot_expire": S, "subject_idle": 2 * S}
LIVED = 8 * S  # by then what was published before is forgotten


def started(count: int = 3, groups: int = 1, **settings: Any) -> Cluster:
    cluster = Cluster(count, groups, **settings)
    cluster.broker_settings = SHORT
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    cluster.open("m1:1", 1)
    return cluster


def come_and_go(cluster: Cluster, *numbers: int) -> None:
    """Publish so many messages to each of some subjects, and have these forgotten."""
    for index, count in enumerate(numbers):
        for number in range(count):
            cluster.publish("m1:1", 1, f"/short/{index}", f"{index}.{number}")
    cluster.run(LIVED)


def numbering(cluster: Cluster, name: str) -> dict[str, int]:
    (group,) = cluster.statistics(name).groups
    return {subject: seq for subject, seq in group.numbering.items() if subject}


def floor(cluster: Cluster, name: str) -> int:
    return cluster.members[name].running.groups[0].log.floor.seq


def following(cluster: Cluster, name: str, seq: int) -> list[tuple[object, ...]]:
    """What a client gets of /short/0 that comes with a position: statuses, messages with `prev`."""
    member = cluster.members[name]
    (group,) = cluster.statistics(name).groups
    cluster.open(name, 50)
    member.inboxes[50] = []
    after = PositionAfter(group.history, group.epoch, seq)
    cluster.subscribe(name, 50, "/short/0", positions={"/short/0": after})
    cluster.publish("m1:1", 1, "/short/0", "next")
    cluster.run(S // 2)
    found: list[tuple[object, ...]] = []
    for event in member.inboxes[50]:
        if hasattr(event, "entry"):
            prev = event.prev and event.prev.seq
            found.append((event.entry.publication.content.decode(), event.entry.seq, prev))
        elif getattr(event, "status", None) is StatusName.DATA_RESYNC:
            found.append((event.status, event.missing.first.seq, event.missing.last.seq))
        elif getattr(event, "status", None) is not None:
            found.append((event.status,))
    return found


def test_a_thousand_subjects_that_come_and_go_leave_nothing_behind() -> None:
    cluster = started()
    come_and_go(cluster, *[1] * 1000)
    for name in cluster.names:
        assert numbering(cluster, name) == {}
        assert cluster.members[name].running.broker.counts().subjects == 0
        assert floor(cluster, name) == 1
        tables = cluster.members[name].running.groups[0].log.tables()
        assert len(msgspec.msgpack.encode(tables)) < 50


def test_a_subject_that_comes_again_is_numbered_above_the_floor() -> None:
    cluster = started()
    come_and_go(cluster, 3, 7)
    cluster.publish("m1:1", 1, "/short/0", "again")
    cluster.publish("m1:1", 1, "/new/0", "new")
    cluster.run(S // 2)
    assert [acked(cluster, "m1:1")[name][1] for name in ("again", "new")] == [8, 8]
    for name in cluster.names:
        assert numbering(cluster, name) == {"/short/0": 8, "/new/0": 8}


def test_a_client_below_the_floor_is_told_that_messages_may_be_missing() -> None:
    cluster = started()
    come_and_go(cluster, 3, 7)
    told = following(cluster, "m2:1", 2)
    assert told == [(StatusName.DATA_RESYNC, 3, 7), ("next", 8, 0)]


def test_a_client_at_the_floor_is_told_that_nothing_is_missing() -> None:
    cluster = started()
    come_and_go(cluster, 7, 3)
    assert following(cluster, "m2:1", 7) == [(StatusName.DATA_SYNC,), ("next", 8, 0)]


def test_a_client_that_saw_the_new_life_recovers_it() -> None:
    cluster = started()
    come_and_go(cluster, 3, 7)
    for content in ("again 8", "again 9"):
        cluster.publish("m1:1", 1, "/short/0", content)
    cluster.run(S // 4)
    told = following(cluster, "m3:1", 8)
    assert told == [(StatusName.DATA_SYNC,), ("again 9", 9, None), ("next", 10, None)]


def test_a_client_of_the_old_life_is_told_of_a_gap_in_the_new_one() -> None:
    cluster = started()
    come_and_go(cluster, 3, 7)
    cluster.publish("m1:1", 1, "/short/0", "again 8")
    cluster.run(S // 4)
    told = following(cluster, "m3:1", 3)
    assert told == [(StatusName.DATA_RESYNC, 4, 8), ("again 8", 8, None), ("next", 9, None)]


def test_a_pattern_that_goes_on_from_unseen_subjects_is_told_that_some_are_forgotten() -> None:
    cluster = started()
    come_and_go(cluster, 3)
    (group,) = cluster.statistics("m2:1").groups
    cluster.open("m2:1", 60)
    unseen = {"/short/*": PositionAfter(group.history, 0, 0)}
    cluster.subscribe("m2:1", 60, "/short/*", positions=unseen)
    cluster.run(S // 10)
    (told,) = cluster.members["m2:1"].statuses
    assert (told.status, told.subject) == (StatusName.DATA_RESYNC, "/short/*")
    assert told.missing is not None
    assert (told.missing.first.seq, told.missing.last.seq) == (1, 3)


def test_subjects_with_a_message_or_a_snapshot_are_kept() -> None:
    cluster = Cluster(3, 1)
    cluster.broker_settings = SHORT | {"snapshot_expire": None}
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    cluster.open("m1:1", 1)
    come_and_go(cluster, 2)
    cluster.publish("m1:1", 1, "/short/1", "not retained", retained=False)
    cluster.run(LIVED)
    assert numbering(cluster, "m2:1") == {"/short/0": 2}


def test_who_publishes_now_and_then_is_not_forgotten() -> None:
    cluster = started()
    for number in range(1, 12):
        cluster.publish("m1:1", 1, "/short/0", str(number))
        cluster.run(S + S // 2)
    assert numbering(cluster, "m3:1") == {"/short/0": 11}


@pytest.mark.parametrize("recorded", [False, True])
def test_a_successor_and_a_member_that_starts_again_know_the_floor(*, recorded: bool) -> None:
    cluster = started(log_kept=2, writes_wal=recorded, acks_wait_for_wal=recorded)
    come_and_go(cluster, 3, 7)
    coordinator = cluster.coordinator(0)
    assert coordinator is not None
    cluster.kill(coordinator)
    cluster.run(5 * S)
    cluster.start(coordinator)
    cluster.until(cluster.ready, limit=1000 * S)
    assert [floor(cluster, name) for name in cluster.names] == [7, 7, 7]
    cluster.open("m2:1", 2)
    cluster.publish("m2:1", 2, "/short/0", "after")
    cluster.run(S)
    assert acked(cluster, "m2:1")["after"][1] == 8


def test_a_single_server_reads_the_floor_from_its_disk() -> None:
    cluster = started(1, writes_wal=True, acks_wait_for_wal=True)
    come_and_go(cluster, 3, 7)
    cluster.kill("m1:1")
    cluster.start("m1:1")
    cluster.until(cluster.ready, limit=1000 * S)
    cluster.open("m1:1", 1)
    cluster.publish("m1:1", 1, "/short/0", "after")
    cluster.run(S)
    assert numbering(cluster, "m1:1") == {"/short/0": 8}


def test_a_worker_forgets_what_its_member_does() -> None:
    cluster = Cluster(1, 1, workers=True)
    cluster.broker_settings = SHORT
    cluster.start()
    worker = cluster.start_worker("m1:1")
    cluster.until(cluster.ready, limit=1000 * S)
    cluster.open(worker, 1)
    for number in range(3):
        cluster.publish(worker, 1, "/short/0", str(number))
    cluster.run(LIVED)
    assert floor(cluster, worker) == 3
    assert cluster.members[worker].running.broker.counts().subjects == 0


def test_nothing_is_forgotten_while_a_seed_is_of_an_earlier_version() -> None:
    cluster = started()
    for name in ("m1:1", "m2:1"):
        cluster.members[name].running.members.peers["m3:1"].forgets = False
    cluster.members["m3:1"].running.members.peers["m1:1"].forgets = False
    come_and_go(cluster, 3)
    assert numbering(cluster, "m2:1") == {"/short/0": 3}


def test_a_member_of_an_earlier_version_is_refused_once_subjects_were_forgotten() -> None:
    cluster = started()
    come_and_go(cluster, 3)
    node = cluster.members["m1:1"].running
    outputs = node.step(PeerReceived("m2:1", [Hello(9, False, "c", {})]), cluster.heap.now)
    (closed,) = [output for output in outputs if isinstance(output, ClosePeer)]
    assert "of an earlier version" in closed.reason


def test_a_floor_stands_for_no_message_behind_its_place() -> None:
    cluster = started()
    come_and_go(cluster, 3)
    log = cluster.members["m1:1"].running.groups[0].log
    assert log.floor == GroupFloor(log.epoch, 3, 3)


def test_a_seed_that_is_away_does_not_keep_subjects_once_some_were_forgotten() -> None:
    """Whatever version it is of, the others refuse it if that does not know what forgets them."""
    cluster = started()
    come_and_go(cluster, 3)
    away = next(name for name in ("m2:1", "m3:1") if name != cluster.coordinator(0))
    cluster.kill(away)
    cluster.run(2 * S)
    cluster.publish("m1:1", 1, "/short/1", "while it is away")
    cluster.run(LIVED)
    assert numbering(cluster, "m1:1") == {}


def test_a_seed_that_is_away_keeps_subjects_while_none_was_forgotten() -> None:
    """It may be of an earlier version, which gives numbers of forgotten subjects a second time."""
    cluster = started()
    away = next(name for name in ("m2:1", "m3:1") if name != cluster.coordinator(0))
    cluster.kill(away)
    come_and_go(cluster, 3)
    assert numbering(cluster, "m1:1") == {"/short/0": 3}
