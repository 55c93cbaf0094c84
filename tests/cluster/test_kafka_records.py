"""Subjects and records: both ways, and what cannot be a publication."""

from collections.abc import Sequence
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.kafka_records import (
    KafkaRecord,
    KeyPlace,
    Places,
    PoisonError,
    joined,
    murmur2,
    publication,
    record_of,
    split,
)
from mdserver.core.message import Publication, Qos

MAX = 10_000
SEGMENT = st.text(st.characters(exclude_characters="/*", exclude_categories=["C", "Z"]), min_size=1)
TOPIC = st.from_regex(r"[a-z0-9._-]{1,20}", fullmatch=True)


def places(partitions: int = 8, partitioner: str = "murmur2_random") -> Places:
    return Places({"t": partitions}, partitioner, 16)


PLACE = places().of("t", b"k")


def read(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: Sequence[tuple[str, bytes]] = ()
) -> KafkaRecord:
    return KafkaRecord("t", 0, 5, 7_000_000, key, value, headers)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_java(key: bytes, expected: int) -> None:
    """Values of Kafka's own test of `Utils.murmur2`."""
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(TOPIC, st.lists(SEGMENT, max_size=4))
def test_a_subject_is_a_topic_and_a_key(topic: str, segments: list[str]) -> None:
    subject = "/" + "/".join([topic, *segments])
    found, key = split(subject)
    assert (found, key) == (topic, "/".join(segments).encode() if segments else None)
    assert joined(found, key) == subject


@pytest.mark.parametrize("key", [b"", b"a//b", b"/a", b"a/", b"\xff", b"*", b"a/**"])
def test_a_key_that_is_no_subject_is_poison(key: bytes) -> None:
    with pytest.raises(PoisonError):
        places().of("t", key)


def test_records_of_the_servers_own_name_are_poison() -> None:
    with pytest.raises(PoisonError, match="own"):
        joined("__mdserver__", b"k")


def test_without_a_key_the_order_is_in_partition_0() -> None:
    found = places().of("t", None)
    assert found == KeyPlace("/t", "t", None, 0, found.group, f"{crc32(b'/t'):08x}")


def test_partitions_are_those_of_the_partitioner() -> None:
    assert places().of("t", b"foobar").partition == (-790332482 & 0x7FFFFFFF) % 8
    assert places(partitioner="consistent").of("t", b"foobar").partition == 0x9EF61F95 % 8


def test_places_are_forgotten_when_a_topic_has_more_partitions() -> None:
    partitions = {"t": 1}
    known = Places(partitions, "murmur2", 16)
    assert known.of("t", b"foobar").partition == 0
    partitions["t"] = 8
    known.forget()
    assert known.of("t", b"foobar").partition == 6


@given(
    st.builds(
        Publication,
        st.just("/t/k"),
        st.text().map(str.encode),
        fields=st.none()
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
                lambda name: not name.startswith("md-")
            ),
            st.text(st.characters(exclude_categories=["Cs"])),
            min_size=1,
        ),
        closure=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        retained=st.booleans(),
        qos=st.sampled_from(Qos),
        compressed=st.booleans(),
        reply_subject=st.none() | st.just("/t/reply"),
        publisher=st.just("me at home"),
        number=st.integers(1, 10**9),
        time=st.integers(0, 10**9).map(lambda ms: ms * 1_000_000),
    )
)
def test_a_publication_comes_back_as_it_was(published: Publication) -> None:
    record = record_of(3, places().of("t", b"k"), published)
    back = KafkaRecord(
        record.topic,
        record.partition,
        0,
        record.time_ms * 1_000_000,
        record.key,
        record.value,
        record.headers,
    )
    assert record.ticket == 3
    assert publication(back, PLACE, 1_000_000, stray=False) == published


def test_bytes_come_back_as_bytes() -> None:
    published = Publication("/t/k", b"plain", text=False)
    record = record_of(1, places().of("t", b"k"), published)
    assert not publication(read(headers=record.headers), PLACE, MAX, stray=False).text


def test_headers_of_other_producers_are_fields() -> None:
    headers = [("unit", b"km/h"), ("id", b"\xff"), ("md-other", b"x"), ("md-id", b"nonsense")]
    found = publication(read(headers=headers), PLACE, MAX, stray=False)
    assert (found.fields, found.publisher, found.number) == ({"unit": "km/h"}, "", 0)


def test_an_identity_that_was_copied_from_another_subject_is_none() -> None:
    numbered = Publication("/t/k", b"", publisher="me at home", number=7)
    header = record_of(1, PLACE, numbered).headers
    assert publication(read(headers=header), PLACE, MAX, stray=False).number == 7
    other = places().of("t", b"l")
    found = publication(read(key=b"l", headers=header), other, MAX, stray=False)
    assert (found.publisher, found.number) == ("", 0)


def test_a_value_that_is_no_utf8_is_bytes() -> None:
    assert not publication(read(value=b"\xff\x00"), PLACE, MAX, stray=False).text
    assert publication(read(value="ü".encode()), PLACE, MAX, stray=False).text


def test_a_tombstone_is_empty_and_not_retained() -> None:
    found = publication(read(value=None), PLACE, MAX, stray=False)
    assert (found.content, found.retained) == (b"", False)


def test_a_stray_is_at_most_once() -> None:
    assert publication(read(), PLACE, MAX, stray=True).qos is Qos.STANDARD


def test_a_record_beyond_the_limit_of_messages_is_poison() -> None:
    with pytest.raises(PoisonError, match="MaxMessageSize allows 9"):
        publication(read(value=b"x" * 9, headers=[("a", b"b")]), PLACE, 9, stray=False)


def test_fields_must_not_have_the_names_of_our_headers() -> None:
    with pytest.raises(PoisonError, match="`md-` are the server's own"):
        record_of(1, places().of("t", b"k"), Publication("/t/k", b"", fields={"md-id": "1"}))
