"""How much a broker holds: sessions, subscriptions, subjects and what is cached."""

import random

from mdserver.cluster.node import Node
from mdserver.core.commands import Publish, Subscribe
from mdserver.core.inputs import Closed, Opened, Received
from mdserver.core.settings import BrokerSettings
from mdserver.core.statistics import BrokerCounts


def test_counts_follow_what_comes_and_goes() -> None:
    node = Node(BrokerSettings(cached_messages_per_subject=2), random.Random(1))
    assert node.broker.counts() == BrokerCounts(0, 0, 0, 0, 0)
    for session in (1, 2):
        node.step(Opened(session, "127.0.0.1"), 0)
        node.step(Received(session, [Subscribe(subjects=["/a/b", "/c/*"])]), 0)
    for content in ("one", "two", "three"):
        node.step(Received(1, [Publish(subject="/a/b", content=content)]), 0)
    node.step(Received(1, [Publish(subject="/c/d", content="four")]), 0)
    node.step(Closed(2, "gone"), 0)
    counts = node.broker.counts()
    assert (counts.sessions, counts.subscriptions, counts.subjects) == (1, 2, 2)
    assert counts.cached_messages == 3
    assert counts.cache_bytes > 0
