"""Peer links over real sockets: members meet, strangers are refused, nobody else notices."""

import pytest
import trio
import trio.testing

from mdserver.cluster.messages import HandOver, Hello, PeerReceived
from mdserver.codec.frames import frame
from mdserver.codec.peer import GREETING, MESSAGE, Greeting, Handshake, Side, message_frame
from mdserver.errors import RemoteProtocolError
from tests.net.members import GROUPS, PASSWORD, Member, cluster, free_addresses


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


async def test_members_meet_and_strangers_are_refused(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.net.peers.PEER_HANDSHAKE_TIMEOUT_S", 1)
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
            message_frame(HandOver([9])),
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
    member = Member(tmp_path, tuple(addresses), 0, bind=bind)
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


async def test_two_members_that_no_list_names_hear_of_each_other(tmp_path: object) -> None:
    *seeds, fourth, fifth = free_addresses(5)
    members = [Member(tmp_path, tuple(seeds), index) for index in range(3)]
    members += [Member(tmp_path, (*seeds, other), 3) for other in (fourth, fifth)]
    async with trio.open_nursery() as nursery:
        for member in members:
            await nursery.start(member.run)
        with trio.fail_after(60):
            while {len(member.node.ground.linked()) for member in members} != {4}:
                await trio.testing.wait_all_tasks_blocked(0.01)
            for member in members:
                await member.joined.wait()
        nursery.cancel_scope.cancel()


async def test_an_address_that_is_none_is_complained_of_once(tmp_path: object) -> None:
    async with cluster(tmp_path) as members:
        for _ in range(2):
            members[0].engine.dispatch(
                PeerReceived(str(members[1].me), [Hello(1, False, "", {}, ["nowhere:at:all"])])
            )
        lines = [line for line in members[0].log.lines if "nowhere" in line]
        assert len(lines) == 1


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


async def test_each_callers_reason_is_logged_once(tmp_path: object) -> None:
    async with cluster(tmp_path) as members:
        names = [str(m.me) for m in members]
        for mode, groups in 3 * [("Standard", GROUPS), ("Guaranteed", 7)]:
            greeting = Greeting("127.0.0.1:1", b"n" * 32, groups, names, mode)
            stream = await trio.open_tcp_stream("127.0.0.1", members[0].me.port)
            async with stream:
                await stream.send_all(Handshake(Side.DIALER, greeting, PASSWORD).begin())
                await closed_by_member(stream)
        for parameter in ("ClusterDeliveryMode", "ClusterSubjectGroups"):
            said = [line for line in members[0].log.lines if parameter in line]
            assert len(said) == 1


async def test_a_caller_that_says_nothing_is_let_go(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.net.peers.PEER_HANDSHAKE_TIMEOUT_S", 0.2)
    async with cluster(tmp_path) as members:
        stream = await trio.open_tcp_stream("127.0.0.1", members[0].me.port)
        async with stream:
            received = await closed_by_member(stream)
        assert received  # its greeting, and then the end
