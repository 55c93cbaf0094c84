"""An outbox over a real socket whose other end reads when the test wants it to."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from mdserver import limits
from mdserver.config import FanoutEngine
from mdserver.core.events import Connected, Delivery, Pong
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.core.outputs import Deliver
from mdserver.limits import NS_PER_MS, SUBPROTOCOL_JSON
from mdserver.server.clients import flusher
from mdserver.server.clients.fanout import Sent, open_fanout
from mdserver.server.clients.flusher import flush_all
from mdserver.server.clients.forms import WEBSOCKET_FORMS
from mdserver.server.clients.outbox import Outbox, SessionView
from mdserver.server.clients.traffic import Traffic
from mdserver.server.encrypted import EncryptedSocket, RecordBuffers
from mdserver.server.tls import KeyStore, server_context
from tests.server.certificates import make_certificate
from tests.server.tls_peer import Peer, shaken

Flush = Callable[[list[Outbox]], None]
TRAFFIC = Traffic()  # one for all, as in a server
BUFFERS = RecordBuffers()
FORM = WEBSOCKET_FORMS[SUBPROTOCOL_JSON]


class Owner:
    """Notes what the outbox asks for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.keepalive = 0

    def keepalive_agreed(self, keepalive: int) -> None:
        self.keepalive = keepalive

    def parked(self) -> None:
        self.asked.append("parked")

    def lost(self, reason: str) -> None:
        self.asked.append("lost")

    def outbox_overflow(self) -> None:
        self.asked.append("overflowed")

    def failed(self) -> None:
        self.asked.append("failed")

    def catch_up_overflow(self) -> None:
        self.asked.append("overwhelmed")

    def close(self, code: int, reason: str) -> None:
        self.asked.append(f"close {code}")

    def view(self, now: int) -> SessionView:
        raise NotImplementedError


class Pair:
    """An outbox and the other end of its socket, over TLS if there is a certificate."""

    certificate: Path | None = None

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.owner = Owner()
        if self.certificate is None:
            self.near, self.far = socket.socketpair()
            self.near.setblocking(False)
            self.far.setblocking(False)
            sock: socket.socket | EncryptedSocket = self.near
        else:
            self.peer = Peer(self.certificate)
            self.near, self.far = self.peer.near, self.peer.far
            sock = trio.run(self._encrypted, self.peer, self.certificate)
        self.outbox = Outbox(1, FORM, sock, self.owner, 100_000, TRAFFIC)

    async def _encrypted(self, peer: Peer, certificate: Path) -> EncryptedSocket:
        context = server_context(KeyStore(certificate))
        encrypted = EncryptedSocket(self.near, context, BUFFERS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(encrypted.shake_hands)
            await shaken(peer)
        return encrypted

    def read(self) -> bytes:
        if self.peer is not None:
            return self.peer.read()
        received = b""
        try:
            while part := self.far.recv(1_000_000):
                received += part
        except BlockingIOError:
            pass
        return received


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "server.pem")


@pytest.fixture(params=["TCP", "TLS"], autouse=True)
def over(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, pem: Path
) -> Iterator[None]:
    monkeypatch.setattr(Pair, "certificate", pem if request.param == "TLS" else None)
    yield
    assert BUFFERS.incoming.pending == BUFFERS.outgoing.pending == 0


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    with made.near, made.far:
        yield made


@pytest.fixture
def flush(fanout_engine: FanoutEngine) -> Flush:
    """What the flusher does, with each engine."""
    return partial(flush_all, send=open_fanout(fanout_engine).send)


def message(seq: int, length: int = 10) -> Delivery:
    return Delivery(Entry(1, seq, Publication("/a/b", b"x" * length)), MessageType.UPDATE)


def wire(*frames: bytes) -> bytes:
    return FORM.wire(list(frames))


def test_frames_go_out_under_one_header(pair: Pair, flush: Flush) -> None:
    assert pair.outbox.append(b"1")
    assert not pair.outbox.append(b"2")
    flush([pair.outbox])
    assert pair.read() == wire(b"1", b"2")
    assert pair.outbox.bytes_waiting == 0
    assert pair.owner.asked == []


def test_a_refused_send_parks_and_drains_without_loss(pair: Pair, flush: Flush) -> None:
    big = b"1" * 3_000_000
    pair.outbox.append(big)
    flush([pair.outbox])
    assert pair.owner.asked == ["parked"]
    assert pair.outbox.put(message(1)) is False
    assert pair.outbox.queue_while_parked([Deliver(message(2), [1])])
    assert pair.outbox.append(b"3") is False
    received = pair.read()
    while not pair.outbox.drain():
        received += pair.read()
    received += pair.read()
    last = wire(FORM.delivery(message(1)), FORM.delivery(message(2)), b"3")
    assert received == wire(big) + last
    assert (pair.outbox.bytes_waiting, pair.outbox.limit) == (0, 100_000)


