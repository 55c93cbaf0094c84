import random
from collections import Counter

import pytest

from mdserver.client.core.servers import ServerChoice, ServerEndpoint, parse_server


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("a:8800", ServerEndpoint("a", 8800)),
        ("100 a:8800", ServerEndpoint("a", 8800, weight=100)),
        ("0  a:8800 ", ServerEndpoint("a", 8800, weight=0)),
        ("http://127.0.0.1:8800", ServerEndpoint("127.0.0.1", 8800, secure=False)),
        (
            "50 wss://push.example.com/",
            ServerEndpoint("push.example.com", 443, secure=True, weight=50),
        ),
        ("https://a:1", ServerEndpoint("a", 1, secure=True)),
        ("ws://a", ServerEndpoint("a", 80, secure=False)),
        ("a", ServerEndpoint("a", 80)),
        ("[::1]:8800", ServerEndpoint("::1", 8800)),
        ("ws://[fe80::1]", ServerEndpoint("fe80::1", 80, secure=False)),
    ],
)
def test_addresses(text: str, server: ServerEndpoint) -> None:
    assert parse_server(text) == server


def test_the_default_port_follows_the_encryption() -> None:
    assert parse_server("a", secure=True).port == 443
    assert parse_server("http://a", secure=True).port == 80


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "no address"),
        ("x a:1", "weight"),
        ("101 a:1", "weight"),
        ("-1 a:1", "weight"),
        ("10 20 a:1", "no address"),
        ("a:b", "no address"),
        ("a:0", "no address"),
        ("a:70000", "no address"),
        ("ftp://a", "scheme"),
        ("http://a/stream", "path"),
        ("http://user@a", "path"),
        ("[::1", "no address"),
    ],
)
def test_bad_addresses_say_what_is_wrong(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        parse_server(text)


def test_addresses_read_as_written() -> None:
    assert str(ServerEndpoint("::1", 1)) == "[::1]:1"
    assert str(ServerEndpoint("a", 1)) == "a:1"


def test_the_choice_is_weighted() -> None:
    choice = ServerChoice([ServerEndpoint("a", 1, weight=75), ServerEndpoint("b", 1, weight=25)])
    rng = random.Random(1)
    chosen = Counter(choice.choose(rng).host for _ in range(4000))
    assert 2850 < chosen["a"] < 3150
    assert chosen["a"] + chosen["b"] == 4000


def test_weight_zero_is_the_last_resort() -> None:
    first, spare = ServerEndpoint("a", 1), ServerEndpoint("b", 1, weight=0)
    choice = ServerChoice([spare, first])
    rng = random.Random(1)
    assert {choice.choose(rng) for _ in range(50)} == {first}
    choice.failed(first)
    assert choice.choose(rng) == spare


def test_a_failed_server_waits_until_all_have_failed() -> None:
    servers = [ServerEndpoint(host, 1) for host in "abc"]
    choice = ServerChoice(servers)
    rng = random.Random(1)
    for _ in range(20):
        tried = []
        for _ in servers:
            server = choice.choose(rng)
            assert server not in tried
            tried.append(server)
            choice.failed(server)
        assert choice.choose(rng) != tried[-1]
        choice.succeeded()


def test_one_server_is_tried_again_and_again() -> None:
    choice = ServerChoice([ServerEndpoint("a", 1)])
    for _ in range(3):
        server = choice.choose(random.Random(1))
        assert server.host == "a"
        choice.failed(server)


def test_preferred_servers_come_first_until_they_fail() -> None:
    own, named = ServerEndpoint("a", 1), ServerEndpoint("z", 1)
    choice = ServerChoice([own])
    choice.prefer([named])
    rng = random.Random(1)
    assert choice.choose(rng) == named
    choice.failed(named)
    assert choice.choose(rng) == own
    choice.prefer([named])
    choice.succeeded()
    assert choice.choose(rng) == own


def test_a_client_needs_a_server() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ServerChoice([])
