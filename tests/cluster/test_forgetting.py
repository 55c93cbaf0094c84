"""Which publishers are forgotten: those idle for an hour, and the longest idle of too many."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.coordinator import Coordinator
from mdserver.cluster.dedupe import Verdict
from mdserver.cluster.forgetting import Forgetting
from mdserver.cluster.log import GroupLog
from mdserver.core.message import Publication
from mdserver.limits import NS_PER_S as S
from mdserver.limits import PUBLISHER_IDLE_S, PUBLISHERS_FORGOTTEN_AT_ONCE
from simulation.cluster import Cluster


class Counted(OrderedDict[str, Any]):
    """A table that counts at how many of its publishers somebody looked."""

    looks = 0

    def items(self) -> Any:
        for item in super().items():
            self.looks += 1
            yield item

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.looks += 1
            yield name


def coordinator_of(log: GroupLog) -> Coordinator:
    coordinator = Coordinator(0, 1, log, ("a",), 0)
    coordinator.assume()
    return coordinator


def publish(coordinator: Coordinator, publisher: str, number: int) -> None:
    log = coordinator.log
    log.number(1, [Publication("/a/b", b"", publisher=publisher, number=number)], None)
    log.commit(log.length)


def test_looking_for_idle_publishers_looks_at_no_others() -> None:
    log = GroupLog(0)
    table = log.publishers.table = Counted()
    coordinator, forgetting = coordinator_of(log), Forgetting([log], 10**6)
    count = 3 * PUBLISHERS_FORGOTTEN_AT_ONCE
    for index in range(count):
        publish(coordinator, f"idle {index}", 1)
    looked = []
    for second in range(PUBLISHER_IDLE_S + 10):
        if not second % 60:
            publish(coordinator, "busy", second // 60 + 1)
        table.looks = 0
        forgetting.idle(coordinator, second * S)
        looked.append(table.looks)
    assert max(looked) == PUBLISHERS_FORGOTTEN_AT_ONCE
    assert sum(looked) <= count + len(looked)
    assert list(table) == ["busy"]


def test_who_publishes_within_the_hour_is_remembered() -> None:
    log = GroupLog(0)
    coordinator, forgetting = coordinator_of(log), Forgetting([log], 10**6)
    for minute in range(200):
        publish(coordinator, "busy", minute + 1)
        if not minute % 55:
            publish(coordinator, "at times", minute // 55 + 1)
        forgetting.idle(coordinator, minute * 60 * S)
    assert log.publishers.verdict("at times", 5)[0] is Verdict.NEXT
    assert log.publishers.verdict("busy", 201)[0] is Verdict.NEXT


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=300))
def test_a_member_knows_no_more_publishers_than_it_may(came: list[tuple[int, int]]) -> None:
    """Beyond that each group keeps its share; whoever goes was idle for the longest."""
    logs = [GroupLog(0, 4) for _ in range(3)]
    coordinators = [coordinator_of(log) for log in logs]
    forgetting = Forgetting(logs, 12)
    recent: list[dict[str, None]] = [{} for _ in logs]
    for group, name in came:
        log, order, publisher = logs[group], recent[group], str(name)
        known = log.publishers.table.get(publisher)
        one = Publication("/a/b", b"", publisher=publisher, number=known.last + 1 if known else 1)
        before = list(log.publishers.table)
        forgetting.make_room(coordinators[group], [one], 0)
        coordinators[group].append([one], "c", 1)
        log.commit(log.length)
        order.pop(publisher, None)
        order[publisher] = None
        gone = len(before) + (known is None) - len(log.publishers.table)
        for name_gone in list(order)[:gone]:
            del order[name_gone]
        assert list(log.publishers.table) == list(order)
    sizes = [len(log.publishers.table) for log in logs]
    assert sum(sizes) <= 12 + sum(min(size, 4) for size in sizes)
    assert max(sizes) <= 12


def test_a_gap_makes_nobody_forgotten() -> None:
    log = GroupLog(0)
    coordinator, forgetting = coordinator_of(log), Forgetting([log], 2)
    for name in ("a", "b"):
        publish(coordinator, name, 1)
    unknown = [Publication("/a/b", b"", publisher=f"x{index}", number=7) for index in range(50)]
    forgetting.make_room(coordinator, unknown, 0)
    assert list(log.publishers.table) == ["a", "b"]


def test_all_members_forget_alike() -> None:
    cluster = Cluster(3, groups=2, publishers_max=10)
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    for session in range(1, 61):
        cluster.open("m1:1", session, publisher=f"p{session}")
        cluster.publish("m1:1", session, f"/a/{session}", "x", number=1)
        cluster.run(S // 10)
    cluster.run(S)
    tables = [
        [group.publishers for group in member.node.statistics().groups]
        for member in cluster.members.values()
    ]
    assert tables[0] == tables[1] == tables[2]
    assert sum(map(len, tables[0])) <= 15
    assert "p60" in tables[0][cluster.group("/a/60")]
