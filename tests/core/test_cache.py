"""What scenarios cannot show of the cache: its bookkeeping at sizes and orders of their own."""

from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.core.cache import Cache, SubjectState, entry_bytes
from mdserver.core.message import Entry, Publication
from mdserver.core.settings import BrokerSettings
from mdserver.core.snapshot import fields_bytes
from mdserver.core.subjects import Pattern, group_of, parse_interest

NOW = 1000


def put(cache: Cache, subject: str, seq: int, time: int = NOW, content: bytes = b"x") -> None:
    entry = Entry(1, seq, Publication(subject, content, time=time))
    cache.apply(cache.state(subject, time), entry, time)


def known(cache: Cache, subject: str) -> SubjectState:
    state = cache.find(subject)
    assert state is not None
    return state


def pattern(text: str) -> Pattern:
    parsed = parse_interest(text)
    assert parsed is not None
    return parsed


def matching(cache: Cache, pattern: Pattern) -> list[str]:
    return [subject for subject in cache.search(pattern) if subject is not None]


def test_the_queue_of_all_messages_stays_in_proportion_to_what_is_cached() -> None:
    cache = Cache(BrokerSettings(cached_messages_per_subject=2))
    for seq in range(1, 10_001):
        put(cache, "/a/b", seq)
    assert [entry.seq for entry in known(cache, "/a/b").entries] == [9999, 10000]
    assert cache.statistics().queued < 3000
    assert cache.expire(NOW + BrokerSettings().cache_expire) is None
    assert cache.statistics().queued == 0
    assert not known(cache, "/a/b").entries


def test_expiry_says_when_the_next_message_is_due() -> None:
    cache = Cache(BrokerSettings(cache_expire=10))
    put(cache, "/a/b", 1, time=5)
    put(cache, "/a/b", 2, time=8)
    assert cache.expire(14) == 15
    assert cache.expire(15) == 18
    assert cache.expire(18) is None


@pytest.mark.parametrize("clock", [0, 10**18])
def test_a_publisher_s_wrong_clock_does_not_change_how_long_a_message_is_kept(clock: int) -> None:
    cache = Cache(BrokerSettings(cache_expire=10))
    there = Cache(BrokerSettings(cache_expire=10))
    entry = Entry(1, 1, Publication("/a/b", b"x", time=clock))
    for it in (cache, there):
        it.apply(it.state("/a/b", 50), entry, 50)
    assert list(cache.entries(known(cache, "/a/b"), 59)) == [entry]
    assert cache.expire(59) == 60
    assert list(cache.entries(known(cache, "/a/b"), 60)) == []
    (image,) = there.image(group_of("/a/b", BrokerSettings().groups))
    cache.restore(image, 100)
    assert list(cache.entries(known(cache, "/a/b"), 109)) == [entry]
    assert cache.expire(110) is None


def test_a_dropped_group_leaves_nothing_behind() -> None:
    settings = BrokerSettings(groups=2)
    cache = Cache(settings)
    subjects = ["/a/b", "/a/b/c", "/a/c", "/a", "/x/y/z", "/x/y"]
    for subject in subjects:
        put(cache, subject, 1)
    for group in range(2):
        cache.drop_group(group)
        kept = {s for s in subjects if group_of(s, 2) > group}
        assert set(matching(cache, pattern("/**"))) == kept
        assert len(cache) == len(kept)
    assert (cache.bytes, cache.statistics().branches) == (0, 0)
    assert cache.expire(NOW * 10**12) is None


def test_an_image_replaces_what_was_known() -> None:
    there, here = Cache(BrokerSettings()), Cache(BrokerSettings())
    for seq in (1, 2, 3):
        put(there, "/a/b", seq, content=b"there")
    put(here, "/a/b", 1, content=b"here")
    (image,) = there.image(group_of("/a/b", BrokerSettings().groups))
    here.restore(image, NOW)
    assert here.image(group_of("/a/b", BrokerSettings().groups)) == [image]
    assert here.bytes == there.bytes


