"""Peer links over real sockets: members meet, strangers are refused, nobody else notices."""

import socket
from contextlib import AsyncExitStack

import msgspec
import pytest
import trio
import trio.testing

from mdserver.cluster.messages import HandOver, Hello, PeerDiscovered, PeerReceived, PeerUp
from mdserver.codec.frames import frame
from mdserver.codec.peer import (
    GREETING,
    MESSAGE,
    Greeting,
    Handshake,
    Side,
    Terms,
    message_frame,
    refusal,
)
from mdserver.errors import RemoteProtocolError
from mdserver.limits import (
    NS_PER_S,
    PEER_COMPLAINTS_MAX,
    PEER_COMPLAINTS_S,
    PEER_UNPROVEN_MAX,
    PEER_UNPROVEN_PER_ADDRESS_MAX,
)
from mdserver.server.peers.doorstep import Complaints, Doorstep
from mdserver.server.peers.link import Link
from mdserver.server.peers.peers import LARGER_DIALS_AFTER_S
from tests.server.peers.members import GROUPS, PASSWORD, Member, cluster, free_addresses
from tests.server.peers.members import Complaints as Log


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
    monkeypatch.setattr("mdserver.server.peers.peers.PEER_HANDSHAKE_TIMEOUT_S", 1)
    async with cluster(tmp_path) as members:
        member = members[0]
        greeting = Greeting("127.0.0.1:1", b"n" * 32)
        terms = Terms(GROUPS, [str(m.me) for m in members], "Guaranteed")
        stranger = Handshake(Side.DIALER, greeting, terms, "guessed")
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
        assert all(len(m.node.statistics().linked) == 2 for m in members)
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
            greeting = Greeting(names[1], b"n" * 32)
            terms = Terms(GROUPS, names, "Guaranteed")
            handshake = Handshake(Side.DIALER, greeting, terms, PASSWORD, expected)
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
            while {len(member.node.statistics().linked) for member in members} != {4}:
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
        greeting = Greeting("127.0.0.1:1", b"n" * 32)
        terms = Terms(GROUPS, [str(m.me) for m in members], "Guaranteed")
        handshake = Handshake(Side.DIALER, greeting, terms, "guessed")
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
            greeting = Greeting("127.0.0.1:1", b"n" * 32)
            handshake = Handshake(
                Side.DIALER, greeting, Terms(groups, names, mode), PASSWORD, str(members[0].me)
            )
            stream = await trio.open_tcp_stream("127.0.0.1", members[0].me.port)
            async with stream:
                await stream.send_all(handshake.begin())
                with trio.fail_after(10), pytest.raises(RemoteProtocolError) as caught:
                    await shake_hands(stream, handshake)
                assert handshake.proven
                await stream.send_all(refusal(caught.value, proven=True))
                await closed_by_member(stream)
        for parameter in ("ClusterDeliveryMode", "ClusterSubjectGroups"):
            said = [line for line in members[0].log.lines if parameter in line]
            assert len(said) == 1


