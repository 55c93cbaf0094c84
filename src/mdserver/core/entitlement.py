"""Who may do what.

The core decides the simple kinds itself; for the others it asks (`outputs.Authorize`) and keeps
what the verdict grants: patterns of subjects, which add up.
"""

import enum
import hmac
import ipaddress
from collections.abc import Sequence

from mdserver.core.subjects import Pattern, parse_grant, segments_of
from mdserver.errors import InvalidSubjectError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Policy(enum.Enum):
    """What decides: nobody, the one token that may publish, or somebody outside the core."""

    NONE = "none"
    BASIC = "basic"
    ASK = "ask"


def same_token(given: str | None, wanted: str) -> bool:
    """Whether a token is the wanted one, in a time that tells nothing about it.

    An empty wanted token is nobody's.
    """
    if not given or not wanted:
        return False
    return hmac.compare_digest(
        given.encode("utf-8", "backslashreplace"), wanted.encode("utf-8", "backslashreplace")
    )


def within(address: str, networks: tuple[Network, ...] | None) -> bool:
    """Whether an IP address is in one of the networks; no list at all (None) holds every one."""
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
    """The rights that a verdict names; what is no valid pattern grants nothing."""
    rights = []
    for text in patterns:
        try:
            rights.append(parse_grant(text))
        except InvalidSubjectError:
            continue
    return tuple(rights)


def permits(rights: tuple[Pattern, ...] | None, subject: str) -> bool:
    """Whether rights cover a single subject; no rights at all (None) cover everything."""
    if rights is None:
        return True
    segments = segments_of(subject)
    return any(right.matches(segments) for right in rights)


def permits_some(rights: tuple[Pattern, ...] | None, pattern: Pattern) -> bool:
    """Whether rights cover at least some subject of a pattern."""
    return rights is None or any(right.meets(pattern) for right in rights)
