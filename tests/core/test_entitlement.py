"""Tokens, addresses and rights: who may do what, as far as the core decides itself."""

import ipaddress

import pytest

from mdserver.core.entitlement import parse_grants, permits, permits_some, same_token, within
from mdserver.core.subjects import parse_interest

NETWORKS = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        ("secret", "secret", True),
        ("secret", "other", False),
        ("", "", False),
        (None, "", False),
        (None, "secret", False),
        ("secret", "", False),
        ("\ud800", "\ud800", True),
    ],
)
def test_only_the_token_that_is_configured_is_trusted(
    given: str | None, wanted: str, same: bool
) -> None:
    assert same_token(given, wanted) is same


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("11.1.2.3", False),
        ("::1", False),
        ("unix", False),
    ],
)
def test_an_address_is_within_the_networks_that_are_listed(address: str, inside: bool) -> None:
    assert within(address, NETWORKS) is inside
    assert within(address, None)
    assert not within(address, ())


def test_rights_add_up_and_a_final_star_covers_what_is_below() -> None:
    rights = parse_grants(("/a/*", "/b/c", "no subject"))
    assert len(rights) == 2
    allowed = ["/a/b", "/a/b/c", "/b/c"]
    denied = ["/b/d", "/b/c/d", "/c/a"]
    assert [permits(rights, subject) for subject in (*allowed, *denied)] == [True] * 3 + [False] * 3
    assert permits(None, "/c/a")
    assert not permits((), "/a/b")


@pytest.mark.parametrize(
    ("text", "some"), [("/*/c", True), ("/**", True), ("/c/**", False), ("/b/d/*", False)]
)
def test_a_pattern_needs_rights_to_some_of_its_subjects(text: str, some: bool) -> None:
    pattern = parse_interest(text)
    assert pattern is not None
    assert permits_some(parse_grants(("/a/*", "/b/c")), pattern) is some
    assert permits_some(None, pattern)
