"""Who a client behind a proxy is: the PROXY protocol, version 2, and `X-Forwarded-For`.

The PROXY protocol is that of HAProxy's document "The PROXY protocol", section 2.2: a header before
the first byte of a connection, TLS or not.
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
    """What a proxy sent first is no PROXY header, version 2, or not of a TCP connection."""


@frozen
class ProxyHeader:
    """The first 16 bytes of a header: `rest` more follow."""

    local: bool
    family: int
    rest: int

    def client(self, rest: bytes) -> str | None:
        """Return the address of the client; None if the proxy itself is it, or does not know.

        Raises ProxyHeaderError where the addresses are cut short.
        """
        found = None if self.local else _FAMILIES.get(self.family)
        if found is None:
            return None
        family, size = found
        if len(rest) < 2 * size + 4:
            raise ProxyHeaderError("The addresses of a PROXY header are cut short.")
        return _plain(ipaddress.ip_address(socket.inet_ntop(family, rest[:size])))


def begins_header(received: bytes) -> bool:
    """Return whether a connection that begins with these bytes begins with a PROXY header."""
    return received.startswith(SIGNATURE)


def parse_fixed(fixed: bytes) -> ProxyHeader:
    """Read the first 16 bytes. Raises ProxyHeaderError for anything else than version 2."""
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

    What stands left of it anybody may have written, so it is not looked at. The left-most counts
    where all of them are proxies. Raises RequestRefusedError (400) for what is no address.
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
