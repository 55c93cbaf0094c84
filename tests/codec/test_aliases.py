"""The server's table of aliases: bounded, never ambiguous, three bytes at most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.codec.aliases import AHEAD_MAX, Alias, AliasTable, read_alias
from mdserver.codec.frames import varint
from mdserver.errors import RemoteProtocolError


def test_an_alias_is_agreed_once() -> None:
    table = AliasTable()
    first = table.agree("/a/b", None, 1, 10)
    assert table.agree("/a/b", None, 1, 11) is first
    assert table.agree("/a/c", None, 1, 10).number == 1
    assert read_alias(table.payload(first.key)) == (0, Alias("/a/b", None, 1, 10))


def test_a_pattern_has_an_alias_of_its_own() -> None:
    table = AliasTable()
    exact = table.agree("/a/b", None, 1, 10)
    matched = table.agree("/a/b", "/a/*", 1, 10)
    assert exact.number != matched.number
    assert read_alias(table.payload(matched.key)) == (1, Alias("/a/b", "/a/*", 1, 10))


@pytest.mark.parametrize(("epoch", "seq"), [(2, 11), (0, 11), (1, 10 + AHEAD_MAX)])
def test_it_is_agreed_anew_under_the_same_number(epoch: int, seq: int) -> None:
    table = AliasTable()
    old = table.agree("/a/b", None, 1, 10)
    new = table.agree("/a/b", None, epoch, seq)
    assert new.number == old.number
    assert table.holds(new.key)
    assert not table.holds(old.key)
    assert read_alias(table.payload(new.key)) == (0, Alias("/a/b", None, epoch, seq))


def test_a_full_table_gives_the_oldest_number_away() -> None:
    table = AliasTable(aliases_max=2)
    keys = [table.agree(f"/a/{n}", None, 1, 1).key for n in range(3)]
    assert [table.holds(key) for key in keys] == [False, True, True]
    assert table.find("/a/0", None) is None
    assert read_alias(table.payload(keys[2])) == (0, Alias("/a/2", None, 1, 1))


def test_numbers_stay_within_three_bytes() -> None:
    assert AliasTable(2**30)._aliases_max == 2**21
    assert len(varint(2**21 - 1)) == 3


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "cut off"),
        (varint(2**21) + b"\x01\x01\x04/a/b", "beyond"),
        (b"\x00\x01\x01\x05/a/b", "cut off"),
        (b"\x00\x01\x01\x04/a/\xff", "UTF-8"),
        (b"\x00\x01\x01\x04/a/b\xff", "UTF-8"),
    ],
)
def test_a_bad_alias_is_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        read_alias(payload)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 2), st.integers(0, 3 * AHEAD_MAX)))
)
def test_numbers_name_one_live_subject_each(uses: list[tuple[str, int, int]]) -> None:
    table = AliasTable(aliases_max=3)
    client: dict[int, Alias] = {}
    for subject, epoch, seq in uses:
        agreed = table.agree(subject, None, epoch, seq)
        number, alias = read_alias(table.payload(agreed.key))
        client[number] = alias
        assert (alias.subject, alias.epoch) == (subject, epoch)
        assert seq - alias.base < AHEAD_MAX
        assert len(client) <= 3
