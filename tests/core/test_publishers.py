"""Identities of publishers: nobody gets another one's without its key."""

import random

import pytest

from mdserver.core.commands import Connect
from mdserver.core.inputs import Denied
from mdserver.core.publishers import PublisherKeys
from mdserver.limits import PUBLISHER_BYTES_MAX

SECRET = b"s" * 32


def keys(secret: bytes = SECRET, seed: int = 1) -> PublisherKeys:
    return PublisherKeys(secret, random.Random(seed))


def test_two_strangers_with_one_name_never_meet() -> None:
    members = keys(seed=1), keys(seed=2)
    found = {member.admit(Connect(publisher="bob"), None) for member in members for _ in range(9)}
    assert len(found) == 18


def test_a_user_keeps_the_identity_of_a_name_at_every_member() -> None:
    assert keys(seed=1).admit(Connect(publisher="bob"), "ann") == keys(seed=2).admit(
        Connect(publisher="bob"), "ann"
    )
    assert keys().admit(Connect(publisher="bob"), "ann") != keys().admit(
        Connect(publisher="bob"), "eve"
    )


def test_a_key_of_any_member_with_the_secret_opens_its_identity() -> None:
    identity = keys(seed=1).admit(Connect(publisher="bob"), None)
    assert isinstance(identity, str)
    key = keys(seed=1).key(identity)
    assert keys(seed=2).admit(Connect(publisher=identity, publisher_key=key), None) == identity


@pytest.mark.parametrize(
    ("head", "tail"), [("0" * 32, slice(32, None)), ("", slice(-9)), ("", slice(0))]
)
def test_a_wrong_key_is_denied(head: str, tail: slice) -> None:
    member = keys()
    identity = member.admit(Connect(publisher="bob"), None)
    assert isinstance(identity, str)
    key = head + member.key(identity)[tail]
    assert isinstance(member.admit(Connect(publisher=identity, publisher_key=key), None), Denied)


def test_a_key_made_with_another_secret_gives_a_new_identity() -> None:
    identity = keys().admit(Connect(publisher="bob"), None)
    assert isinstance(identity, str)
    other = keys(b"t" * 32, seed=2)
    found = other.admit(Connect(publisher=identity, publisher_key=keys().key(identity)), None)
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
    denied = keys().admit(command, None)
    assert isinstance(denied, Denied)
    assert denied.reason.endswith(".")


def test_an_idempotency_key_names_a_publisher_of_its_user() -> None:
    named = {keys(seed=n).keyed("key", user) for n in (1, 2) for user in (None, "ann", "eve")}
    assert len(named) == 3
