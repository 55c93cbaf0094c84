"""The address of a client behind a proxy: the PROXY protocol, version 2, and `X-Forwarded-For`.

The PROXY protocol is that of HAProxy's document "The PROXY protocol", section 2.2: a header before
the first byte of a connection, whether that is encrypted or not.
"""

import ipaddress
import re
import socket
from collections.abc import Callable

from attrs import frozen

from mdserver import limits
from mdserver.codec.http import RequestRefusedError
from mdserver.core.text import safe_text
from mdserver.errors import MdserverError

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
FIXED_BYTES = 16
NOT_TAKEN = (
    "A PROXY header is taken only with ProxyProtocol = v2, and from addresses in ProxyAddressList."
)

_LOCAL, _PROXY = 0x20, 0x21
_FAMILIES = {0x1: (socket.AF_INET, 4), 0x2: (socket.AF_INET6, 16)}
_STREAM = 0x1
_FORWARDED = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}", re.ASCII)


class ProxyHeaderError(MdserverError):
    """A connection that begins without a valid PROXY header, version 2, of a TCP connection."""


@frozen
class ProxyHeader:
    """The content of the first 16 bytes of a header; `rest` more bytes follow."""

    local: bool
    family: int
    rest: int

    def client(self, rest: bytes) -> str | None:
        """Return the client's address; None if the client is the proxy, or the proxy does not know.

        Raises ProxyHeaderError if the addresses are cut short.
        """
        found = None if self.local else _FAMILIES.get(self.family)
        if found is None:
            return None
        family, size = found
        if len(rest) < 2 * size + 4:
            raise ProxyHeaderError("The addresses of a PROXY header are cut short.")
        return _plain(ipaddress.ip_address(socket.inet_ntop(family, rest[:size])))


def begins_header(received: bytes) -> bool:
    """Return whether these first bytes of a connection are a PROXY header."""
    return received.startswith(SIGNATURE)


def parse_fixed(fixed: bytes) -> ProxyHeader:
    """Read the first 16 bytes. Raises ProxyHeaderError for anything but version 2."""
    if not fixed.startswith(SIGNATURE) or len(fixed) != FIXED_BYTES:
        raise ProxyHeaderError("The connection does not begin with a PROXY header, version 2.")
    command, kind = fixed[12], fixed[13]
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError(f"A PROXY header has the command 0x20 or 0x21, not {command:#04x}.")
    family, transport = kind >> 4, kind & 0xF
    if command == _PROXY and family in _FAMILIES and transport != _STREAM:
        raise ProxyHeaderError("A PROXY header is about a connection that is not TCP.")
    rest = int.from_bytes(fixed[14:], "big")
    if rest > limits.PROXY_HEADER_BYTES_MAX:
        raise ProxyHeaderError(
            f"A PROXY header has {rest} bytes; {limits.PROXY_HEADER_BYTES_MAX} are allowed."
        )
    return ProxyHeader(command == _LOCAL, family, rest)


def forwarded_client(value: str, listed: Callable[[str], bool]) -> str:
    """Return the right-most address of `X-Forwarded-For` that is no listed proxy.

    Each proxy appends the address that it was called from, so only what listed proxies appended can
    be trusted. Anything further left may be the client's invention, and is not even parsed. If all
    addresses are listed proxies, the left-most counts. Raises RequestRefusedError (400) for text
    that is no address.
    """
    client = ""
    for text in reversed(value.split(",")):
        client = _address(text.strip())
        if not listed(client):
            break
    return client


def _address(text: str) -> str:
    """Return an address in its usual form, without the port that some proxies write."""
    match = _FORWARDED.fullmatch(text)
    try:
        return _plain(ipaddress.ip_address((match[1] or match[2]) if match else text))
    except ValueError:
        raise RequestRefusedError(
            400, f"X-Forwarded-For holds {safe_text(text[:64])!r}, which is no IP address."
        ) from None


def _plain(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return str(ip)
