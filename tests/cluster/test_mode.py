"""Both modes do all that a mode has to do, and each message belongs to somebody."""

import random
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from mdserver.cluster.guaranteed import Guaranteed
from mdserver.cluster.messages import AnyPeerMessage, ClosePeer, PeerReceived
from mdserver.cluster.mode import Mode, Sequencer
from mdserver.cluster.node import Node
from mdserver.cluster.settings import ClusterSettings, worker_of
from mdserver.cluster.standard import Standard
from mdserver.core.settings import BrokerSettings
from simulation.cluster import Cluster

MODES = {True: Guaranteed, False: Standard}


def node(*, guaranteed: bool) -> Node:
    settings = ClusterSettings("m1:1", ("m1:1", "m2:1", "m3:1"), guaranteed=guaranteed)
    return Node(BrokerSettings(member="m1:1", groups=4), random.Random(1), settings)


def promised(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]


@pytest.mark.parametrize("guaranteed", MODES)
def test_a_mode_has_all_that_a_mode_promises(guaranteed: bool) -> None:
    mode: Any = node(guaranteed=guaranteed).mode
    assert isinstance(mode, MODES[guaranteed])
    for name in promised(Mode):
        found = getattr(mode, name)
        if name == "sequencer":
            assert all(callable(getattr(found, one)) for one in promised(Sequencer))
        elif name == "handlers":
            assert isinstance(found, Mapping)
        else:
            assert callable(found), name


def test_every_message_is_handled_in_one_of_the_modes_or_by_a_worker() -> None:
    settings = worker_of("m1:1", "m1:1/worker-1")
    worker = Node(BrokerSettings(member="m1:1", groups=4), random.Random(1), settings)
    handled: dict[type, None] = dict.fromkeys(worker._handlers)
    for guaranteed in MODES:
        handled |= dict.fromkeys(node(guaranteed=guaranteed)._handlers)
    assert {kind.__name__ for kind in handled} == {
        kind.__name__ for kind in get_args(AnyPeerMessage)
    }


@pytest.mark.parametrize("guaranteed", MODES)
def test_a_message_of_another_mode_has_its_link_closed(guaranteed: bool) -> None:
    theirs = dict(node(guaranteed=not guaranteed).mode.handlers)
    mine = node(guaranteed=guaranteed)
    foreign = [kind for kind in theirs if kind not in mine._handlers]
    assert foreign
    for kind in foreign:
        cluster = Cluster(3, guaranteed=guaranteed)
        cluster.start()
        cluster.until(cluster.ready)
        message = kind(*[None] * len(kind.__struct_fields__))
        closes = [
            output
            for output in cluster.feed("m1:1", PeerReceived("m2:1", [message]))
            if isinstance(output, ClosePeer)
        ]
        reason = f"{kind.__name__} says nothing in this delivery mode"
        assert closes == [ClosePeer("m2:1", reason)]


def test_a_member_that_serves_says_no_reason_not_to() -> None:
    for guaranteed in MODES:
        cluster = Cluster(3, guaranteed=guaranteed)
        cluster.start()
        modes = [member.running.mode for member in cluster.members.values()]
        assert all(mode.unready() for mode in modes)
        cluster.until(cluster.ready)
        assert [mode.unready() for mode in modes] == [None] * 3
