"""Frames survive any split of a stream, and no length of a peer's decides what is kept."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.codec.frames import (
    PAYLOAD_BYTES_MAX,
    SKIPPABLE,
    Frame,
    FrameReader,
    frame,
    read_frames,
    read_varint,
    varint,
)
from mdserver.errors import RemoteProtocolError

KNOWN = frozenset((1, 2, 0x85))
FRAMES: list[Frame] = [
    (1, b""),
    (2, b"x"),
    (0x85, b"y" * 127),
    (1, b"z" * 128),
    (2, bytes(range(256)) * 70),
    (1, b"last"),
]
STREAM = b"".join(frame(kind, payload) for kind, payload in FRAMES)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16383, b"\xff\x7f"),
        (16384, b"\x80\x80\x01"),
        (2**64 - 1, b"\xff" * 9 + b"\x01"),
    ],
)
def test_varints(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded
    assert read_varint(b"?" + encoded + b"!", 1) == (value, 1 + len(encoded))


@given(st.integers(0, 2**64 - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))
    for end in range(len(encoded)):
        with pytest.raises(RemoteProtocolError, match="cut off"):
            read_varint(encoded[:end], 0)


@pytest.mark.parametrize("encoded", [b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x00", b"\x80" * 20])
def test_a_varint_beyond_64_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="beyond 64 bits"):
        read_varint(encoded, 0)


def test_one_byte_at_a_time() -> None:
    reader = FrameReader(KNOWN)
    got = [one for byte in STREAM for one in reader.feed(bytes((byte,)))]
    assert got == FRAMES
    assert reader.pending == 0


def test_every_split_point() -> None:
    for at in range(len(STREAM) + 1):
        reader = FrameReader(KNOWN)
        assert reader.feed(STREAM[:at]) + reader.feed(STREAM[at:]) == FRAMES


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_any_split(cuts: list[int]) -> None:
    reader = FrameReader(KNOWN)
    got = []
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(edges):
        got += reader.feed(STREAM[start:end])
    assert got == FRAMES


def test_a_message_holds_whole_frames() -> None:
    assert read_frames(STREAM, KNOWN) == FRAMES
    assert read_frames(b"", KNOWN) == []
    edges = {len(b"".join(frame(*one) for one in FRAMES[:count])) for count in range(7)}
    for end in range(len(STREAM)):
        if end not in edges:
            with pytest.raises(RemoteProtocolError, match="cut off"):
                read_frames(STREAM[:end], KNOWN)


@pytest.mark.parametrize("length", [0, 127, 128, 255, 16383, 16384, 100_000])
def test_lengths_of_one_two_and_three_bytes(length: int) -> None:
    stream = frame(1, b"x" * length) + frame(1, b"end")
    assert read_frames(stream, KNOWN) == [(1, b"x" * length), (1, b"end")]
    for end in (1, 2, 3, length + 1):
        if end != 2 + length:  # that is the whole first frame where it is short
            with pytest.raises(RemoteProtocolError, match="is cut off"):
                read_frames(stream[:end], KNOWN)


def test_unknown_frames_are_skipped_where_they_allow_it() -> None:
    stream = frame(9 | SKIPPABLE, b"later") + frame(1, b"now")
    assert FrameReader(KNOWN).feed(stream) == [(1, b"now")]
    assert read_frames(stream, KNOWN) == [(1, b"now")]
    for read in (FrameReader(KNOWN).feed, lambda data: read_frames(data, KNOWN)):
        with pytest.raises(RemoteProtocolError, match="no frame of type 9 here"):
            read(frame(1, b"now") + frame(9, b"later"))


def test_a_length_beyond_the_limit_is_refused_before_its_payload_comes() -> None:
    reader = FrameReader(KNOWN, payload_bytes_max=1000)
    assert reader.feed(frame(1, b"x" * 1000)) == [(1, b"x" * 1000)]
    with pytest.raises(RemoteProtocolError, match="1001 bytes; at most 1000") as caught:
        reader.feed(b"\x01" + varint(1001))
    assert caught.value.code == 1009
    reader = FrameReader(KNOWN, payload_bytes_max=1000)
    assert reader.feed(b"\x81") == []
    with pytest.raises(RemoteProtocolError, match="at most 1000"):
        reader.feed(varint(PAYLOAD_BYTES_MAX))


def test_a_length_of_more_than_four_bytes_is_refused() -> None:
    for bomb in (b"\x01\xff\xff\xff\xff", b"\x01\x80\x80\x80\x80\x00"):
        with pytest.raises(RemoteProtocolError, match="more than 4 bytes"):
            FrameReader(KNOWN, PAYLOAD_BYTES_MAX).feed(bomb)


def test_a_large_announced_length_allocates_nothing() -> None:
    reader = FrameReader(KNOWN, PAYLOAD_BYTES_MAX)
    tracemalloc.start()
    try:
        reader.feed(b"\x01" + varint(PAYLOAD_BYTES_MAX) + b"x" * 10)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert reader.pending == 15


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_frames_or_a_protocol_error(stream: bytes, cut: int) -> None:
    def read(reader: FrameReader, *pieces: bytes) -> list[Frame] | str:
        try:
            return [one for piece in pieces for one in reader.feed(piece)]
        except RemoteProtocolError as error:
            return error.reason

    whole = read(FrameReader(KNOWN, 100), stream)
    assert read(FrameReader(KNOWN, 100), stream[:cut], stream[cut:]) == whole
