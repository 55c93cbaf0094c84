"""From which addresses clients may publish, and what a running broker takes of new rules."""

import random
from ipaddress import ip_network

import pytest

from mdserver.cluster.node import Node
from mdserver.core.commands import AnyCommand, Connect, Publish, RenewToken
from mdserver.core.entitlement import Policy, within
from mdserver.core.events import Status, StatusName
from mdserver.core.inputs import Opened, Received, RulesChanged
from mdserver.core.outputs import Send
from mdserver.core.settings import BrokerSettings

NETWORKS = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"), ip_network("192.0.2.7"))


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.255.0.1", True),
        ("11.0.0.1", False),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("fd12::1", True),
        ("fe80::1", False),
        ("::ffff:10.1.1.1", True),
        ("not an address", False),
    ],
)
def test_addresses_in_networks(address: str, inside: bool) -> None:
    assert within(address, NETWORKS) is inside
    assert within(address, None)
    assert not within(address, ())


def statuses(node: Node, *commands: AnyCommand) -> list[StatusName]:
    out = node.step(Received(1, commands), 1)
    events = [output.event for output in out if isinstance(output, Send)]
    return [event.status for event in events if isinstance(event, Status)]


PUBLISH = Publish(subject="/a/b", content="x", closure="c")


def test_publishing_from_other_addresses_is_denied_until_the_list_changes() -> None:
    settings = BrokerSettings(publish_networks=NETWORKS)
    node = Node(settings, random.Random(1))
    node.step(Opened(1, "11.0.0.1"), 0)
    assert statuses(node, PUBLISH) == [StatusName.PUBLISH_DENIED]
    node.step(RulesChanged("", (*NETWORKS, ip_network("11.0.0.1"))), 0)
    assert statuses(node, PUBLISH) == [StatusName.PUBLISH_OK]
    node.step(RulesChanged("", ()), 0)
    assert statuses(node, PUBLISH) == [StatusName.PUBLISH_DENIED]
    node.step(RulesChanged("", None), 0)
    assert statuses(node, PUBLISH) == [StatusName.PUBLISH_OK]


def test_a_new_token_ends_the_trust_in_the_old_one() -> None:
    node = Node(BrokerSettings(policy=Policy.BASIC, allow_token="old"), random.Random(1))
    node.step(Opened(1, "127.0.0.1"), 0)
    assert statuses(node, Connect(token="old"), PUBLISH) == [StatusName.PUBLISH_OK]
    node.step(RulesChanged("old", None), 0)
    assert statuses(node, PUBLISH) == [StatusName.PUBLISH_OK]
    node.step(RulesChanged("new", None), 0)
    assert statuses(node, PUBLISH) == [StatusName.PUBLISH_DENIED]
    assert statuses(node, RenewToken(token="new"), PUBLISH) == [
        StatusName.TOKEN_UPDATED,
        StatusName.PUBLISH_OK,
    ]
