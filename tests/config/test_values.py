"""The forms of values: what is understood, what is refused and with which words."""

import enum
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.config import values
from mdserver.config.values import Address
from mdserver.limits import GB, KB, MB, NS_PER_MS, NS_PER_S


class Colour(enum.Enum):
    RED = "Red"
    GREEN = "Green"


WIDE_DURATION = values.duration(0, 1000 * 86400 * NS_PER_S)
WIDE_SIZE = values.size(0, 1024 * GB)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("10", 10 * NS_PER_S),
        ("100ms", 100 * NS_PER_MS),
        ("1.5 s", 1500 * NS_PER_MS),
        ("3 min", 180 * NS_PER_S),
        ("2H", 7200 * NS_PER_S),
        ("1d", 86400 * NS_PER_S),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert WIDE_DURATION.parse(text) == nanoseconds


def test_a_bare_duration_is_in_the_unit_of_the_parameter() -> None:
    assert values.duration(0, NS_PER_S, "ms").parse("250") == 250 * NS_PER_MS


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("64KB", 64 * KB), ("1.5 mb", MB * 3 // 2), ("2GB", 2 * GB)]
)
def test_sizes(text: str, size: int) -> None:
    assert WIDE_SIZE.parse(text) == size


@pytest.mark.parametrize(
    "text", ["", "s", "1 week", "-1", "1e3", "0x10", "\u0661", "1" * 30, "1.s"]
)
def test_what_is_neither_a_duration_nor_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time from"):
        WIDE_DURATION.parse(text)
    with pytest.raises(ValueError, match="expected a size from"):
        WIDE_SIZE.parse(text)


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(ValueError, match="unknown unit weeks, expected a time"):
        WIDE_DURATION.parse("2 weeks")


def test_bounds_are_part_of_the_message() -> None:
    with pytest.raises(ValueError, match="out of bounds, expected a time from 1 s to 1 min"):
        values.duration(NS_PER_S, 60 * NS_PER_S).parse("2 min")
    with pytest.raises(ValueError, match="expected a whole number from 1 to 9"):
        values.whole(1, 9).parse("10")


@given(st.integers(0, 1000 * 86400 * 1000))
def test_a_duration_that_is_shown_reads_back(milliseconds: int) -> None:
    value = milliseconds * NS_PER_MS
    assert WIDE_DURATION.parse(values.show_duration(value)) == value


@given(st.integers(0, 1024 * GB))
def test_a_size_that_is_shown_reads_back(size: int) -> None:
    assert WIDE_SIZE.parse(values.show_size(size)) == size


def test_whole_numbers() -> None:
    assert values.whole(0, 100).parse("007") == 7
    for text in ("", "1.0", "+1", "-1", "²"):
        with pytest.raises(ValueError, match="whole number"):
            values.whole(0, 100).parse(text)


def test_booleans() -> None:
    assert values.BOOLEAN.parse("True") is True
    assert values.BOOLEAN.parse("false") is False
    assert values.BOOLEAN.show(True) == "true"
    with pytest.raises(ValueError, match="expected true or false"):
        values.BOOLEAN.parse("yes")


def test_choices_ignore_capitals_and_name_the_options() -> None:
    kind = values.choice(Colour)
    assert kind.parse("red") is Colour.RED
    assert kind.show(Colour.GREEN) == "Green"
    with pytest.raises(ValueError, match="expected one of Red, Green"):
        kind.parse("blue")


def test_optional_has_a_word_for_nothing() -> None:
    kind = values.optional(values.whole(1, 9), "unlimited")
    assert kind.parse("Unlimited") is None
    assert kind.parse("3") == 3
    assert (kind.show(None), kind.show(3)) == ("unlimited", "3")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8800", Address("127.0.0.1", 8800)),
        ("*:0", Address("*", 0)),
        ("*", Address("*", 80)),
        ("push.example.com", Address("push.example.com", 80)),
        ("[::1]:8800", Address("::1", 8800)),
        ("[fe80::1%eth0]", Address("fe80::1%eth0", 80)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    kind = values.address(80)
    assert kind.parse(text) == address
    assert kind.parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing: expected `host:port`"),
        ("::1:8800", "expected `host:port`"),
        ("host:", "expected `host:port`"),
        ("host:http", "expected `host:port`"),
        ("ho st:1", "expected `host:port`"),
        ("host:65536", "a port is a number up to 65535"),
        ("[127.0.0.1]:80", "not an IPv6 address between the brackets"),
        ("http://host:80", "expected `host:port`"),
    ],
)
def test_what_is_no_address(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"expected|port|IPv6") as caught:
        values.address(80).parse(text)
    assert reason in str(caught.value)


def test_lists() -> None:
    kind = values.listed(values.whole(0, 9), 3, "numbers")
    assert kind.parse("") == ()
    assert kind.parse("1, 2 ,3") == (1, 2, 3)
    assert kind.show((1, 2)) == "1, 2"
    with pytest.raises(ValueError, match="the same value is listed twice"):
        kind.parse("1,1")
    with pytest.raises(ValueError, match="expected at most 3 values"):
        kind.parse("1,2,3,4")


def test_networks() -> None:
    assert values.NETWORK.parse("10.1.0.0/16") == ip_network("10.1.0.0/16")
    assert values.NETWORK.parse("::1") == ip_network("::1/128")
    with pytest.raises(ValueError, match="expected an IP address or a network"):
        values.NETWORK.parse("10.0.0.0/33")
    with pytest.raises(ValueError, match="has host bits set"):
        values.NETWORK.parse("10.0.0.1/8")


def test_paths_and_text() -> None:
    assert str(values.PATH.parse("logs/x")) == "logs/x"
    with pytest.raises(ValueError, match="expected a path"):
        values.PATH.parse("")
    with pytest.raises(ValueError, match="at most 3 characters"):
        values.text(3).parse("four")


def test_members_and_those_that_have_moved() -> None:
    kind = values.places(8900, 3)
    text = "a:1, [::1]:2@[::2]:3, c@d:4"
    found = kind.parse(text)
    assert [(str(place.name), str(place.at)) for place in found] == [
        ("a:1", "a:1"),
        ("[::1]:2", "[::2]:3"),
        ("c:8900", "d:4"),
    ]
    assert kind.parse(kind.show(found)) == found
    assert kind.show(found) == "a:1, [::1]:2@[::2]:3, c:8900@d:4"
    assert kind.parse("a:1 @ b:1") == kind.parse("a:1@b:1")
    assert kind.parse("") == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:1, a:1@b:1", "a:1 stands for two members"),
        ("a:1, b:1@a:1", "a:1 stands for two members"),
        ("a:1@", "nothing: expected `host:port`"),
        ("@b:1", "nothing: expected `host:port`"),
        ("a:1@b:1@c:1", "expected `host:port`"),
        ("a:1, b:1, c:1, d:1", "expected at most 3 values"),
    ],
)
def test_what_is_no_list_of_members(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        values.places(8900, 3).parse(text)
