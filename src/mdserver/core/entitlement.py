"""Entitlement: the policies, and rights as patterns of subjects.

The core decides under the simple policies itself. Under `Policy.ASK` it asks (`outputs.Authorize`)
and keeps the rights that the verdict grants, each of which adds to the others.
"""

import enum
import hmac
import ipaddress
from collections.abc import Sequence

from mdserver.core.subjects import Pattern, parse_grant, segments_of
from mdserver.errors import InvalidSubjectError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Policy(enum.Enum):
    """The basis of decisions: none, one token for all publishers, or an external authorizer."""

    NONE = "none"
    BASIC = "basic"
    ASK = "ask"


ALL_BUT_RESERVED = (parse_grant("/**"),)
"""The patterns of a session that may read everything that needs no right by name."""


def same_token(given: str | None, wanted: str) -> bool:
    """Return whether a token is the wanted one, in a time that does not depend on its characters.

    If the wanted token is empty, no token is.
    """
    if not given or not wanted:
        return False
    return hmac.compare_digest(
        given.encode("utf-8", "backslashreplace"), wanted.encode("utf-8", "backslashreplace")
    )


def within(address: str, networks: tuple[Network, ...] | None) -> bool:
    """Return whether an IP address is in one of the networks; None stands for all addresses."""
    if networks is None:
        return True
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return any(ip in network for network in networks)


def parse_grants(patterns: Sequence[str]) -> tuple[Pattern, ...]:
    """Return the rights that a verdict names; text that is no valid pattern grants nothing."""
    rights = []
    for text in patterns:
        try:
            rights.append(parse_grant(text))
        except InvalidSubjectError:
            continue
    return tuple(rights)


def permits(rights: tuple[Pattern, ...] | None, subject: str) -> bool:
    """Return whether rights cover a single subject; None stands for all rights."""
    if rights is None:
        return True
    segments = segments_of(subject)
    return any(right.matches(segments) for right in rights)


def permits_some(rights: tuple[Pattern, ...] | None, pattern: Pattern) -> bool:
    """Return whether rights cover at least one subject of a pattern."""
    return rights is None or any(right.meets(pattern) for right in rights)
