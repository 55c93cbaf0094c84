"""The parts of a member share what they are given, and hold nothing else of it."""

import random

import attrs
import pytest

from mdserver.cluster.node import Node
from mdserver.cluster.part import MemberPart
from mdserver.cluster.settings import ClusterSettings
from mdserver.core.settings import BrokerSettings


def parts(*, guaranteed: bool) -> list[MemberPart]:
    """All parts that can be reached from a node, each once."""
    settings = ClusterSettings("m1:1", ("m1:1", "m2:1", "m3:1"), guaranteed=guaranteed)
    node = Node(BrokerSettings(member="m1:1", groups=4), random.Random(1), settings)
    found: list[MemberPart] = []
    left: list[object] = list(vars(node).values())
    while left:
        one = left.pop()
        if isinstance(one, MemberPart) and all(one is not other for other in found):
            found.append(one)
            left += [getattr(one, field.name) for field in attrs.fields(type(one))]
    return found


@pytest.mark.parametrize("guaranteed", [True, False])
def test_all_parts_of_a_member_work_on_the_same_groups(guaranteed: bool) -> None:
    found = parts(guaranteed=guaranteed)
    assert len(found) >= 5
    first = found[0]
    for part in found:
        assert part.groups is first.groups
        assert part._outgoing is first._outgoing
        assert part._members is first._members
        assert part._settings is first._settings


@pytest.mark.parametrize("guaranteed", [True, False])
def test_a_part_reaches_what_it_declares_and_not_the_node(guaranteed: bool) -> None:
    for part in parts(guaranteed=guaranteed):
        declared = {field.name for field in attrs.fields(type(part))}
        assert set(getattr(part, "__dict__", {})) <= declared
        assert not any(isinstance(getattr(part, name), Node) for name in declared)
