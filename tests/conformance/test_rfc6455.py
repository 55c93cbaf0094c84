"""RFC 6455 against the live listener and WebSocket stack, one socket a case."""

import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from mdserver.config.values import Address
from tests.conformance.echo import echo_server
from tests.server.raw import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawClient,
    close_payload,
    connected,
    frame,
    upgrade,
    upgraded,
)
from tests.server.serving import port_of

MESSAGE_BYTES_MAX = 300_000


@asynccontextmanager
async def echoing(*lines: str) -> AsyncIterator[RawClient]:
    server = echo_server(Address("127.0.0.1", 0), MESSAGE_BYTES_MAX)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        async with upgraded(port_of(server), *lines) as client:
            yield client
        nursery.cancel_scope.cancel()


async def refused(request: bytes) -> bytes:
    """The status line of the answer to a request, after which the server closes."""
    server = echo_server(Address("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        async with connected(port_of(server)) as client:
            await client.send(request)
            answer = await client.rest()
        nursery.cancel_scope.cancel()
    return answer.partition(b"\r\n")[0]


# Section 4: the opening handshake.


async def test_the_key_is_answered_as_in_the_example_of_section_1_3() -> None:
    server = echo_server(Address("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        async with connected(port_of(server)) as client:
            await client.send(upgrade(key=b"dGhlIHNhbXBsZSBub25jZQ=="))
            answer = (await client.until(b"\r\n\r\n")).lower()
            assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n" in answer
            assert b"sec-websocket-extensions" not in answer
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 8", b"426"),
        (b"Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\n", b"", b"400"),
        (b"AAECAwQFBgcICQoLDA0ODw==", b"AAEC", b"400"),
        (b"AAECAwQFBgcICQoLDA0ODw==", b"!!!!", b"400"),
        (b"Host: localhost\r\n", b"", b"400"),
        (b"GET ", b"POST ", b"400"),
        (b"Connection: Upgrade\r\n", b"", b"400"),
        (b"HTTP/1.1\r\n", b"HTTP/1.0\r\n", b"400"),
    ],
)
async def test_a_bad_handshake_is_refused(old: bytes, new: bytes, status: bytes) -> None:
    request = upgrade()
    assert old in request
    line = await refused(request.replace(old, new))
    assert line.split(b" ")[1] == status


# Section 5: frames.

SIZES = [0, 1, 125, 126, 127, 128, 65535, 65536, 200_000]


@pytest.mark.parametrize("size", SIZES)
async def test_binary_messages_of_every_length_form(size: int) -> None:
    payload = os.urandom(size)
    async with echoing() as client:
        await client.send(frame(BINARY, payload))
        assert await client.frame() == (BINARY, payload)


@pytest.mark.parametrize("size", SIZES)
async def test_text_messages_of_every_length_form(size: int) -> None:
    payload = b"x" * size
    async with echoing() as client:
        await client.send(frame(TEXT, payload))
        assert await client.frame() == (TEXT, payload)


async def test_a_frame_byte_by_byte() -> None:
    async with echoing() as client:
        for byte in frame(TEXT, "grüße".encode()):
            await client.send(bytes((byte,)))
        assert await client.frame() == (TEXT, "grüße".encode())


async def test_many_messages_in_one_segment_come_back_in_order() -> None:
    async with echoing() as client:
        await client.send(b"".join(frame(TEXT, b"%d" % number) for number in range(500)))
        for number in range(500):
            assert await client.frame() == (TEXT, b"%d" % number)


@pytest.mark.parametrize("pieces", [2, 3, 50])
async def test_fragments_make_one_message(pieces: int) -> None:
    async with echoing() as client:
        for index in range(pieces):
            opcode = BINARY if index == 0 else CONTINUATION
            await client.send(frame(opcode, bytes((index,)) * 10, fin=index == pieces - 1))
        expected = b"".join(bytes((index,)) * 10 for index in range(pieces))
        assert await client.frame() == (BINARY, expected)


async def test_empty_fragments_make_an_empty_message() -> None:
    async with echoing() as client:
        await client.send(frame(TEXT, fin=False) + frame(CONTINUATION, fin=False))
        await client.send(frame(CONTINUATION))
        assert await client.frame() == (TEXT, b"")


async def test_control_frames_between_fragments() -> None:
    async with echoing() as client:
        await client.send(frame(TEXT, b"a", fin=False) + frame(PING, b"one"))
        assert await client.frame() == (PONG, b"one")
        await client.send(frame(PONG, b"unasked") + frame(CONTINUATION, b"b"))
        assert await client.frame() == (TEXT, b"ab")


async def test_a_character_split_over_fragments() -> None:
    encoded = "€".encode()
    async with echoing() as client:
        await client.send(frame(TEXT, encoded[:1], fin=False))
        await client.send(frame(CONTINUATION, encoded[1:2], fin=False))
        await client.send(frame(CONTINUATION, encoded[2:]))
        assert await client.frame() == (TEXT, encoded)


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(125))])
async def test_a_ping_is_answered_with_its_payload(payload: bytes) -> None:
    async with echoing() as client:
        await client.send(frame(PING, payload))
        assert await client.frame() == (PONG, payload)


