"""What a node says: every kind is carried out by whoever drives a node, and none changes."""

from typing import Any, get_args

import attrs
import pytest

from mdserver.cluster import messages
from mdserver.cluster.wal import WriteWal
from mdserver.core.inputs import TimerDue
from mdserver.core.outputs import (
    Announced,
    Authorize,
    ClusterOutput,
    Deliver,
    Output,
    SetTimer,
    Trace,
)
from mdserver.limits import NS_PER_MS
from simulation.cluster import Cluster

BY_THE_CORE = [kind for kind in get_args(Output) if kind is not ClusterOutput]
BY_THE_CLUSTER = [
    kind
    for kind in (*vars(messages).values(), WriteWal)
    if isinstance(kind, type) and issubclass(kind, ClusterOutput) and kind is not ClusterOutput
]


@pytest.mark.parametrize("kind", [*BY_THE_CORE, *BY_THE_CLUSTER])
def test_an_output_does_not_change(kind: Any) -> None:
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
    else:
        names = list(kind.__struct_fields__)
    one = kind(**dict.fromkeys(names))
    for name in names:
        with pytest.raises(AttributeError):
            setattr(one, name, 1)


def test_every_kind_that_has_an_effect_is_carried_out_in_memory() -> None:
    """Only what a test does not look at is passed over, and where members go to meet others."""
    cluster = Cluster()
    cluster.start("m1:1")
    passed_over = {Announced, Authorize, Trace, messages.PeerDiscovered}
    carried = set(cluster.members["m1:1"].carriers)
    assert {*BY_THE_CORE, *BY_THE_CLUSTER} - passed_over == carried


def test_a_timer_that_is_set_again_moves() -> None:
    cluster = Cluster()
    cluster.start("m1:1")
    member = cluster.members["m1:1"]
    due: list[int] = []

    def step(input: Any) -> list[Output]:  # noqa: A002
        if input == TimerDue(("test",)):
            due.append(cluster.heap.now)
        return []

    member.step = step  # type: ignore[method-assign]
    begin = cluster.heap.now
    for after in (10, 50, 20):
        at = member.clock.now() + after * NS_PER_MS
        member.carriers[SetTimer](SetTimer(("test",), at))
    cluster.run(100 * NS_PER_MS)
    assert due == [begin + 20 * NS_PER_MS]


def test_what_goes_to_many_is_one_value() -> None:
    sessions = list(range(1000))
    one = Deliver(None, sessions)  # type: ignore[arg-type]
    assert one.sessions is sessions
