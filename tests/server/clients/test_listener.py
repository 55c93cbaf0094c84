"""Accepting, refusing, and running out of descriptors."""

import resource
import socket
from typing import Any

import pytest
import trio

from mdserver.config.values import Address
from mdserver.errors import StartError
from mdserver.limits import NS_PER_S
from mdserver.server.clients.admission import Admission, descriptors_for_connections
from mdserver.server.settings import ServerSettings
from mdserver.server.sockets import listen, url_of
from tests.server.raw import TEXT, connected, frame, upgraded
from tests.server.serving import port_of, serving


async def test_beyond_the_limit_of_connections_503_says_when_to_come_back() -> None:
    async with serving(ServerSettings(connections_max=1)) as server:
        async with upgraded(port_of(server)), connected(port_of(server)) as refused:
            answer = (await refused.rest()).lower()
            assert answer.startswith(b"http/1.1 503 ")
            assert b"\r\nretry-after: " in answer
        assert await admitted(port_of(server))


async def admitted(port: int) -> bool:
    """Asks until there is room again: the server hears of an ended connection a little later."""
    with trio.fail_after(10):
        while True:
            async with connected(port) as client:
                await client.send(
                    b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                if not (await client.rest()).startswith(b"HTTP/1.1 503 "):
                    return True


class Failures:
    """A log that keeps what failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def exception(self, event: str, **values: object) -> None:
        self.failed.append(event)


async def test_a_bug_in_the_answer_to_one_beyond_the_limit_ends_that_connection_only() -> None:
    async def handler(*_: object) -> Any:
        raise RuntimeError("a bug")

    log = Failures()
    async with (
        serving(ServerSettings(connections_max=1), handler=handler, log=log) as server,
        upgraded(port_of(server)) as served,
        connected(port_of(server)) as refused,
    ):
        await refused.send(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await refused.rest() == b""
        assert log.failed == ["connection failed"]
        await served.send(frame(TEXT, b'{"op":"ping","t":1}'))
        assert b"pong" in (await served.frame())[1]


async def test_the_limit_of_an_address() -> None:
    async with serving(ServerSettings(connections_per_address_max=2)) as server:
        port = port_of(server)
        async with upgraded(port), upgraded(port), connected(port) as refused:
            assert b"of your address" in await refused.rest()


async def test_connections_beyond_the_rate_wait_and_are_served_in_their_turn() -> None:
    # Four a second, of which none is saved up: ten more take two seconds and a half at least.
    async with serving(ServerSettings(connects_per_s=4)) as server:
        begin = trio.current_time()
        ended = []

        async def client() -> None:
            async with upgraded(port_of(server)) as served:
                await served.send(frame(TEXT, b'{"op":"ping","t":1}'))
                assert b"pong" in (await served.frame())[1]
                ended.append(trio.current_time() - begin)

        async with trio.open_nursery() as nursery:
            for _ in range(11):
                nursery.start_soon(client)
        assert len(ended) == 11
        assert max(ended) >= 2.2


async def test_refused_connections_of_an_address_do_not_use_up_the_rate_of_others() -> None:
    settings = ServerSettings(connects_per_s=1, connections_per_address_max=1)
    async with serving(settings) as server, upgraded(port_of(server)):

        async def refused() -> None:
            async with connected(port_of(server)) as client:
                assert b"of your address" in await client.rest()

        # They wait a second for the rate that the first one used; counted, they would take 30 s.
        with trio.fail_after(15):
            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(refused)


def test_the_rate_of_connections_lets_a_twentieth_of_a_second_through_at_once() -> None:
    admission = Admission(1000, 1000, 1000)
    now = 100 * NS_PER_S
    let_in = 0
    while admission.delay_s(now) <= 0:
        admission.pace(now)
        let_in += 1
    assert let_in == 51
    assert admission.delay_s(now) == pytest.approx(0.001)
    assert admission.delay_s(now + NS_PER_S) <= 0


def test_without_a_rate_no_connection_waits() -> None:
    admission = Admission(1000, 1000)
    admission.pace(5)
    assert admission.delay_s(0) == 0


def test_admission_counts_and_forgets() -> None:
    admission = Admission(3, 2)
    assert [admission.enter(address) is None for address in "aaab"] == [True, True, False, True]
    assert admission.enter("c") is not None
    assert admission.move("b", "a") is not None
    assert admission.move("b", "b") is None
    for address in "aab":
        admission.leave(address)
    assert admission.total == 0
    assert admission.enter("a") is None


def test_connections_leave_descriptors_for_everything_else() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        possible = descriptors_for_connections()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard in (soft, resource.RLIM_INFINITY)
        assert 0 < possible < soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_every_address_of_the_host() -> None:
    listeners = listen(Address("*", 0))
    try:
        ports = {sock.getsockname()[1] for sock in listeners}
        assert len(ports) == 1
        for sock in listeners:
            assert not sock.getblocking()
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    finally:
        for sock in listeners:
            sock.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="the host has no IPv6")
def test_an_ipv6_address_stands_in_brackets() -> None:
    try:
        (sock,) = listen(Address("::1", 0))
    except StartError:
        pytest.skip("the host has no IPv6 loopback")
    with sock:
        assert url_of(sock) == f"http://[::1]:{sock.getsockname()[1]}"


def test_a_port_in_use_is_one_line() -> None:
    (sock,) = listen(Address("127.0.0.1", 0))
    with sock:
        port = sock.getsockname()[1]
        with pytest.raises(StartError) as caught:
            listen(Address("127.0.0.1", port))
    told = f"Cannot listen on 127.0.0.1:{port}: Address already in use (another program listens"
    assert str(caught.value).startswith(told)


class Warnings:
    """A log that tells when something is wrong."""

    def __init__(self) -> None:
        self.warned = trio.Event()

    def warning(self, event: str, **values: object) -> None:
        if event == "cannot accept connections":
            self.warned.set()


async def test_out_of_descriptors_it_waits_and_goes_on_after() -> None:
    """The accept loop backs off without ending; clients that wait are served afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    log = Warnings()
    async with serving(log=log) as server:
        async with upgraded(port_of(server)):
            waiting = socket.socket()
            waiting.setblocking(False)
            lowest_free = waiting.fileno() + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            try:
                await trio.socket.from_stdlib_socket(waiting).connect(
                    ("127.0.0.1", port_of(server))
                )
                with trio.fail_after(10):
                    await log.warned.wait()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                waiting.close()
        async with upgraded(port_of(server)):
            pass
