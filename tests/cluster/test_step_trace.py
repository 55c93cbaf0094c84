"""Steps of a group under the names of the specification, and that nothing is made without wish."""

import random

from attrs import evolve

from mdserver.cluster.node import Node
from mdserver.cluster.settings import alone
from mdserver.core.commands import Connect, Publish
from mdserver.core.inputs import Opened, Received
from mdserver.core.outputs import Trace
from mdserver.core.settings import BrokerSettings
from mdserver.limits import NS_PER_S as S


def traced(*, trace: bool) -> list[Trace]:
    """Return what a single server traces that takes two publications, the second one numbered."""
    settings = evolve(alone("m1:1"), trace=trace)
    node = Node(BrokerSettings(groups=1), random.Random(1), settings)
    publications = [Publish(subject="/a/b", content="x", number=number) for number in (None, 1)]
    commands = [Connect(publisher="p"), *publications]
    steps = [Opened(1, "127.0.0.1"), *(Received(1, [command]) for command in commands)]
    return [one for step in steps for one in node.step(step, S) if isinstance(one, Trace)]


def test_each_step_has_its_name_and_the_state_after_it() -> None:
    steps = traced(trace=True)
    published = ["Publish", "Accept", "Commit", "Learn"]
    elected = ["Promise", "Elect", "ColdSync", "Activate"]
    assert [step.name for step in steps] == [*elected, *published, *published]
    states = [(step.values["length"], step.values["committed"]) for step in steps[4:]]
    assert states == [(1, 0), (1, 0), (1, 1), (1, 1), (2, 1), (2, 1), (2, 2), (2, 2)]
    assert {step.values["standing"] for step in steps[2:]} == {"normal"}
    assert (steps[1].values["list"], steps[1].values["seats"]) == (1, "m1:1")


def test_publications_have_the_names_of_their_publishers_or_of_their_places() -> None:
    names = [step.values["publications"] for step in traced(trace=True) if step.name == "Publish"]
    assert names[0] == "1.0"
    assert str(names[1]).endswith("/p#1")


def test_nothing_is_traced_without_wish() -> None:
    assert traced(trace=False) == []
