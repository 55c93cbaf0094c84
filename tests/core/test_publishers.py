"""Identities of publishers: nobody gets another one's without its key."""

import random
from typing import Any

import pytest

from mdserver.core.commands import Connect
from mdserver.core.inputs import Denied
from mdserver.core.publishers import PublisherKeys, counted, owner
from mdserver.limits import PUBLISHER_BYTES_MAX, PUBLISHER_SERIES_NUMBERS

SECRET = b"s" * 32
HERE = "192.0.2.1"


def keys(secret: bytes = SECRET, seed: int = 1) -> PublisherKeys:
    return PublisherKeys(secret, random.Random(seed))


def test_two_strangers_with_one_name_never_meet() -> None:
    members = keys(seed=1), keys(seed=2)
    found = {
        member.admit(Connect(publisher="bob"), None, HERE) for member in members for _ in range(9)
    }
    assert len(found) == 18


def test_a_user_keeps_the_identity_of_a_name_at_every_member() -> None:
    assert keys(seed=1).admit(Connect(publisher="bob"), "ann", HERE) == keys(seed=2).admit(
        Connect(publisher="bob"), "ann", HERE
    )
    assert keys().admit(Connect(publisher="bob"), "ann", HERE) != keys().admit(
        Connect(publisher="bob"), "eve", HERE
    )


def test_a_key_of_any_member_with_the_secret_opens_its_identity() -> None:
    identity = keys(seed=1).admit(Connect(publisher="bob"), None, HERE)
    assert isinstance(identity, str)
    key = keys(seed=1).key(identity)
    assert (
        keys(seed=2).admit(Connect(publisher=identity, publisher_key=key), None, HERE) == identity
    )


@pytest.mark.parametrize(
    ("head", "tail"), [("0" * 32, slice(32, None)), ("", slice(-9)), ("", slice(0))]
)
def test_a_wrong_key_is_denied(head: str, tail: slice) -> None:
    member = keys()
    identity = member.admit(Connect(publisher="bob"), None, HERE)
    assert isinstance(identity, str)
    key = head + member.key(identity)[tail]
    assert isinstance(
        member.admit(Connect(publisher=identity, publisher_key=key), None, HERE), Denied
    )


def test_a_key_made_with_another_secret_gives_a_new_identity() -> None:
    identity = keys().admit(Connect(publisher="bob"), None, HERE)
    assert isinstance(identity, str)
    other = keys(b"t" * 32, seed=2)
    found = other.admit(Connect(publisher=identity, publisher_key=keys().key(identity)), None, HERE)
    assert isinstance(found, str)
    assert found != identity
    assert found.endswith("/bob")


@pytest.mark.parametrize(
    "command",
    [
        Connect(publisher_key="x"),
        Connect(publisher="\ud800"),
        Connect(publisher="x" * (PUBLISHER_BYTES_MAX + 1)),
    ],
)
def test_what_is_no_name_is_denied_with_a_sentence(command: Connect) -> None:
    denied = keys().admit(command, None, HERE)
    assert isinstance(denied, Denied)
    assert denied.reason.endswith(".")


def test_an_idempotency_key_names_a_publisher_of_its_user() -> None:
    named = {keys(seed=n).keyed("key", user) for n in (1, 2) for user in (None, "ann", "eve")}
    assert len(named) == 3


def named(name: str, user: str | None, address: str) -> str:
    identity = keys(seed=random.SystemRandom().getrandbits(32)).admit(
        Connect(publisher=name), user, address
    )
    assert isinstance(identity, str)
    return identity


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("a", "ann", HERE), ("b", "ann", "192.0.2.2"), True),
        (("a", "ann", HERE), ("a", "eve", HERE), False),
        (("a", "ann", HERE), ("a", None, HERE), False),
        (("a", "~", HERE), ("a", "!", HERE), False),
        (("a", None, HERE), ("b", None, HERE), True),
        (("a", None, HERE), ("a", None, "192.0.2.2"), False),
        (("a", None, "::ffff:192.0.2.1"), ("a", None, HERE), True),
        (("a", None, "2001:db8::1"), ("a", None, "2001:db8::ffff:0:0:1"), True),
        (("a", None, "2001:db8::1"), ("a", None, "2001:db8:0:1::1"), False),
        (("a", None, "no address"), ("a", None, "no address"), True),
    ],
)
def test_what_a_client_names_belongs_to_its_user_or_network(
    one: Any, other: Any, same: Any
) -> None:
    first, second = named(*one), named(*other)
    assert first != second
    assert (owner(first) == owner(second)) is same
    assert HERE not in first


def test_all_series_of_a_publisher_have_one_owner() -> None:
    for identity in (named("7/up", "9", HERE), named("7/up", None, HERE)):
        assert owner(counted(identity, 5 * PUBLISHER_SERIES_NUMBERS + 1)[0]) == owner(identity)


def test_idempotency_keys_have_one_owner() -> None:
    found = {f"{keys().keyed(key, user)}/3" for key in "ab" for user in (None, "ann")}
    assert len(found) == 4
    assert len({owner(name) for name in found}) == 1
