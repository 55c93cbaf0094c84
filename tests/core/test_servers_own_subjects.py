"""`/__mdserver__/...`: who may read there, and that no client publishes there."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.node import Node
from mdserver.core.commands import AnyCommand, Connect, Publish, RenewToken, Subscribe
from mdserver.core.entitlement import Policy
from mdserver.core.events import Status, StatusName
from mdserver.core.inputs import Announce, Authorized, Grants, Opened, Received, RulesChanged
from mdserver.core.message import Publication, Qos
from mdserver.core.outputs import Authorize, Deliver, Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import is_pattern, is_servers_own, member_segment, validate_subject

OWN = "/__mdserver__/statistics/a"
ANNOUNCEMENT = Announce([Publication(OWN, b"{}", retained=False, qos=Qos.STANDARD)])
BASIC = BrokerSettings(policy=Policy.BASIC, allow_token="right")


def opened(settings: BrokerSettings) -> Node:
    node = Node(settings, random.Random(1))
    node.step(Opened(1, "127.0.0.1"), 0)
    return node


def statuses(out: list[Output]) -> list[StatusName]:
    events = [output.event for output in out if isinstance(output, Send)]
    return [event.status for event in events if isinstance(event, Status)]


def told(node: Node, *commands: AnyCommand) -> list[StatusName]:
    return statuses(node.step(Received(1, commands), 1))


def delivered(node: Node) -> list[tuple[str, str | None]]:
    out = node.step(ANNOUNCEMENT, 1)
    deliveries = [output.delivery for output in out if isinstance(output, Deliver)]
    return [(one.entry.publication.subject, one.match) for one in deliveries]


@pytest.mark.parametrize("subject", [OWN, "/__mdserver__/x", "/__mdserver__/pipeline"])
@pytest.mark.parametrize("qos", list(Qos))
def test_no_client_publishes_there(subject: str, qos: Qos) -> None:
    node = opened(BrokerSettings())
    told(node, Connect(), Subscribe(subjects=["/__mdserver__/**"]))
    publish = Publish(subject=subject, content="x", closure="c", qos=qos)
    out = node.step(Received(1, (publish,)), 1)
    assert statuses(out) == [StatusName.PUBLISH_DENIED]
    assert not [output for output in out if isinstance(output, Deliver)]


def test_tools_publish_below_a_subject_of_theirs() -> None:
    node = opened(BrokerSettings())
    publish = Publish(subject="/__mdserver__/pipeline/derive", content="x", closure="c")
    assert told(node, Connect(), publish) == [StatusName.PUBLISH_OK]


@pytest.mark.parametrize("pattern", ["/**", "/*/statistics/*", "/*/**", "/*/*/a"])
def test_wildcards_leave_them_out(pattern: str) -> None:
    node = opened(BrokerSettings())
    told(node, Connect(), Subscribe(subjects=[pattern]))
    assert delivered(node) == []


@pytest.mark.parametrize("wanted", [OWN, "/__mdserver__/statistics/*", "/__mdserver__/**"])
def test_without_entitlement_whoever_names_them_reads_them(wanted: str) -> None:
    node = opened(BrokerSettings())
    told(node, Connect(), Subscribe(subjects=["/**", wanted]))
    assert delivered(node) == [(OWN, None if wanted == OWN else wanted)]


@pytest.mark.parametrize("wanted", [OWN, "/__mdserver__/statistics/*", "/__mdserver__/**"])
def test_under_basic_only_those_with_the_token_read_them(wanted: str) -> None:
    node = opened(BASIC)
    subscribe = Subscribe(subjects=["/**", wanted])
    assert told(node, Connect(), subscribe) == [StatusName.SUBSCRIBE_DENY]
    assert delivered(node) == []
    renewed = [StatusName.TOKEN_UPDATED]
    assert told(node, RenewToken(token="right"), subscribe) == renewed
    assert len(delivered(node)) == 1


def test_a_refused_token_changes_nothing_and_another_configured_one_ends_the_right() -> None:
    node = opened(BASIC)
    told(node, Connect(token="right"), Subscribe(subjects=["/__mdserver__/**", "/a/**"]))
    assert told(node, RenewToken(token="wrong")) == [StatusName.TOKEN_INVALID]
    assert len(delivered(node)) == 1
    assert statuses(node.step(RulesChanged("right", None), 1)) == []
    assert statuses(node.step(RulesChanged("another", None), 1)) == [StatusName.SUBSCRIBE_DENY]
    assert delivered(node) == []


@pytest.mark.parametrize(
    ("grants", "messages"),
    [(None, 0), (Grants(subscribe=("/**",)), 0), (Grants(subscribe=("/**", "/__mdserver__/*")), 1)],
)
@pytest.mark.parametrize("ask_each", [False, True])
def test_an_authorizer_has_to_grant_them(
    ask_each: bool, grants: Grants | None, messages: int
) -> None:
    node = opened(BrokerSettings(policy=Policy.ASK, ask_each=ask_each))

    def answered(out: list[Output], verdict: Grants | None) -> None:
        for question in [output for output in out if isinstance(output, Authorize)]:
            node.step(Authorized(question.request, verdict), 1)

    answered(node.step(Received(1, (Connect(),)), 1), grants)
    # An authorizer that is asked about each subject says yes to everything.
    answered(node.step(Received(1, (Subscribe(subjects=["/**", OWN]),)), 1), None)
    assert len(delivered(node)) == messages


@given(st.text(max_size=128).filter(lambda text: text.isprintable()))
def test_each_name_of_a_member_is_one_segment(name: str) -> None:
    subject = f"/__mdserver__/statistics/{member_segment(name)}"
    validate_subject(subject, 3, 3)
    assert is_servers_own(subject)
    assert not is_pattern(subject)
