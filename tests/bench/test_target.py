from pathlib import Path

import pytest

from mdserver.bench.target import Running, ServerAddress, own_subject
from mdserver.errors import ConfigError


def test_servers_are_read_from_their_urls() -> None:
    running = Running.at(["http://10.0.0.1:8800", "ws://example.org"], token="t")
    assert running.addresses == (ServerAddress("10.0.0.1", 8800), ServerAddress("example.org", 80))
    assert running.context() is None
    assert len(running.hello()) == 1
    encrypted = Running.at(["https://example.org/"])
    assert (encrypted.addresses, encrypted.encrypted) == (
        (ServerAddress("example.org", 443),),
        True,
    )
    assert encrypted.context() is not None


@pytest.mark.parametrize(
    "urls",
    [
        ["example.org:8800"],
        ["ftp://example.org"],
        ["http://"],
        ["http://example.org:port"],
        ["http://a:1", "https://a:2"],
    ],
)
def test_what_is_no_server_is_refused_in_a_sentence(urls: list[str]) -> None:
    with pytest.raises(ConfigError, match="--server"):
        Running.at(urls, Path("/nowhere"))


def test_an_address_of_version_6_stands_in_brackets() -> None:
    [address] = Running.at(["http://[::1]:8800"]).addresses
    assert (address.host, str(address)) == ("::1", "[::1]:8800")


def test_subjects_of_measurements_do_not_meet() -> None:
    assert len({own_subject() for _ in range(100)}) == 100
