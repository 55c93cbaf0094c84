"""Peer links over real sockets: members meet, strangers are refused, nobody else notices."""

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from mdserver.cluster.messages import Readmit
from mdserver.cluster.node import TICK, Node
from mdserver.cluster.settings import ClusterSettings
from mdserver.codec.frames import frame
from mdserver.codec.peer import GREETING, MESSAGE, Greeting, Handshake, Side, message_frame
from mdserver.config.values import Address
from mdserver.core.inputs import TimerDue
from mdserver.core.outputs import Log
from mdserver.core.settings import BrokerSettings
from mdserver.errors import RemoteProtocolError
from mdserver.net.clock import process_clock
from mdserver.net.engine import Engine
from mdserver.net.flusher import Flusher
from mdserver.net.peers import Peers, PeerSettings
from mdserver.net.server import run_timers
from mdserver.net.votes import VoteFile, VoteWriter

GROUPS = 4
PASSWORD = "shared by the members"


class Complaints:
    """A log that keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, event: str, **values: object) -> None:
        self.lines.append(f"{event} {values}")

    def exception(self, event: str, **values: object) -> None:
        self.lines.append(f"BUG {event} {values}")


class Member:
    """One member in this process, with real links and a real vote file."""

    def __init__(
        self,
        folder: object,
        addresses: tuple[Address, ...],
        index: int,
        bind: Address | None = None,
    ) -> None:
        self.me = addresses[index]
        names = tuple(str(address) for address in addresses)
        file = VoteFile(folder, str(self.me))  # type: ignore[arg-type]
        votes, _ = file.start(str(self.me), "test", GROUPS)
        cluster = ClusterSettings(str(self.me), names)
        self.node = Node(BrokerSettings(groups=GROUPS), random.Random(index), cluster, votes)
        self.engine = Engine(self.node, process_clock(), Flusher())
        self.log = Complaints()
        self.joined = trio.Event()
        self.engine.carry(Log, self._logged)
        settings = PeerSettings(
            listen=self.me, bind=bind or self.me, members=addresses, seeds=cluster.seeds,
            groups=GROUPS, mode="Guaranteed", password=PASSWORD,
        )  # fmt: skip
        self.peers = Peers(settings, self.engine, self.log)
        self.writer = VoteWriter(file, self.engine)

    def _logged(self, output: Log) -> None:
        if output.name == "joined":
            self.joined.set()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_timers, self.engine)
            nursery.start_soon(self.writer.run)
            await nursery.start(self.peers.run)
            self.engine.dispatch(TimerDue(TICK))
            task_status.started()


def free_addresses(count: int) -> tuple[Address, ...]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = tuple(Address("127.0.0.1", sock.getsockname()[1]) for sock in sockets)
    for sock in sockets:
        sock.close()
    return addresses


@asynccontextmanager
async def cluster(folder: object) -> AsyncIterator[list[Member]]:
    """Three members that are ready."""
    addresses = free_addresses(3)
    members = [Member(folder, addresses, index) for index in range(3)]
    async with trio.open_nursery() as nursery:
        for member in members:
            await nursery.start(member.run)
        with trio.fail_after(20):
            for member in members:
                await member.joined.wait()
        yield members
        nursery.cancel_scope.cancel()


async def closed_by_member(stream: trio.SocketStream) -> bytes:
    """Everything that a member sends until it closes."""
    received = b""
    with trio.fail_after(10):
        try:
            while data := await stream.receive_some():
                received += bytes(data)
        except trio.BrokenResourceError:
            pass
    return received


async def shake_hands(stream: trio.SocketStream, handshake: Handshake) -> None:
    while not handshake.done:
        data = await stream.receive_some()
        assert data, "the member closed without a word"
        await stream.send_all(handshake.feed(bytes(data)))


async def test_members_meet_and_strangers_are_refused(tmp_path: object) -> None:
    async with cluster(tmp_path) as members:
        member = members[0]
        greeting = Greeting("127.0.0.1:1", b"n" * 32, GROUPS,
                            [str(m.me) for m in members], "Guaranteed")  # fmt: skip
        stranger = Handshake(Side.DIALER, greeting, "guessed")
        attempts = [
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" * 4096,
            frame(GREETING, b"\xc1"),
            frame(MESSAGE, b"x" * 70_000),
            message_frame(Readmit("127.0.0.1:1", 9)),
            stranger.begin() + frame(MESSAGE, b"\x90"),
        ]
        for attempt in attempts:
            stream = await trio.open_tcp_stream("127.0.0.1", member.me.port)
            async with stream:
                await stream.send_all(attempt)
                await closed_by_member(stream)
        assert all(len(m.node.ground.linked()) == 2 for m in members)
        assert any("no link" in line for line in member.log.lines)
        assert not [line for m in members for line in m.log.lines if line.startswith("BUG")]


async def test_a_member_may_listen_where_others_do_not_call_it(tmp_path: object) -> None:
    *addresses, bind = free_addresses(4)
    member = Member(tmp_path, tuple(addresses), 0, bind)
    async with trio.open_nursery() as nursery:
        await nursery.start(member.run)
        with pytest.raises(OSError, match=r"refused|connect"):
            await trio.open_tcp_stream("127.0.0.1", member.me.port)
        async with await trio.open_tcp_stream("127.0.0.1", bind.port) as stream:
            expected = str(member.me)
            names = [str(address) for address in addresses]
            greeting = Greeting(names[1], b"n" * 32, GROUPS, names, "Guaranteed")
            handshake = Handshake(Side.DIALER, greeting, PASSWORD, expected)
            await stream.send_all(handshake.begin())
            with trio.fail_after(10):
                await shake_hands(stream, handshake)
            assert handshake.peer == expected
        nursery.cancel_scope.cancel()


async def test_a_wrong_password_is_told_and_logged_but_never_shown(tmp_path: object) -> None:
    async with cluster(tmp_path) as members:
        greeting = Greeting("127.0.0.1:1", b"n" * 32, GROUPS,
                            [str(m.me) for m in members], "Guaranteed")  # fmt: skip
        handshake = Handshake(Side.DIALER, greeting, "guessed")
        stream = await trio.open_tcp_stream("127.0.0.1", members[0].me.port)
        async with stream:
            await stream.send_all(handshake.begin())
            with trio.fail_after(10), pytest.raises(RemoteProtocolError, match="ClusterPassword"):
                await shake_hands(stream, handshake)
        assert not handshake.done
        assert PASSWORD not in "".join(members[0].log.lines)


async def test_a_caller_that_says_nothing_is_let_go(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.net.peers.PEER_HANDSHAKE_TIMEOUT_S", 0.2)
    async with cluster(tmp_path) as members:
        stream = await trio.open_tcp_stream("127.0.0.1", members[0].me.port)
        async with stream:
            received = await closed_by_member(stream)
        assert received  # its greeting, and then the end