def test_records_are_made_as_the_socket_takes_them(pair: Pair, flush: Flush) -> None:
    """What waits is encrypted write by write, and counted as sent no sooner."""
    whole = wire(b"1" * 3_000_000)
    before = TRAFFIC.sent
    pair.outbox.append(b"1" * 3_000_000)
    flush([pair.outbox])
    received = b""
    while not pair.outbox.drain():
        received += pair.read()
        sent = TRAFFIC.sent - before
        assert sent <= len(received) + 1_000_000  # buffers of the kernel, and one write
        assert len(whole) - sent <= pair.outbox.bytes_waiting <= len(whole) - sent + 70_000
    assert received + pair.read() == whole
    assert TRAFFIC.sent - before == len(whole)
    assert pair.outbox.bytes_waiting == 0


def test_a_pong_waits_behind_at_most_one_write(pair: Pair, flush: Flush) -> None:
    pair.outbox.append(b"1" * 3_000_000)
    flush([pair.outbox])
    pair.outbox.put(message(1))
    pair.outbox.send_control(b"older")
    pair.outbox.send_control(b"newer")
    received = b""
    while not pair.outbox.drain():
        received += pair.read()
    received += pair.read()
    assert b"older" not in received
    assert received.endswith(b"newer" + wire(FORM.delivery(message(1))))


def test_finish_sends_what_waits_and_then_the_last(pair: Pair) -> None:
    pair.outbox.append(b"1")
    pair.outbox.finish(b"bye")
    assert pair.read() == wire(b"1") + b"bye"


def test_finish_with_drop_sends_the_last_alone(pair: Pair) -> None:
    pair.outbox.append(b"1")
    pair.outbox.finish(b"bye", drop=True)
    assert pair.read() == b"bye"


def test_live_messages_beyond_the_limit_are_too_much_and_answers_are_not(
    pair: Pair, flush: Flush
) -> None:
    pair.outbox.append(b"1" * 3_000_000)
    flush([pair.outbox])
    for seq in range(20):
        pair.outbox.put(message(seq, 10_000))
    assert pair.outbox.queue_while_parked([Deliver(message(20, 10_000), [1])])
    assert not pair.outbox.queue_while_parked([Deliver(message(21, 200_000), [1])])


