"""The snapshot of a subject against the sum of its retained messages, and its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from mdserver.core.message import Entry, MessageType, Publication
from mdserver.core.snapshot import Bounds, ProposedFields, Snapshot, fields_bytes

WIDE = Bounds(fields_max=100, bytes_max=10_000)
FIELDS = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "c", "ö", "name"]), st.text(max_size=3), min_size=1
)
MESSAGES = st.lists(st.tuples(st.binary(max_size=4), FIELDS), min_size=1, max_size=8)


def entries(messages: list[tuple[bytes, dict[str, str] | None]]) -> list[Entry]:
    return [
        Entry(1, seq, Publication("/a/b", content, fields=fields))
        for seq, (content, fields) in enumerate(messages, 1)
    ]


def summed(applied: list[Entry], bounds: Bounds) -> Snapshot:
    snapshot = Snapshot(applied[0])
    for entry in applied[1:]:
        snapshot.apply(entry, bounds)
    return snapshot


@given(MESSAGES)
def test_content_is_the_latest_and_each_field_has_its_latest_value(
    messages: list[tuple[bytes, dict[str, str] | None]],
) -> None:
    union: dict[str, str] = {}
    for _, fields in messages:
        union |= fields or {}
    snapshot = summed(entries(messages), WIDE)
    entry = snapshot.entry()
    assert (entry.publication.content, entry.seq) == (messages[-1][0], len(messages))
    assert (entry.publication.fields or {}) == union
    assert snapshot.bytes == len(messages[-1][0]) + fields_bytes(union)


@given(MESSAGES, st.integers(1, 4), st.integers(1, 12))
def test_a_snapshot_that_would_outgrow_its_bounds_begins_anew_with_the_message(
    messages: list[tuple[bytes, dict[str, str] | None]], names: int, size: int
) -> None:
    union: dict[str, str] | None = None
    for _, fields in messages:
        if fields is None:
            continue
        both = fields if union is None else union | fields
        fits = len(both) <= names and fields_bytes(both) <= size
        union = both if union is None or fits or both.keys() == fields.keys() else fields
    assert summed(entries(messages), Bounds(names, size)).fields == union


def test_subscribers_without_a_pattern_share_one_delivery_until_the_next_message() -> None:
    first, second = entries([(b"x", None), (b"y", None)])
    snapshot = Snapshot(first)
    shared = snapshot.delivery()
    assert snapshot.delivery() is shared
    assert (shared.type, shared.match) == (MessageType.SNAPSHOT, None)
    assert snapshot.delivery("/a/*").match == "/a/*"
    snapshot.apply(second, WIDE)
    assert snapshot.delivery().entry is second


def test_fields_that_are_proposed_count_before_they_are_committed() -> None:
    proposed = ProposedFields(Snapshot(entries([(b"", {"a": "1"})])[0]))
    bounds = Bounds(fields_max=2, bytes_max=5)
    assert proposed.take({"b": "2"}, bounds) is None
    assert proposed.take({"c": "3"}, bounds) == "3 fields: at most 2 are allowed"
    assert proposed.take({"b": "222"}, bounds) == "fields of 6 bytes: at most 5 are allowed"
    proposed.note({"z": "9"})  # another member committed it
    assert (proposed.fields, proposed.bytes, proposed.count) == (
        {"a": "1", "b": "2", "z": "9"},
        6,
        1,
    )