def retained(seq: int, fields: dict[str, str], time: int = NOW) -> Entry:
    return Entry(1, seq, Publication("/a/b", b"x", fields=fields, time=time))


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.text("é1", max_size=9), max_size=4)),
    st.integers(0, 50),
)
def test_a_snapshot_keeps_its_bounds_and_is_the_same_on_all_members(
    rows: list[dict[str, str]], joined_at: int
) -> None:
    # Members that proposed more together than each of them would have: the log decides.
    settings = BrokerSettings(groups=1, snapshot_fields_max=5, message_bytes_max=10)
    here, joining = Cache(settings), Cache(settings)
    for seq, fields in enumerate(rows, 1):
        if seq == joined_at:
            for image in here.image(0):
                joining.restore(image, NOW)
        for cache in (here, joining):
            if cache is here or seq >= joined_at:
                cache.apply(cache.state("/a/b", NOW), retained(seq, fields), NOW)
        snapshot = known(here, "/a/b").snapshot
        assert snapshot is not None
        kept = snapshot.fields or {}
        assert len(kept) <= 5
        assert snapshot.fields_bytes == fields_bytes(kept)
        assert snapshot.fields_bytes <= max(30, fields_bytes(fields))
        assert snapshot.bytes == 1 + snapshot.fields_bytes
        assert {name: kept.get(name) for name in fields} == fields
    for cache in (here, joining):
        assert cache.bytes == sum(
            sum(entry_bytes(entry) for entry in state.entries)
            + (0 if state.snapshot is None else state.snapshot.bytes)
            for state in map(cache.state, cache.names(), repeat(NOW))
        )
    if joined_at <= len(rows) and rows:
        mine, theirs = known(here, "/a/b").snapshot, known(joining, "/a/b").snapshot
        assert mine is not None
        assert theirs is not None
        assert mine.entry() == theirs.entry()


def test_proposals_that_wait_count_until_the_last_of_them_has_its_result() -> None:
    cache = Cache(BrokerSettings(snapshot_fields_max=3))

    def room_for(fields: dict[str, str]) -> str | None:
        return cache.make_room(Publication("/a/b", b"", fields=fields), NOW)

    refused = "The snapshot of '/a/b' would have 4 fields: at most 3 are allowed. "
    assert room_for({"a": "1", "b": "1"}) is None
    assert room_for({"b": "2", "c": "2"}) is None
    assert (room_for({"d": "1"}) or "").startswith(refused)
    cache.landed("/a/b")
    # Another member's publication was committed: it counts beside what still waits here.
    cache.apply(cache.state("/a/b", NOW), retained(1, {"e": "1"}), NOW)
    assert (room_for({"a": "1"}) or "").startswith(refused)
    cache.landed("/a/b")
    assert room_for({"a": "1", "b": "1"}) is None


def test_many_that_are_too_old_go_a_bounded_number_at_a_time() -> None:
    cache = Cache(BrokerSettings(cache_expire=10, snapshot_expire=20, expired_at_once=100))
    for number in range(250):
        put(cache, f"/a/{number}", 1)
    assert cache.expire(NOW + 9) == NOW + 10
    assert cache.expire(NOW + 10) == NOW + 10
    assert cache.messages == 150
    assert cache.expire(NOW + 20) == NOW + 10
    assert cache.expire(NOW + 20) == NOW + 20
    left = [one for one in map(cache.find, cache.names()) if one is not None and one.snapshot]
    assert len(left) == 200
    # A step that reads many subjects looks through the cache once.
    for number in range(250):
        assert list(cache.entries(known(cache, f"/a/{number}"), NOW + 20)) == []
    assert len([state for state in left if state.snapshot is not None]) == 100
    assert cache.expire(NOW + 20) is None
    assert cache.bytes == 0
