"""Which logs were replaced under another history id, as far as a stream of entries says."""

from mdserver.cluster.log import Run
from mdserver.cluster.wal import AnyWalEntry, WalAppended, WalLog
from mdserver.core.message import Entry, Publication
from mdserver.journal.wal_lines import Replacements

ENTRY = Entry(1, 1, Publication("/a/b", b"x"))
RUNS = [Run(0, 1, "m1#1", 1)]


def added(group: int = 0, start: int = 0) -> WalAppended:
    return WalAppended(group, start, [ENTRY], RUNS)


def held(history: str, *entries: Entry, group: int = 0) -> WalLog:
    return WalLog(group, 1, history, 0, list(entries), RUNS[: len(entries)], 0, True, None)


def count(*entries: AnyWalEntry) -> int:
    return Replacements(entries).count


def test_a_log_that_held_something_and_is_void_under_another_history_counts() -> None:
    assert count(held("a", ENTRY), held("b"), held("b", ENTRY)) == 1
    assert count(held("a"), added(), held("b")) == 1
    assert count(held("a", ENTRY), held("b"), held("b", ENTRY), held("c")) == 2
    assert count(held("a", ENTRY), held("a", group=1), held("b", group=1), held("b")) == 1


def test_nothing_else_counts() -> None:
    assert count(held("a"), held("b"), held("b", ENTRY)) == 0, "nothing was held"
    assert count(held("a", ENTRY), held("b", ENTRY)) == 0, "another name for what it holds"
    assert count(held("a", ENTRY), held("a")) == 0, "the same history"
    assert count(held("a", ENTRY), held("b", group=1)) == 0, "another group"


def test_what_is_read_goes_on_with_what_is_written() -> None:
    replacements = Replacements([held("a", ENTRY)])
    replacements.take(held("b"))
    assert replacements.count == 1
