"""One server: a cluster of one seed, through `Node.step` alone."""

import random
from typing import cast

from mdserver.cluster.messages import AdminCommand, AdminReply
from mdserver.cluster.node import Node, publish_runs
from mdserver.core.commands import Connect, Ping, Publish, Subscribe
from mdserver.core.events import Status, StatusName
from mdserver.core.inputs import Opened, Received
from mdserver.core.outputs import Deliver, Output, Send
from mdserver.core.settings import BrokerSettings

NOW = 1_700_000_000_000_000_000


def node() -> Node:
    made = Node(BrokerSettings(), random.Random(7))
    made.step(Opened(1, "127.0.0.1"), NOW)
    made.step(Opened(2, "127.0.0.1"), NOW)
    return made


def statuses(outputs: list[Output]) -> list[Status]:
    return [
        output.event
        for output in outputs
        if isinstance(output, Send) and isinstance(output.event, Status)
    ]


def test_a_publication_reaches_the_subscriber_and_is_acknowledged() -> None:
    server = node()
    server.step(Received(1, [Subscribe(subjects=["/a/b"])]), NOW)
    outputs = server.step(Received(2, [Publish(subject="/a/b", content="x", id=1)]), NOW)
    delivered = [output for output in outputs if isinstance(output, Deliver)]
    assert [list(output.sessions) for output in delivered] == [[1]]
    (entry,) = [output.delivery.entry for output in delivered]
    assert (entry.seq, entry.publication.content) == (1, b"x")
    (ok,) = statuses(outputs)
    assert (ok.status, ok.epoch, ok.seq, ok.id) == (StatusName.PUBLISH_OK, entry.epoch, 1, 1)


def test_publications_of_one_read_are_numbered_in_order() -> None:
    server = node()
    commands = [Publish(subject="/a/b", content=str(i), id=i) for i in range(5)]
    oks = statuses(server.step(Received(2, commands), NOW))
    assert [(ok.id, ok.seq) for ok in oks] == [(i, i + 1) for i in range(5)]


def test_a_repeated_number_keeps_its_position_and_a_gap_is_refused() -> None:
    server = node()
    server.step(Received(2, [Connect(publisher="p")]), NOW)
    publish = Publish(subject="/a/b", content="x", id=1, number=1)
    (first,) = statuses(server.step(Received(2, [publish]), NOW))
    (again,) = statuses(server.step(Received(2, [publish]), NOW))
    assert (again.status, again.epoch, again.seq) == (first.status, first.epoch, first.seq)
    assert again.duplicate
    gap = Publish(subject="/a/b", content="x", id=2, number=5)
    (refused,) = statuses(server.step(Received(2, [gap]), NOW))
    assert (refused.status, refused.expected, refused.certain) == (
        StatusName.PUBLISH_FAILED,
        2,
        True,
    )


def test_runs_never_mix_publications_with_other_commands() -> None:
    publish, ping = Publish(subject="/a/b", content="x"), Ping()
    commands = [publish, publish, ping, ping, publish]
    assert publish_runs(commands) == [[publish, publish], [ping, ping], [publish]]
    assert publish_runs([]) == []
    assert publish_runs([ping]) == [[ping]]


def test_a_single_server_is_normal_from_the_start() -> None:
    server = node()
    (answered,) = [
        output
        for output in server.step(AdminCommand(1, "status"), NOW)
        if isinstance(output, AdminReply)
    ]
    (member,) = cast("list[dict[str, object]]", answered.answer["members"])
    assert member["state"] == "NORMAL"
    assert answered.answer["quorum"] is True
    groups = cast("list[dict[str, object]]", answered.answer["groups"])
    assert {row["coordinator"] for row in groups} == {member["address"]}


def test_the_numbering_of_subjects_is_bounded_by_the_limit_of_subjects() -> None:
    server = Node(BrokerSettings(subjects_max=3), random.Random(7))
    server.step(Opened(1, "127.0.0.1"), NOW)
    for index in range(6):
        server.step(Received(1, [Publish(subject=f"/s/{index}", content="x")]), NOW)
    known = [subject for group in server.groups for subject in group.log.numbering]
    assert sorted(known) == ["/s/0", "/s/1", "/s/2"]
