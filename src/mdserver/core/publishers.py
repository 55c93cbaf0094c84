"""Publisher identities: the names under which the numbers of publishers are counted.

A name proves nothing, so it is qualified: by the user whom the token names, or, without a user, by
digits of the client's network and a random part. The key that `connected` gives with an identity is
an HMAC (RFC 2104) of it, so any member that has the secret can check it, and no member has to store
it. A key names the secret that it was made with. A server with another secret cannot tell a forgery
from a key that is out of date, so it gives a new identity instead of refusing.
"""

import hashlib
import hmac
import ipaddress
import re
import string
import urllib.parse
from typing import TYPE_CHECKING

from mdserver.core.commands import Connect
from mdserver.core.inputs import Denied
from mdserver.core.text import is_unicode
from mdserver.limits import (
    PUBLISHER_BYTES_MAX,
    PUBLISHER_RANDOM_BYTES,
    PUBLISHER_SECRET_BYTES,
    PUBLISHER_SERIES_NUMBERS,
)

if TYPE_CHECKING:
    import random

_KEY = re.compile(r"(?P<proof>[0-9a-f]{32})\.(?P<secret>[0-9a-f]{8})")
_KEYED = "!"
_NETWORK_DIGITS = 8
_IPV6_NETWORK_BITS = 64
_ALONE = "`publisher_key` goes with the `publisher` that came with it."
_HALF = "`publisher` has half of a surrogate pair: send valid Unicode."
_LONG = f"`publisher` is a name of at most {PUBLISHER_BYTES_MAX} characters."
_WRONG = (
    "The `publisher_key` is not that of this `publisher`: send both as `connected` gave them, or a "
    "name without a key."
)


def counted(identity: str, number: int) -> tuple[str, int]:
    """Return the name under which a number is counted, and which one it is there, from 1 on.

    Each series of a publisher is counted as a publisher of its own (docs/protocol.md, "Numbered
    publications"). No identity begins with a digit, so no name stands for two of them.
    """
    series, before = divmod(number - 1, PUBLISHER_SERIES_NUMBERS)
    return (f"{series}{identity}" if series else identity), before + 1


def owner(name: str) -> str:
    """Return who a publisher belongs to, by the name under which it is counted.

    That is its user, or, without a user, the network that it named itself from; in all its series.
    All idempotency keys have one owner, because nothing in them tells whose they are.
    """
    identity = name.lstrip(string.digits)  # without the series
    if identity.startswith("~"):
        return identity[: 1 + _NETWORK_DIGITS]
    return _KEYED if identity.startswith(_KEYED) else identity.partition("/")[0]


def network_of(address: str) -> str:
    """Return the network of a client as text: an IPv4 address, or the 64 bits of an IPv6 network.

    A host with IPv6 has as many addresses as it likes within these 64 bits (RFC 4291, 2.5.4).
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((int(ip), _IPV6_NETWORK_BITS), strict=False))


class PublisherKeys:
    """Gives identities and their keys, and checks them.

    Members that are to know each other's keys have the same `secret`; an empty one stands for a
    random one.
    """

    def __init__(self, secret: bytes, rng: "random.Random") -> None:
        self._rng = rng
        self._secret = secret or rng.randbytes(PUBLISHER_SECRET_BYTES)
        self._mark = self._digest("secret", "")[:8]

    def key(self, identity: str) -> str:
        """Return the key of an identity."""
        return f"{self._digest('publisher', identity)[:32]}.{self._mark}"

    def admit(self, command: Connect, user: str | None, address: str) -> str | Denied:
        """Return the identity of a client that connects, empty if it names no publisher."""
        name, key = command.publisher or "", command.publisher_key
        if not name:
            return "" if key is None else Denied(_ALONE)
        if not is_unicode(name):
            return Denied(_HALF)
        if key is not None:
            found = _KEY.fullmatch(key)
            if found is None or found["secret"] == self._mark:
                right = found is not None and hmac.compare_digest(self.key(name), key)
                return name if right else Denied(_WRONG)
            name = name.partition("/")[2] or name
        return (
            Denied(_LONG)
            if len(name) > PUBLISHER_BYTES_MAX
            else self._qualified(name, user, address)
        )

    def keyed(self, idempotency_key: str, user: str | None) -> str:
        """Return the identity of a client whose publications are named by an idempotency key.

        The user is part of it, because two users may choose the same key. Without a user the key
        is as hard to guess as the client made it.
        """
        chosen = f"{user or ''}\0{idempotency_key}".encode(errors="backslashreplace")
        return f"{_KEYED}{hashlib.sha256(chosen).hexdigest()}"

    def _qualified(self, name: str, user: str | None, address: str) -> str:
        """Return a name with its qualifier in front, `~` and digits or `@` and the user.

        The digits are those of the client's network, which do not tell the address, and random
        ones. The qualifier has no slash, so the name begins after the first one.
        """
        if not user:
            network = self._digest("network", network_of(address))[:_NETWORK_DIGITS]
            drawn = self._rng.randbytes(PUBLISHER_RANDOM_BYTES).hex()
            return f"~{network}{drawn}/{name}"
        quoted = urllib.parse.quote(user, safe="", errors="backslashreplace")
        if len(quoted) > PUBLISHER_BYTES_MAX:
            # A quoted user has no colon, so this cannot be the name of another one.
            quoted = "sha256:" + hashlib.sha256(quoted.encode()).hexdigest()
        return f"@{quoted}/{name}"

    def _digest(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}\0{text}".encode(), "sha256").hexdigest()
