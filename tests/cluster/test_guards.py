"""A member counts what it refuses."""

import random

from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import Ballot, Hello, PeerReceived, PeerUp, Prepare
from mdserver.cluster.node import Node
from mdserver.cluster.settings import ClusterSettings
from mdserver.core.settings import BrokerSettings


def test_a_refused_prepare_is_counted() -> None:
    cluster = ClusterSettings("a:1", ("a:1", "b:1", "c:1"), client="a:2")
    settings = BrokerSettings(member="a", groups=1, publisher_secret=b"secret")
    node = Node(settings, random.Random(1), cluster)
    node.step(PeerUp("b:1"), 1)
    assert not any(node.refused.values())

    hello = Hello(1, False, "b:2", {}, (), 1, "b")
    node.step(PeerReceived("b:1", [hello, Prepare([Ballot(0, 1, 0, "")], {}, False)]), 2)

    assert {guard for guard, count in node.refused.items() if count} == {Guard.PREPARE_NOT_VOTING}
