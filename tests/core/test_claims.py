"""Receipts are claims: refused, taken or confirmed; and one client's do not crowd out others'."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from mdserver.core.commands import Connect, Publish, Receipt, Receipts, Subscribe, Unsubscribe
from mdserver.core.entitlement import Policy
from mdserver.core.events import Error
from mdserver.core.inputs import Authorized, Grants
from mdserver.core.message import fields_checksum
from mdserver.core.outputs import Authorize, Log, Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.limits import (
    NS_PER_S,
    RECEIPT_CONFIRM_BYTES_AT_ONCE,
    RECEIPT_COUNT_MAX,
    RECEIPT_SEQ_MAX,
    RECEIPTS_PER_SESSION_MAX,
    RECEIPTS_S,
)
from tests import receipts
from tests.core.one_seed import OneSeed

CONTENTS = ["one", "two", "three"]


def receipt(subject: str = "/a/b", seqs: Sequence[int] = (1, 2, 3), **changed: Any) -> Receipt:
    return receipts.receipt(subject, seqs, lambda seq: CONTENTS[seq - 1].encode(), **changed)


def opened(readable: tuple[str, ...] = ("/a/*",)) -> OneSeed:
    """A session of this right; /a/b and /x/y have three messages each."""
    seed = OneSeed(BrokerSettings(policy=Policy.ASK, receipts=True, audit_access=True))
    for session, rights in ((1, readable), (2, ("/**",))):
        seed.open(session)
        (ask,) = seed.receive(session, [Connect(publisher="p" if session == 1 else None)])
        assert isinstance(ask, Authorize)
        seed.decide(Authorized(ask.request, Grants(rights, ("/**",))))
    for subject in ("/a/b", "/x/y"):
        seed.receive(2, [Publish(subject=subject, content=content) for content in CONTENTS])
    return seed


def written(out: Sequence[Output]) -> list[dict[str, Any]]:
    return [one.values for one in out if isinstance(one, Log) and one.stream == "receipts"]


def errors(out: Sequence[Output]) -> list[Error]:
    return [one.event for one in out if isinstance(one, Send) and isinstance(one.event, Error)]


def verified(seed: OneSeed, *told: Receipt, session: int = 1) -> list[bool]:
    out = seed.receive(session, [Receipts(receipts=list(told))])
    assert errors(out) == []
    return [row["verified"] for row in written(out)]


@pytest.mark.parametrize("subject", ["/x/y", "/a/*", "a", "/a/\ud800"])
def test_what_a_session_may_not_read_is_refused_in_one_sentence(subject: str) -> None:
    seed = opened()
    good = receipt()
    out = seed.receive(
        1, [Receipts(receipts=[msgspec.structs.replace(good, subject=subject), good], id="i")]
    )
    assert [row["subject"] for row in written(out)] == ["/a/b"]
    (error,) = errors(out)
    assert (error.code, error.id) == ("receipts-refused", "i")
    assert error.reason.startswith("1 receipts were refused; the first: ")


@pytest.mark.parametrize("wish", ["/a/b", "/a/*"])
def test_what_was_got_here_is_confirmed(wish: str) -> None:
    seed = opened()
    assert verified(seed, receipt()) == [False]
    seed.receive(1, [Subscribe(subjects=[wish])])
    assert verified(seed, receipt(), receipt(seqs=(2, 3))) == [True, True]
    seed.receive(1, [Unsubscribe(subjects=[wish])])
    assert verified(seed, receipt()) == [True]


@pytest.mark.parametrize(
    "changed",
    [
        {"crc_sum": 1},
        {"crc_at": 1},
        {"fields_sum": 1},
        {"fields_at": 1},
        {"n": 2},
        {"seq_hi": 4, "n": 4},
        {"seq_lo": 0, "n": 4},
        {"epoch": 2},
        {"history": "h0"},
        {"seq_hi": RECEIPT_SEQ_MAX, "n": RECEIPT_COUNT_MAX},
        {"subject": "/a/never"},
    ],
)
def test_what_the_cache_does_not_bear_out_is_not_confirmed(changed: dict[str, Any]) -> None:
    seed = opened()
    seed.receive(1, [Subscribe(subjects=["/a/*"])])
    assert verified(seed, receipt(**changed)) == [False]


@pytest.mark.parametrize(
    "changed",
    [
        {"seq_lo": 3, "seq_hi": 1},
        {"seq_hi": RECEIPT_SEQ_MAX + 1},
        {"seq_lo": 2**63 - 1, "seq_hi": 2**63 - 1},
        *({name: RECEIPT_COUNT_MAX + 1} for name in ("n", "dups", "reordered", "conflated")),
    ],
)
def test_numbers_that_no_range_has_are_refused(changed: dict[str, Any]) -> None:
    seed = opened()
    seed.receive(1, [Subscribe(subjects=["/a/*"])])
    out = seed.receive(1, [Receipts(receipts=[receipt(**changed), receipt()])])
    assert [row["n"] for row in written(out)] == [3]
    (error,) = errors(out)
    assert error.code == "receipts-refused"


def test_fields_are_compared_unless_the_client_says_nothing_of_them() -> None:
    seed = opened()
    seed.receive(1, [Subscribe(subjects=["/a/*"])])
    seed.receive(2, [Publish(subject="/a/c", content="one", fields={"b": "2", "a": "1"})])

    def told(**changed: Any) -> Receipt:
        return receipts.receipt("/a/c", [1], lambda _: b"one", **changed)

    digest = fields_checksum("/a/c", 1, 1, {"a": "1", "b": "2"})
    altered = fields_checksum("/a/c", 1, 1, {"a": "1", "b": "3"})
    assert verified(
        seed,
        told(fields_sum=digest),
        told(fields_sum=altered),
        told(),
        told(fields_sum=None, fields_at=None),
    ) == [True, False, False, True]


def test_the_owner_is_what_the_server_knows_not_what_the_client_says() -> None:
    seed = opened()
    ((first,), (second,)) = (
        written(seed.receive(number, [Receipts(receipts=[receipt()])])) for number in (1, 2)
    )
    assert first["session"] == second["session"] == "s.1"
    assert first["owner"].startswith("~")
    assert first["owner"].endswith("/p")
    assert second["owner"] == "mdserver-2"


def test_a_flood_of_receipts_is_left_out_counted_and_costs_little() -> None:
    seed = opened()
    seed.receive(1, [Subscribe(subjects=["/a/b"])])
    flood = Receipts(receipts=[receipt()] * 1000)
    out: list[Output] = []
    for _ in range(RECEIPTS_PER_SESSION_MAX // 1000 + 2):
        before = seed.broker.claims.work
        out += seed.receive(1, [flood])
        assert seed.broker.claims.work - before <= RECEIPT_CONFIRM_BYTES_AT_ONCE + 10_000
    assert len(written(out)) == RECEIPTS_PER_SESSION_MAX
    assert [error.code for error in errors(out)] == ["receipts-left-out"] * 2
    seed.receive(2, [Subscribe(subjects=["/a/b"])])
    assert verified(seed, receipt(), session=2) == [True]
    seed.pass_time(seed.now + RECEIPTS_S * NS_PER_S)
    (later,) = written(seed.receive(1, [Receipts(receipts=[receipt()])]))
    assert (later["left_out"], later["verified"]) == (2000, True)


def test_what_was_left_out_last_is_told_when_the_session_ends() -> None:
    seed = opened()
    for _ in range(RECEIPTS_PER_SESSION_MAX // 1000 + 1):
        seed.receive(1, [Receipts(receipts=[receipt()] * 1000)])
    (told,) = [
        one
        for one in seed.close(1, "gone")
        if isinstance(one, Log) and one.name == "receipts-left-out"
    ]
    assert told.values["reason"] == "1,000 receipts were left out."


def test_without_a_journal_nothing_is_written_or_refused() -> None:
    seed = OneSeed(BrokerSettings())
    seed.open(1)
    assert seed.receive(1, [Connect(), Receipts(receipts=[receipt()])])[1:] == []