async def test_a_caller_that_says_nothing_is_let_go(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.server.peers.peers.PEER_HANDSHAKE_TIMEOUT_S", 0.2)
    async with cluster(tmp_path) as members:
        stream = await trio.open_tcp_stream("127.0.0.1", members[0].me.port)
        async with stream:
            received = await closed_by_member(stream)
        assert received  # its greeting, and then the end


async def test_idle_strangers_keep_no_member_from_joining(tmp_path: object) -> None:
    """They call from the address of the members, and from others."""
    addresses = free_addresses(3)
    members = [Member(tmp_path, addresses, index) for index in range(3)]
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        await nursery.start(members[0].run)
        for number in range(300):
            host = f"127.0.0.{number % 10 + 1}"
            stream = await trio.open_tcp_stream("127.0.0.1", members[0].me.port, local_address=host)
            await stack.enter_async_context(stream)
        for member in members[1:]:
            await nursery.start(member.run)
        with trio.fail_after(30):
            for member in members:
                await member.joined.wait()
        assert all(len(member.node.statistics().linked) == 2 for member in members)
        nursery.cancel_scope.cancel()


async def test_strangers_fill_no_log(tmp_path: object) -> None:
    async with cluster(tmp_path) as members:
        for number in range(200):
            greeting = Greeting("127.0.0.1:1" + "x" * 200, b"n" * 32, number)
            stream = await trio.open_tcp_stream("127.0.0.1", members[0].me.port)
            async with stream:
                await stream.send_all(
                    frame(GREETING, msgspec.msgpack.encode(greeting))
                    + frame(GREETING, b"x" * 15_000)
                )
                said = await closed_by_member(stream)
                assert b"Guaranteed" not in said
                assert said.endswith(b"refused")
        lines = [line for line in members[0].log.lines if "no link" in line]
        assert len(lines) <= PEER_COMPLAINTS_MAX
        assert sum(map(len, lines)) < 20_000


class Recorded:
    """Takes the place of an engine; keeps what the node would be given, in order."""

    def __init__(self) -> None:
        self.inputs: list[object] = []

    def dispatch(self, given: object) -> None:
        self.inputs.append(given)


async def test_a_link_whose_place_another_took_gives_the_node_nothing_any_more(
    tmp_path: object,
) -> None:
    """Its bytes and the newer link come in one turn of the loop, in either order."""
    addresses = free_addresses(2)
    peers = Member(tmp_path, addresses, 0).peers
    name = str(addresses[1])
    for _ in range(30):  # the order of the tasks of a turn is random
        recorded = peers._engine = Recorded()  # type: ignore[assignment]
        pairs = [socket.socketpair() for _ in range(2)]
        for near, _ in pairs:
            near.setblocking(False)
        shaken = Handshake(Side.LISTENER, Greeting("", b""), Terms(1, [], ""), "")

        async def come_after_a_message(
            older: socket.socket, newer: socket.socket, shaken: Handshake
        ) -> None:
            older.send(message_frame(HandOver([])))
            await trio.lowlevel.checkpoint()  # the reader of the older link is in the next turn too
            await peers._run_link(Link(name, newer), shaken)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(peers._run_link, Link(name, pairs[0][0]), shaken)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(come_after_a_message, pairs[0][1], pairs[1][0], shaken)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        for pair in pairs:
            for end in pair:
                end.close()
        ups = [at for at, given in enumerate(recorded.inputs) if isinstance(given, PeerUp)]
        assert len(ups) == 2
        assert not any(isinstance(given, PeerReceived) for given in recorded.inputs[ups[1] :])


async def test_callers_places() -> None:
    doorstep = Doorstep(["192.0.2.1"])
    strangers = [doorstep.enter(f"198.51.100.{number}") for number in range(PEER_UNPROVEN_MAX)]
    members = [doorstep.enter("192.0.2.1") for _ in range(PEER_UNPROVEN_PER_ADDRESS_MAX)]
    places = [*strangers, *members]
    assert not any(place.scope.cancel_called for place in places)
    doorstep.enter("203.0.113.1")
    assert [place for place in places if place.scope.cancel_called] == [strangers[0]]
    doorstep.enter("192.0.2.1")
    assert [place for place in places if place.scope.cancel_called] == [strangers[0], members[0]]
    for place in places:
        doorstep.leave(place)
    crowd = [doorstep.enter("203.0.113.9") for _ in range(2 * PEER_UNPROVEN_PER_ADDRESS_MAX)]
    gone = [place.scope.cancel_called for place in crowd]
    assert gone == PEER_UNPROVEN_PER_ADDRESS_MAX * [True] + PEER_UNPROVEN_PER_ADDRESS_MAX * [False]


async def test_callers_from_members_that_are_listed_no_more_are_strangers() -> None:
    doorstep = Doorstep(["192.0.2.1", "192.0.2.2"])
    doorstep.reach("m3:1", "192.0.2.3")
    doorstep.reach("m4:1", "192.0.2.4")
    doorstep.relist(["192.0.2.2", "192.0.2.5"])
    doorstep.forget("m4:1")
    for _ in range(PEER_UNPROVEN_MAX):
        doorstep.enter("192.0.2.1")
        doorstep.enter("192.0.2.4")
    strangers = [doorstep.enter(f"198.51.100.{number}") for number in range(PEER_UNPROVEN_MAX)]
    for number in (2, 3, 5):
        doorstep.enter(f"192.0.2.{number}")
    assert not any(place.scope.cancel_called for place in strangers)
    for number in (1, 4):
        doorstep.enter(f"192.0.2.{number}")
    assert [place.scope.cancel_called for place in strangers[:3]] == [True, True, False]


async def test_what_was_said_of_a_member_that_is_given_up_is_forgotten(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.server.peers.peers.PEER_FORGOTTEN_S", 0)
    first, second, third = sorted(free_addresses(3), key=str)
    member = Member(tmp_path, (first, second, third), 0)
    peers, name = member.peers, str(third)
    async with trio.open_nursery() as nursery:
        await nursery.start(member.run)
        for _ in range(2):
            peers._complaints.say(name, "it says nothing")
        peers.relist((first, second), {})
        with trio.fail_after(60):
            while name in peers._dialed:
                await trio.testing.wait_all_tasks_blocked(0.01)
        peers._complaints.say(name, "it says nothing")
        nursery.cancel_scope.cancel()
    assert len([line for line in member.log.lines if "it says nothing" in line]) == 2


async def test_a_member_whose_name_has_another_form_is_given_up_too(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member told the name, and wrote it as nobody writes it."""
    monkeypatch.setattr("mdserver.server.peers.peers.PEER_FORGOTTEN_S", 0)
    first, second = sorted(free_addresses(2), key=str)
    member = Member(tmp_path, (first, second), 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(member.run)
        dialed = set(member.peers._dialed)
        member.peers.discovered(PeerDiscovered("127.0.0.1"))
        assert set(member.peers._dialed) > dialed
        with trio.fail_after(60):
            while set(member.peers._dialed) != dialed:
                await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()


async def test_lines_about_callers_are_counted(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    complaints = Complaints(log)
    for number in range(PEER_COMPLAINTS_MAX + 5):
        complaints.say("", f"reason {number}", "192.0.2.1")
    assert len(log.lines) == PEER_COMPLAINTS_MAX
    await trio.sleep(PEER_COMPLAINTS_S)
    complaints.say("", "another reason\x1b", "192.0.2.1")
    assert "'more': 5" in log.lines[-1]
    assert "another reason\\" in log.lines[-1]


async def test_a_member_that_moved_is_dialed_where_it_is_now(tmp_path: object) -> None:
    """It calls nobody, so the other finds it by the new list alone."""
    first, second, old = sorted(free_addresses(3), key=str)
    new = free_addresses(1)[0]
    caller = Member(tmp_path, (first, second, old), 0)
    moved = Member(tmp_path, (first, second, old), 1, bind=new)
    moved.peers.relist((), {})
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        await nursery.start(caller.run)
        await nursery.start(moved.run)
        assert caller.node.statistics().linked == ()
        caller.peers.relist((first, second, old), {str(second): new})
        with trio.fail_after(60):
            while caller.node.statistics().linked != (str(second),):
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_member_that_is_listed_later_is_dialed_and_keeps_its_link_when_it_is_dropped(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.server.peers.peers.PEER_FORGOTTEN_S", 0)
    first, second, third, fourth = sorted(free_addresses(4), key=str)
    caller = Member(tmp_path, (first, second, third), 0)
    late = Member(tmp_path, (first, second, third, fourth), 3)
    late.peers.relist((), {})
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        await nursery.start(caller.run)
        await nursery.start(late.run)
        caller.peers.relist((first, second, third, fourth), {})
        with trio.fail_after(60):
            while caller.node.statistics().linked != (str(fourth),):
                await trio.testing.wait_all_tasks_blocked(0.01)
        caller.peers.relist((first, second, third), {})
        link, peer = caller.peers.links[str(fourth)], caller.node.members.peers[str(fourth)]
        # Heartbeats come over it, while both sides look at it several times.
        later = peer.heard + LARGER_DIALS_AFTER_S * NS_PER_S
        with trio.fail_after(60):
            while peer.heard < later:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert caller.node.statistics().linked == (str(fourth),)
        assert caller.peers.links == {str(fourth): link}
