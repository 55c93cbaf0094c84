"""TLS in memory: connections that share its buffers get their own bytes and nothing else."""

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from mdserver.limits import KB, OWED_RECORDS_BYTES_MAX, RECORDS_WITHOUT_DATA_BYTES_MAX
from mdserver.server.encrypted import RECEIVE_BYTES, EncryptedSocket, RecordBuffers
from mdserver.server.tls import KeyStore, server_context
from tests.server.certificates import make_certificate
from tests.server.tls_peer import Peer, shaken


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "server.pem")


class Shared:
    """The server's side of connections that share their buffers."""

    def __init__(self, pem: Path) -> None:
        self.pem = pem
        self.context = server_context(KeyStore(pem))
        self.buffers = RecordBuffers()
        self.peers: list[Peer] = []

    def assert_empty(self) -> None:
        assert self.buffers.incoming.pending == 0
        assert self.buffers.outgoing.pending == 0

    async def connect(
        self,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        after: bytes = b"",
        raw: bytes = b"",
    ) -> tuple[EncryptedSocket, Peer]:
        """A connection after its handshake, with whose end came a record of `after`, and `raw`."""
        peer = Peer(self.pem, version)
        self.peers.append(peer)
        encrypted = EncryptedSocket(peer.near, self.context, self.buffers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(encrypted.shake_hands)
            await shaken(peer, self.assert_empty)
            if after:
                peer.far.send(peer.records(after) + raw)
        return encrypted, peer


@pytest.fixture
def shared(pem: Path) -> Iterator[Shared]:
    made = Shared(pem)
    yield made
    made.assert_empty()
    for peer in made.peers:
        peer.close()


def read(encrypted: EncryptedSocket, size: int = 64 * KB) -> bytes | None:
    """What is received now; None if nothing is there."""
    buffer = bytearray(size)
    try:
        return bytes(buffer[: encrypted.recv_into(buffer)])
    except (ssl.SSLWantReadError, BlockingIOError):
        return None


async def test_handshakes_and_records_of_many_clients_are_not_mixed(shared: Shared) -> None:
    """Thirty clients act in any order, and a record may come in pieces."""
    rng = random.Random(7)
    connections: list[tuple[EncryptedSocket, Peer]] = []

    async def one(version: ssl.TLSVersion) -> None:
        connections.append(await shared.connect(version))

    async with trio.open_nursery() as nursery:
        for number in range(30):
            old = ssl.TLSVersion.TLSv1_2 if number % 3 else ssl.TLSVersion.TLSv1_3
            nursery.start_soon(one, old)
    on_way = [b""] * len(connections)  # records of which the server has not been given all
    said, heard = [b""] * len(connections), [b""] * len(connections)
    for turn in range(2000):
        at = rng.randrange(len(connections))
        encrypted, peer = connections[at]
        if rng.random() < 0.5:
            wire = b"%d to %d;" % (turn, at) * rng.choice((1, 50, 3000))
            peer.far.setblocking(False)
            for start in range(0, len(records := encrypted.seal(wire)), 50_000):
                assert peer.near.send(records[start : start + 50_000])
                peer.take()
            assert peer.read() == wire
        else:
            if not on_way[at]:
                more = b"%d of %d;" % (turn, at) * rng.choice((1, 100, 2500))
                said[at] += more
                on_way[at] = peer.records(more)
            size = rng.choice((1, 5, 1000, len(on_way[at])))
            peer.far.send(on_way[at][:size])
            on_way[at] = on_way[at][size:]
            heard[at] += read(encrypted, rng.choice((100, 64 * KB))) or b""
        shared.assert_empty()
    for at, (encrypted, peer) in enumerate(connections):
        peer.far.send(on_way[at])
        while (rest := read(encrypted)) is not None:
            heard[at] += rest
    assert heard == said


async def test_what_comes_with_the_end_of_the_handshake_is_kept(shared: Shared) -> None:
    encrypted, _ = await shared.connect(after=b"early")
    assert encrypted.pending()
    assert (read(encrypted, 2), read(encrypted, 9)) == (b"ea", b"rly")
    assert not encrypted.pending()


async def test_one_read_takes_all_that_may_have_come(shared: Shared) -> None:
    """What is read at a time, after all but a byte of a record, has two records' data at once."""
    encrypted, peer = await shared.connect()
    records = b"".join(peer.records(b"x" * 16384) for _ in range(4))
    record = len(records) // 4
    peer.far.send(records[: record - 1])
    assert read(encrypted) is None
    peer.far.send(records[record - 1 :][:RECEIVE_BYTES])
    received = read(encrypted)
    assert received == b"x" * 2 * 16384
    peer.far.send(records[record - 1 :][RECEIVE_BYTES:])
    while len(received) < 4 * 16384:
        received += read(encrypted) or b""
    assert received == b"x" * 4 * 16384
    assert not encrypted.pending()


async def test_messages_of_tls_itself_have_an_end(shared: Shared) -> None:
    """A client that sends new keys and no data is gone after one record's length of them."""
    (encrypted, peer), (good, other) = await shared.connect(), await shared.connect()
    peer.far.send(peer.key_updates(40_000))
    assert read(encrypted) is None
    with pytest.raises(ssl.SSLError, match="without data"):
        read(encrypted)
    shared.assert_empty()
    other.far.send(other.key_updates(1) + other.records(b"1"))
    assert read(good) == b"1"


async def test_records_without_data_are_counted_with_the_data_that_follows(shared: Shared) -> None:
    """Data of one byte does not have more taken in at a time, and what came with it has a cost."""
    encrypted, peer = await shared.connect()
    for _ in range(3):
        updates = peer.key_updates(RECORDS_WITHOUT_DATA_BYTES_MAX // 2)
        record = peer.records(b"1")
        peer.far.send(updates)
        assert read(encrypted) is None
        peer.far.send(record)
        assert read(encrypted) == b"1"
        assert encrypted.cost == len(updates) + len(record)


async def test_new_keys_are_answered_with_new_keys(shared: Shared) -> None:
    """What OpenSSL says on its own goes out at once, or waits while a record was sent in part."""
    encrypted, peer = await shared.connect()
    peer.read()
    for halfway in (False, True):
        encrypted.halfway = halfway
        for _ in range(3):  # OpenSSL answers the one before
            peer.far.send(peer.key_updates(1, answer=True) + peer.records(b"1"))
            assert read(encrypted) == b"1"
        assert bool(encrypted.owed) is halfway
        peer.take()
        assert bool(peer.incoming.pending) is not halfway
        peer.near.send(encrypted.seal(b"after"))
        assert encrypted.owed == b""
        assert peer.read() == b"after"


async def test_a_client_that_asks_for_new_keys_and_reads_none_has_an_end(shared: Shared) -> None:
    encrypted, peer = await shared.connect()
    encrypted.halfway = True
    while len(encrypted.owed) + 27 <= OWED_RECORDS_BYTES_MAX:
        peer.far.send(peer.key_updates(1, answer=True) + peer.records(b"1"))
        assert read(encrypted) == b"1"
    peer.far.send(peer.key_updates(1, answer=True) + peer.records(b"1"))
    with pytest.raises(ssl.SSLError, match="does not read"):
        read(encrypted)


async def test_a_forged_record_ends_one_connection_with_an_alert(shared: Shared) -> None:
    (bad, forger), (good, peer) = await shared.connect(), await shared.connect()
    forger.far.send(FORGED + b"and more")
    with pytest.raises(ssl.SSLError, match="DECRYPTION_FAILED"):
        read(bad)
    shared.assert_empty()
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        forger.read()
    with pytest.raises(ssl.SSLError):
        bad.seal(b"more")
    shared.assert_empty()
    peer.far.send(peer.records(b"1"))
    assert read(good) == b"1"


FORGED = b"\x17\x03\x03\x00\x20" + bytes(32)


@pytest.mark.parametrize("size", [1, 64 * KB], ids=["in parts", "at once"])
async def test_data_before_a_forged_record_is_not_lost(shared: Shared, size: int) -> None:
    """The client is told at once, and who reads learns of it after the data."""
    encrypted, peer = await shared.connect()
    peer.read()
    peer.far.send(peer.records(b"la") + peer.records(b"st") + FORGED)
    heard = b""
    while len(heard) < 4:
        heard += read(encrypted, size) or b""
    assert heard == b"last"
    shared.assert_empty()
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        peer.read()
    for _ in range(2):
        assert encrypted.pending()
        with pytest.raises(ssl.SSLError, match="DECRYPTION_FAILED"):
            read(encrypted, size)


async def test_data_before_a_forged_record_with_the_end_of_the_handshake(shared: Shared) -> None:
    encrypted, _ = await shared.connect(after=b"early", raw=FORGED)
    assert read(encrypted) == b"early"
    with pytest.raises(ssl.SSLError, match="DECRYPTION_FAILED"):
        read(encrypted)


async def test_nothing_is_said_into_the_middle_of_a_record(shared: Shared) -> None:
    encrypted, peer = await shared.connect()
    peer.read()
    records = encrypted.seal(b"half")
    encrypted.halfway = True
    peer.near.send(records[:5])
    with pytest.raises(BlockingIOError):
        encrypted.send(b"last words")
    encrypted.say_goodbye()
    peer.near.send(records[5:])
    assert peer.read() == b"half"


async def test_after_last_words_that_were_refused_nothing_is_said(shared: Shared) -> None:
    """The records were made, so the client cannot read any that come after them."""
    encrypted, peer = await shared.connect()
    peer.read()
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += peer.near.send(bytes(64 * KB))
    with pytest.raises(BlockingIOError):
        encrypted.send(b"last words")
    while filled:
        filled -= len(peer.far.recv(64 * KB))
    encrypted.say_goodbye()
    with pytest.raises(BlockingIOError):
        peer.far.recv(1)


async def test_a_client_that_says_goodbye_is_at_its_end(shared: Shared) -> None:
    """Also if its `close_notify` came with its last bytes."""
    encrypted, peer = await shared.connect()
    last = peer.records(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    peer.far.send(last + peer.outgoing.read())
    assert read(encrypted) == b"last"
    assert encrypted.pending()
    assert read(encrypted) == b""


@pytest.mark.parametrize("halfway", [False, True])
async def test_goodbye_is_said_unless_a_record_was_sent_in_part(
    shared: Shared, halfway: bool
) -> None:
    encrypted, peer = await shared.connect()
    peer.read()
    encrypted.halfway = halfway
    for _ in range(2):
        encrypted.say_goodbye()
    peer.take()
    assert bool(peer.incoming.pending) is not halfway


async def test_what_tls_itself_has_to_say_goes_before_the_next_record(shared: Shared) -> None:
    """And a client cannot have it say more and more without reading it."""
    encrypted, peer = await shared.connect(ssl.TLSVersion.TLSv1_2)
    encrypted.owed = b"alert"
    assert encrypted.seal(b"1").startswith(b"alert\x17")
    assert encrypted.owed == b""
    encrypted.owed = bytes(OWED_RECORDS_BYTES_MAX + 1)
    encrypted.halfway = True
    peer.far.send(peer.records(b"1"))
    with pytest.raises(ssl.SSLError, match="does not read"):
        read(encrypted)


async def test_a_client_that_leaves_during_the_handshake(shared: Shared) -> None:
    peer = Peer(shared.pem)
    shared.peers.append(peer)
    encrypted = EncryptedSocket(peer.near, shared.context, shared.buffers)
    peer.shake()
    peer.far.shutdown(socket.SHUT_WR)
    with pytest.raises(ssl.SSLEOFError):
        await encrypted.shake_hands()