VIOLATIONS = {
    "reserved bit 1": frame(TEXT, b"x", reserved=4),
    "reserved bit 2": frame(TEXT, b"x", reserved=2),
    "reserved bit 3": frame(TEXT, b"x", reserved=1),
    "reserved bit in a control frame": frame(PING, b"x", reserved=4),
    "opcode 3": frame(3, b"x"),
    "opcode 7": frame(7, b"x"),
    "opcode 11": frame(11, b"x"),
    "opcode 15": frame(15, b"x"),
    "no mask": frame(TEXT, b"x", mask=None),
    "fragmented ping": frame(PING, b"x", fin=False),
    "ping of 126 bytes": frame(PING, b"x" * 126),
    "continuation of nothing": frame(CONTINUATION, b"x"),
    "text within a message": frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"),
    "length in more bytes than needed": (
        bytes((0x81, 0x80 | 126)) + struct.pack("!H", 5) + b"\0\0\0\0hello"
    ),
    "length in eight bytes, needlessly": (
        bytes((0x81, 0x80 | 127)) + struct.pack("!Q", 5) + b"\0\0\0\0hello"
    ),
    "close of one byte": frame(CLOSE, b"\x03"),
    "close code 999": frame(CLOSE, close_payload(999)),
    "close code 1004": frame(CLOSE, close_payload(1004)),
    "close code 1005": frame(CLOSE, close_payload(1005)),
    "close code 1006": frame(CLOSE, close_payload(1006)),
    "close code 1015": frame(CLOSE, close_payload(1015)),
    "close code 2999": frame(CLOSE, close_payload(2999)),
    "close code 5000": frame(CLOSE, close_payload(5000)),
}


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_closes_with_1002(name: str) -> None:
    async with echoing() as client:
        await client.send(VIOLATIONS[name])
        assert await client.closed_with() == 1002


# Section 5.5.1 and 7: closing.


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
)
async def test_a_close_is_answered_with_its_code(code: int) -> None:
    async with echoing() as client:
        await client.send(frame(CLOSE, close_payload(code, b"bye")))
        assert await client.closed_with() == code


async def test_a_close_without_a_code_is_answered_without_one() -> None:
    async with echoing() as client:
        await client.send(frame(CLOSE))
        assert await client.closed_with() == 1005


async def test_what_comes_after_a_close_is_ignored() -> None:
    async with echoing() as client:
        await client.send(frame(TEXT, b"before"))
        await client.send(frame(CLOSE, close_payload(1000)) + frame(TEXT, b"after"))
        assert await client.frame() == (TEXT, b"before")
        assert await client.closed_with() == 1000


async def test_a_close_reason_that_is_no_utf8() -> None:
    async with echoing() as client:
        await client.send(frame(CLOSE, close_payload(1000, b"\xff\xfe")))
        assert await client.closed_with() == 1007


# Section 8.1: UTF-8, found wrong as early as it is wrong.

INVALID = {
    "a lone continuation byte": b"\x80",
    "an overlong slash": b"\xc0\xaf",
    "an overlong slash of three bytes": b"\xe0\x80\xaf",
    "half of a surrogate pair": b"\xed\xa0\x80",
    "beyond U+10FFFF": b"\xf4\x90\x80\x80",
    "a byte that begins nothing": b"\xff",
    "cut off": b"\xe2\x82",
}


@pytest.mark.parametrize("name", INVALID)
async def test_text_that_is_no_utf8_closes_with_1007(name: str) -> None:
    async with echoing() as client:
        await client.send(frame(TEXT, b"ok " + INVALID[name]))
        assert await client.closed_with() == 1007


@pytest.mark.parametrize("name", [name for name in INVALID if name != "cut off"])
async def test_bad_utf8_in_a_fragment_is_found_before_the_message_ends(name: str) -> None:
    async with echoing() as client:
        await client.send(frame(TEXT, b"ok", fin=False))
        await client.send(frame(CONTINUATION, INVALID[name], fin=False))
        assert await client.closed_with() == 1007


async def test_a_character_cut_off_at_the_end_of_a_fragmented_message() -> None:
    async with echoing() as client:
        await client.send(frame(TEXT, b"\xe2", fin=False) + frame(CONTINUATION, b"\x82"))
        assert await client.closed_with() == 1007


# Section 10.4: limits.


async def test_the_largest_message_passes_and_one_byte_more_closes_with_1009() -> None:
    async with echoing() as client:
        await client.send(frame(BINARY, bytes(MESSAGE_BYTES_MAX)))
        assert await client.frame() == (BINARY, bytes(MESSAGE_BYTES_MAX))
        await client.send(frame(BINARY, bytes(10), length=MESSAGE_BYTES_MAX + 1))
        assert await client.closed_with() == 1009


async def test_fragments_are_counted_together() -> None:
    async with echoing() as client:
        await client.send(frame(BINARY, bytes(MESSAGE_BYTES_MAX), fin=False))
        await client.send(frame(CONTINUATION, b"x"))
        assert await client.closed_with() == 1009


async def test_a_length_of_63_bits_takes_no_memory() -> None:
    async with echoing() as client:
        await client.send(frame(BINARY, b"", length=2**63 - 1))
        assert await client.closed_with() == 1009
