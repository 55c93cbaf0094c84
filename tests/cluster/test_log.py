"""The log of a group: numbering, replaceable tail, tables that follow from the entries alone."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.log import FORGET, GroupLog, Run, Tables
from mdserver.core.message import Publication


def publication(subject: str, publisher: str = "", number: int = 0) -> Publication:
    return Publication(subject, b"x", publisher=publisher, number=number)


def tables_of(log: GroupLog) -> bytes:
    return msgspec.msgpack.encode(
        [sorted(log.numbering.items()), sorted(log.publishers.told().items())]
    )


def test_seq_rises_by_one_within_a_subject_and_continues_across_epochs() -> None:
    log = GroupLog(10)
    log.number(1, [publication("/a/b"), publication("/a/c"), publication("/a/b")], None)
    log.number(2, [publication("/a/b")], None)
    places = [(e.epoch, e.publication.subject, e.seq) for e in log.entries]
    assert places == [(1, "/a/b", 1), (1, "/a/c", 1), (1, "/a/b", 2), (2, "/a/b", 3)]


def test_a_dropped_tail_takes_its_numbers_back() -> None:
    log = GroupLog(10)
    log.number(1, [publication("/a/b", "p", 1)], Run(0, 1, "c", 1))
    before = tables_of(log)
    log.number(1, [publication("/a/b", "p", 2), publication("/a/new", "q", 1)], Run(1, 2, "c", 2))
    log.truncate(1)
    assert tables_of(log) == before
    assert log.runs == [Run(0, 1, "c", 1)]


def test_a_forgotten_publisher_comes_back_with_a_dropped_tail() -> None:
    log = GroupLog(10)
    log.number(1, [publication("/a/b", "p", 1)], None)
    before = tables_of(log)
    log.number(1, [publication(FORGET, "p")], None)
    assert "p" not in log.publishers.table
    log.truncate(1)
    assert tables_of(log) == before


def test_commit_splits_the_run_that_it_ends_in() -> None:
    log = GroupLog(10)
    log.number(1, [publication("/a/b")] * 5, Run(0, 5, "c", 7))
    assert log.commit(2)[1] == [Run(0, 2, "c", 7)]
    assert log.runs_since(2) == [Run(0, 5, "c", 7)]
    assert log.commit(5)[1] == [Run(2, 3, "c", 9)]


def test_the_beginning_goes_when_newer_entries_are_plenty() -> None:
    log = GroupLog(3)
    for _ in range(20):
        log.number(1, [publication("/a/b")], None)
        log.commit(log.length)
        assert len(log.entries) <= 6
    assert log.length == 20
    assert [entry.seq for entry in log.since(18)] == [19, 20]


actions = st.lists(
    st.one_of(
        st.tuples(st.just("number"), st.sampled_from(["/a/b", "/a/c"]), st.sampled_from("-pq")),
        st.tuples(st.just("forget"), st.just(""), st.sampled_from("pq")),
        st.tuples(st.just("commit"), st.just(""), st.integers(0, 3)),
        st.tuples(st.just("truncate"), st.just(""), st.integers(0, 3)),
    ),
    max_size=40,
)


def next_number(log: GroupLog, publisher: str) -> int:
    known = log.publishers.table.get(publisher)
    return 1 if known is None else known.last + 1


@given(actions)
def test_tables_follow_from_the_entries_alone(steps: list[tuple[str, str, object]]) -> None:
    """Whatever was dropped in between: the tables are those of a log that never had a tail."""
    log, everything = GroupLog(1000), GroupLog(1000)
    for action, subject, argument in steps:
        if action == "number":
            who = "" if argument == "-" else str(argument)
            log.number(1, [publication(subject, who, next_number(log, who) if who else 0)], None)
        elif action == "forget":
            log.number(1, [publication(FORGET, str(argument))], None)
        elif action == "commit":
            log.commit(min(log.length, log.committed + int(str(argument))))
        else:
            log.truncate(max(log.committed, log.length - int(str(argument))))
    everything.append(log.entries, [])
    assert tables_of(everything) == tables_of(log)
    everything.truncate(log.committed)
    assert msgspec.msgpack.encode(log.tables(), order="sorted") == msgspec.msgpack.encode(
        Tables(everything.numbering, everything.publishers.told()), order="sorted"
    )


def test_runs_of_a_log_that_is_taken_over_stand_where_its_entries_do() -> None:
    """What is committed here stays with its runs, and the other log brings those after it."""
    log, other = GroupLog(10), GroupLog(10)
    for one in (log, other):
        one.number(1, [publication("/a/b")] * 3, Run(0, 3, "c", 1))
    log.commit(2)
    log.take_over(2, 0, other.entries, other.runs)
    assert log.runs == [Run(0, 2, "c", 1), Run(2, 1, "c", 3)]


def test_a_log_with_another_entry_at_the_last_committed_place_does_not_agree() -> None:
    log = GroupLog(10)
    log.number(1, [publication("/a/b")] * 2, None)
    log.commit(2)
    first, last = log.entries
    content = msgspec.structs.replace(last.publication, content=b"y")
    subject = msgspec.structs.replace(last.publication, subject="/a/c")
    assert log.agrees(0, [first, last])
    assert not log.agrees(0, [first, msgspec.structs.replace(last, epoch=2)])
    assert not log.agrees(0, [first, msgspec.structs.replace(last, seq=3)])
    assert not log.agrees(0, [first, msgspec.structs.replace(last, publication=content)])
    assert not log.agrees(0, [first, msgspec.structs.replace(last, publication=subject)])


def test_what_a_committed_entry_forgot_is_remembered_no_longer() -> None:
    log = GroupLog(10)
    log.number(1, [publication("/a/b", "p", 1), publication(FORGET, "p")], None)
    log.commit(2)
    assert log.forgot
    log.number(1, [publication("/a/b")], None)
    log.commit(3)
    assert not log.forgot, "nothing that could be taken back forgets anybody"


def test_every_entry_that_is_held_has_a_checksum() -> None:
    log = GroupLog(10)
    log.number(1, [publication("/a/b")] * 2, None)
    assert log.checksum_at(-1) == log.checksum_at(2) == 0
    assert log.checksum_at(0)
    assert log.checksum_at(0) != log.checksum_at(1)


def test_as_many_committed_entries_stay_as_members_that_were_away_may_lack() -> None:
    log = GroupLog(2)
    for length in range(1, 12):
        log.number(1, [publication("/a/b")], None)
        log.commit(length)
        assert log.base <= max(0, length - 2)
        assert len(log.entries) == length - log.base <= 5
