"""Which publishers are forgotten: those idle for an hour, and the longest idle of too many."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.coordinator import Coordinator
from mdserver.cluster.dedupe import Verdict
from mdserver.cluster.forgetting import Forgetting
from mdserver.cluster.log import GroupLog
from mdserver.cluster.messages import ForwardItem
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
        before, start = list(log.publishers.table), log.length
        coordinators[group].append([one], "c", 1)
        forgetting.make_room(coordinators[group], int(known is None), start, 0)
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


def begin(forgetting: Forgetting, coordinator: Coordinator, *names: str) -> None:
    """Publishers publish for the first time, in one item."""
    log, start = coordinator.log, coordinator.log.length
    known = len(log.publishers.table)
    coming = [Publication("/a/b", b"", publisher=name, number=1) for name in names]
    coordinator.append(coming, "c", 1)
    forgetting.make_room(coordinator, len(log.publishers.table) - known, start, 0)
    log.commit(log.length)


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 40)), max_size=200),
    st.integers(1, 3),
)
def test_an_owner_within_its_part_is_forgotten_for_no_larger_one(
    came: list[tuple[str, int]], at_once: int
) -> None:
    log = GroupLog(0)
    coordinator, forgetting = coordinator_of(log), Forgetting([log], 24)
    for first in range(0, len(came), at_once):
        before = list(log.publishers.table)
        sizes = Counter(name[1] for name in before)
        names = [f"@{user}/{name}" for user, name in came[first : first + at_once]]
        begin(forgetting, coordinator, *dict.fromkeys(names))
        sizes += Counter({name[1] for name in names if name not in before})
        gone = [name for name in before if name not in log.publishers.table]
        for name in gone:
            assert sizes[name[1]] > 3, "five owners fill the table only if one has more than that"
        assert set(names) <= set(log.publishers.table)
        assert len(log.publishers.table) <= 24 + at_once


def test_whoever_adds_many_forgets_its_own_longest_idle_first() -> None:
    log = GroupLog(0)
    coordinator, forgetting = coordinator_of(log), Forgetting([log], 16)
    begin(forgetting, coordinator, "@ann/feed")
    for name in range(50):
        begin(forgetting, coordinator, f"@eve/{name}")
    assert list(log.publishers.table) == ["@ann/feed", *(f"@eve/{name}" for name in range(35, 50))]
    begin(forgetting, coordinator, "@bob/feed", "@cid/feed")
    assert next(iter(log.publishers.table)) == "@ann/feed"
    assert len(log.publishers.table) == 16


def test_what_an_item_begins_is_not_forgotten_by_it() -> None:
    """The table is too large then, until the next one comes."""
    log = GroupLog(0)
    coordinator, forgetting = coordinator_of(log), Forgetting([log], 4)
    begin(forgetting, coordinator, "@ann/feed")
    begin(forgetting, coordinator, *(f"@eve/{name}" for name in range(9)))
    assert len(log.publishers.table) == 10
    for name in range(10, 19):
        begin(forgetting, coordinator, f"@eve/{name}")
    assert list(log.publishers.table) == ["@ann/feed", "@eve/16", "@eve/17", "@eve/18"]


def test_the_choice_is_the_same_in_copied_tables_and_after_entries_are_taken_back() -> None:
    log, other = GroupLog(0), GroupLog(0)
    coordinator, forgetting = coordinator_of(log), Forgetting([log], 12)
    for name in range(10):
        begin(forgetting, coordinator, f"@{'ab'[name % 2]}/{name}", f"@{name}/x")
    other.install(log.committed, log.tables())
    length = log.length
    log.number(1, [Publication("/a/b", b"", publisher=f"@c/{n}", number=1) for n in range(9)], None)
    assert (log.publishers.dispensable(5, log.length) or "").startswith("@c/")
    log.truncate(length)
    while log.publishers.table:
        name = log.publishers.dispensable(1, length)
        assert name is not None
        assert other.publishers.dispensable(1, length) == name
        for table in (log.publishers, other.publishers):
            table.forget(name)


def test_a_gap_makes_nobody_forgotten() -> None:
    """The table is too large, so whoever begins would have others forgotten."""
    cluster = Cluster(1, groups=1, publishers_max=2)
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    group = cluster.members["m1:1"].node.groups[0]

    def forward(number: int, *names: str) -> None:
        coming = [Publication("/a/b", b"", publisher=name, number=number) for name in names]
        group.append("c", ForwardItem(0, group.coordinator.epoch, 1, coming))

    forward(1, *(f"p{number}" for number in range(9)))
    cluster.run(S)
    assert len(group.log.publishers.table) == 9
    forward(7, *(f"q{number}" for number in range(9)))
    cluster.run(S)
    assert len(group.log.publishers.table) == 9
    forward(1, "q1")
    cluster.run(S)
    assert len(group.log.publishers.table) == 8, "one came, and two went for it"


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
