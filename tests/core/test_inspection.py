"""What operators may look up of sessions and subjects."""

import random

from mdserver.cluster.node import Node
from mdserver.core.commands import Connect, Publish, Subscribe
from mdserver.core.inputs import Opened, Received
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import group_of
from mdserver.limits import NS_PER_S

START = 1_000 * NS_PER_S


def node_of(**settings: int) -> Node:
    node = Node(BrokerSettings(**settings), random.Random(1), now=START)  # type: ignore[arg-type]
    for session in (1, 2):
        node.step(Opened(session, "127.0.0.1"), START)
        node.step(Received(session, [Connect(client=f"client {session}")]), START)
    return node


def test_a_subject_with_what_is_cached_and_who_wants_it() -> None:
    node = node_of()
    node.step(Received(1, [Subscribe(subjects=["/a/b", "/a/*"])]), START)
    node.step(Received(2, [Subscribe(subjects=["/a/**"])]), START)
    for second in range(30):
        content = Publish(subject="/a/b", content="x" * 10)
        node.step(Received(1, [content]), START + second * NS_PER_S)
    look = node.broker.inspection
    assert look.subjects() == ["/a/b"]
    now = START + 30 * NS_PER_S
    view = look.subject("/a/b", now)
    assert view is not None
    assert (view.messages, view.subscribers, view.seq) == (30, 2, 30)
    assert view.group == group_of("/a/b", node.broker.settings.groups)
    assert view.bytes > 30 * 10
    assert view.per_second == 0.5, "thirty in the last minute"
    assert look.cached("/a/b") == 30
    assert look.subject("/a/b", now + 100 * NS_PER_S).per_second == 0  # type: ignore[union-attr]
    assert look.subject("/nothing/here", now) is None
    assert look.cached("/nothing/here") == 0


def test_a_rate_beyond_what_is_cached() -> None:
    node = node_of(cached_messages_per_subject=10)
    for tenth in range(200):
        now = START + tenth * NS_PER_S // 10
        node.step(Received(1, [Publish(subject="/a/b", content="x")]), now)
    view = node.broker.inspection.subject("/a/b", now)
    assert view is not None
    assert view.messages == 10
    assert 9 <= view.per_second <= 12


def test_a_session_with_its_subscriptions() -> None:
    node = node_of()
    node.step(Received(1, [Subscribe(subjects=["/a/b", "/c/*", "/d/e"])]), START)
    found = node.broker.inspection.session(1, 2)
    assert found is not None
    assert (found.client, found.subscriptions, found.names) == ("client 1", 3, ("/a/b", "/c/*"))
    assert node.broker.inspection.session(7, 2) is None
