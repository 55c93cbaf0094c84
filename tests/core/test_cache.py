"""What scenarios cannot show of the cache: its bookkeeping at sizes and orders of their own."""

import pytest

from mdserver.core.cache import Cache, SubjectState, group_of
from mdserver.core.message import Entry, Publication
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import Pattern, parse_interest

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


def test_the_queue_of_all_messages_stays_in_proportion_to_what_is_cached() -> None:
    cache = Cache(BrokerSettings(cached_messages_per_subject=2))
    for seq in range(1, 10_001):
        put(cache, "/a/b", seq)
    assert [entry.seq for entry in known(cache, "/a/b").entries] == [9999, 10000]
    assert len(cache._order) < 3000
    assert cache.expire(NOW + BrokerSettings().cache_expire) is None
    assert len(cache._order) == 0
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
        assert set(cache.matching(pattern("/**"))) == kept
        assert len(cache) == len(kept)
    assert (cache.bytes, cache._tree) == (0, {})
    assert cache.expire(NOW * 10**12) is None


@pytest.mark.parametrize("order", [["/a/b", "/a/b/c"], ["/a/b/c", "/a/b"]])
def test_a_subject_may_be_the_beginning_of_another(order: list[str]) -> None:
    cache = Cache(BrokerSettings())
    for subject in order:
        put(cache, subject, 1)
    assert cache.matching(pattern("/a/*")) == ["/a/b"]
    assert cache.matching(pattern("/a/b/*")) == ["/a/b/c"]
    assert cache.matching(pattern("/a/b/**")) == ["/a/b/c"]
    assert cache.matching(pattern("/a/b/c/**")) == []
    assert cache.matching(pattern("/a/b/c/*")) == []
    assert sorted(cache.matching(pattern("/*/**"))) == ["/a/b", "/a/b/c"]
    assert cache.matching(pattern("/q/*")) == []


def test_an_image_replaces_what_was_known() -> None:
    there, here = Cache(BrokerSettings()), Cache(BrokerSettings())
    for seq in (1, 2, 3):
        put(there, "/a/b", seq, content=b"there")
    put(here, "/a/b", 1, content=b"here")
    (image,) = there.image(group_of("/a/b", BrokerSettings().groups))
    here.restore(image, NOW)
    assert here.image(group_of("/a/b", BrokerSettings().groups)) == [image]
    assert here.bytes == there.bytes
