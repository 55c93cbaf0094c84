"""The PROXY protocol, version 2, and `X-Forwarded-For`."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver import limits
from mdserver.codec.http import RequestRefusedError
from mdserver.codec.proxy import (
    FIXED_BYTES,
    SIGNATURE,
    ProxyHeaderError,
    forwarded_client,
    parse_fixed,
)

IP = st.ip_addresses()


def header(command: int, kind: int, rest: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, kind, len(rest)) + rest


def read(data: bytes) -> str | None:
    return parse_fixed(data[:FIXED_BYTES]).client(data[FIXED_BYTES:])


@given(IP, st.binary(max_size=limits.PROXY_HEADER_BYTES_MAX - 36))
def test_the_client_is_the_source_whatever_else_the_header_holds(
    client: ipaddress.IPv4Address | ipaddress.IPv6Address, more: bytes
) -> None:
    kind = 0x11 if client.version == 4 else 0x21
    addresses = client.packed + bytes(len(client.packed)) + struct.pack("!HH", 1234, 443)
    mapped = client.ipv4_mapped if isinstance(client, ipaddress.IPv6Address) else None
    assert read(header(0x21, kind, addresses + more)) == str(mapped or client)
    assert read(header(0x20, kind, addresses + more)) is None


@given(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=64))
def test_any_header_gives_an_address_or_nobody_or_a_sentence(
    command: int, kind: int, rest: bytes
) -> None:
    try:
        client = read(header(command, kind, rest))
    except ProxyHeaderError:
        assert command != 0x20
    else:
        assert command in (0x20, 0x21)
        if client is not None:
            ipaddress.ip_address(client)


@given(st.binary(max_size=40))
def test_no_other_bytes_are_a_header(data: bytes) -> None:
    if not data.startswith(SIGNATURE):
        with pytest.raises(ProxyHeaderError):
            parse_fixed(data[:FIXED_BYTES])


def test_a_header_is_bounded() -> None:
    fixed = SIGNATURE + struct.pack("!BBH", 0x21, 0x11, limits.PROXY_HEADER_BYTES_MAX + 1)
    with pytest.raises(ProxyHeaderError, match="4096 are allowed"):
        parse_fixed(fixed)


def listed(address: str) -> bool:
    return address.startswith("10.")


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("198.51.100.9, 192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, 10.0.0.1, 10.0.0.2", "192.0.2.1"),
        ("10.0.0.3,10.0.0.1", "10.0.0.3"),
        ("nonsense, 192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:5000", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:DB8::1]:5000", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
    ],
)
def test_the_right_most_address_that_is_no_proxy_counts(value: str, client: str) -> None:
    assert forwarded_client(value, listed) == client


@pytest.mark.parametrize("value", ["", "unknown", "192.0.2.1, 10.0.0.1,", "1.2.3", "a" * 9000])
def test_what_is_no_address_is_refused(value: str) -> None:
    with pytest.raises(RequestRefusedError, match="X-Forwarded-For") as refused:
        forwarded_client(value, listed)
    assert refused.value.status == 400
    assert len(refused.value.reason) < 400