def test_catching_up_has_an_end(pair: Pair) -> None:
    for seq in range(limits.CATCH_UP_BYTES_MAX // 1_000_000 + 1):
        pair.outbox.put(message(seq, 1_000_000))
    assert pair.owner.asked == []
    pair.outbox.put(message(99))
    assert pair.owner.asked == ["overwhelmed"]


def test_a_broken_socket_is_told(pair: Pair, flush: Flush) -> None:
    pair.far.close()
    pair.outbox.append(b"1")
    flush([pair.outbox])
    assert pair.owner.asked == ["lost"]


def test_the_keepalive_that_was_agreed(pair: Pair) -> None:
    pair.outbox.put(
        Connected(
            session="1",
            member="m",
            version=1,
            history="h",
            groups=1,
            keepalive_ms=5,
            message_bytes_max=1,
        )
    )
    assert pair.owner.keepalive == 5 * NS_PER_MS


def test_outboxes_with_the_same_frames_share_what_is_sent(flush: Flush) -> None:
    pairs = [Pair() for _ in range(3)]
    try:
        frame = FORM.event(Pong(t=msgspec.Raw(b"1")))
        for pair in pairs:
            pair.outbox.append(frame)
        pairs[1].outbox.append(b"more")
        flush([pair.outbox for pair in pairs])
        assert [pair.read() for pair in pairs] == [
            wire(frame),
            wire(frame, b"more"),
            wire(frame),
        ]
    finally:
        for pair in pairs:
            pair.near.close()
            pair.far.close()


def test_a_bound_on_records_does_not_divide_what_needs_none(fanout_engine: FanoutEngine) -> None:
    """Records are made for each client; others share the bytes, and go out with one call."""
    send = open_fanout(fanout_engine).send
    if send is None:
        pytest.skip("this engine has a call for each client")
    calls: list[int] = []

    def counted(wires: list[bytes], socks: list[socket.socket]) -> Sent:
        calls.append(len(socks))
        return send(wires, socks)

    pairs = [Pair() for _ in range(20)]
    try:
        for pair in pairs:
            pair.outbox.append(b"1" * 60_000)
        flush_all([pair.outbox for pair in pairs], counted)
        assert calls == ([20] if Pair.certificate is None else [18, 2])
        assert all(pair.read() == wire(b"1" * 60_000) for pair in pairs)
    finally:
        for pair in pairs:
            pair.near.close()
            pair.far.close()


def test_what_is_added_to_a_session_that_fails_is_not_taken_from_others(
    flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's records fail; the second is broken, and its owner tells the others more."""
    monkeypatch.setattr(flusher, "SENT_TOGETHER_BYTES_MAX", 1)
    pairs = [Pair() for _ in range(4)]
    failing, broken, *good = pairs
    try:
        if failing.outbox.tls is None:
            failing.near.close()
        else:
            failing.far.send(b"\x17\x03\x03\x00\x20" + bytes(32))
            with suppress(ssl.SSLError):
                failing.outbox.tls.recv(1)
        broken.far.close()

        def lost(reason: str) -> None:
            for pair in (failing, *good):
                pair.outbox.append(b"2")

        broken.owner.lost = lost  # type: ignore[method-assign]
        for pair in pairs:
            pair.outbox.append(b"1")
        for _ in range(2):
            flush([pair.outbox for pair in pairs])
        assert failing.owner.asked[:1] == ["lost"]
        for pair in good:
            assert pair.read() in (wire(b"1", b"2"), wire(b"1") + wire(b"2"))
    finally:
        for pair in pairs:
            pair.near.close()
            pair.far.close()


def test_a_parked_outbox_keeps_what_it_was_not_sent(flush: Flush) -> None:
    """Some take everything, some a part, and one is broken: each has what it is due, in order."""
    pairs = [Pair() for _ in range(6)]
    big = b"1" * 60_000
    before = TRAFFIC.sent
    try:
        for at in (1, 4):
            pairs[at].near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        pairs[2].far.close()
        for pair in pairs:
            pair.outbox.append(big)
        outboxes = [pair.outbox for pair in pairs]
        flush(outboxes)
        assert [pair.owner.asked for pair in pairs] == [
            [],
            ["parked"],
            ["lost"],
            [],
            ["parked"],
            [],
        ]
        for pair in pairs:
            pair.outbox.send_control(b"!")
            pair.outbox.append(b"2")
        flush(outboxes)
        for at in (0, 3, 5):
            assert pairs[at].read() == wire(big) + b"!" + wire(b"2")
        for at in (1, 4):
            received = pairs[at].read()
            while not pairs[at].outbox.drain():
                received += pairs[at].read()
            assert received + pairs[at].read() == wire(big) + b"!" + wire(b"2")
        # What is encrypted counts when it is, that of the broken one as well.
        counted = 5 if Pair.certificate is None else 6
        assert TRAFFIC.sent - before == counted * len(wire(big) + b"!" + wire(b"2"))
    finally:
        for pair in pairs:
            pair.near.close()
            pair.far.close()


def test_what_an_owner_sends_when_it_is_told_overtakes_nothing(flush: Flush) -> None:
    """The first one is broken, and its owner has a message put into the others at once."""
    pairs = [Pair() for _ in range(3)]
    try:
        pairs[0].far.close()
        pairs[1].near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        others = [pair.outbox for pair in pairs[1:]]

        def lost(reason: str) -> None:
            for outbox in others:
                outbox.append(b"2")
            flush(others)

        pairs[0].owner.lost = lost  # type: ignore[method-assign]
        for pair in pairs:
            pair.outbox.append(b"1" * 60_000)
        flush([pair.outbox for pair in pairs])
        flush(others)
        for pair in pairs[1:]:
            received = pair.read()
            while not pair.outbox.drain():
                received += pair.read()
            received += pair.read()
            big = b"1" * 60_000
            assert received in (wire(big) + wire(b"2"), wire(big, b"2"))
    finally:
        for pair in pairs:
            pair.near.close()
            pair.far.close()


def test_a_closed_socket_ends_its_session_alone(pair: Pair, flush: Flush) -> None:
    other = Pair()
    with other.near, other.far:
        for each in (pair, other):
            each.outbox.append(b"1")
        pair.near.close()
        flush([pair.outbox, other.outbox])
        assert (pair.owner.asked, other.owner.asked) == (["lost"], [])
        assert other.read() == wire(b"1")
