"""Which owner has the most publishers, whatever was added and removed."""

from collections import Counter, OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.owners import Owners, owner_bound

CHANGES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=120)


@given(CHANGES)
def test_the_owner_with_the_most_is_found(changes: list[tuple[str, int]]) -> None:
    """What comes again goes: so owners grow and shrink."""
    owners: Owners[tuple[str, int]] = Owners()
    names: dict[tuple[str, int], None] = {}
    for name in changes:
        if name in names:
            del names[name]
            owners.remove(name[0], name)
        else:
            names[name] = None
            assert next(reversed(owners.add(name[0], name))) == name
        sizes = Counter(owner for owner, _ in names)
        most = max(sizes.values(), default=0)
        assert owners.excessive(most) is None
        if most:
            found = owners.excessive(most - 1)
            assert found is not None
            largest = next(iter(found))[0]
            assert sizes[largest] == most
            assert found == OrderedDict.fromkeys(one for one in names if one[0] == largest)
    owners.clear()
    assert owners.excessive(0) is None


def test_a_small_table_leaves_each_owner_one() -> None:
    assert [owner_bound(most) for most in (1, 7, 16, 100_000)] == [1, 1, 2, 12_500]
