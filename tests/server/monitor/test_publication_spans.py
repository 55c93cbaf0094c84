"""Spans of publications: what each member of a cluster says of one, and that it fits together."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mdserver.core.commands import Publish
from mdserver.core.message import Publication, Qos
from mdserver.limits import NS_PER_S as S
from mdserver.limits import TRACED_OPEN_MAX, TRACED_PUBLICATIONS_PER_SECOND
from mdserver.server.monitor.publication_spans import (
    NotedTimes,
    Parent,
    Sampler,
    SpanNode,
    TraceSpan,
    read_traceparent,
)
from simulation.cluster import Cluster

TRACE, ABOVE = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
SAMPLED = f"00-{TRACE:032x}-{ABOVE:016x}-01"
SUBJECT = "/a/b"


class SeenNode(SpanNode):
    """A node whose spans are kept, for a driver that needs the rest of the node as well."""

    def __init__(self, node: Any, ratio: float) -> None:
        self.seen: list[TraceSpan] = []
        self.now = 0
        super().__init__(node, Sampler(ratio), self.seen.append)

    def step(self, input: Any, now: int) -> Any:  # noqa: A002
        self.now = now
        return super().step(input, now)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def watched(
    count: int = 3, ratio: float = 0.0, workers: int = 0
) -> tuple[Cluster, dict[str, list[TraceSpan]]]:
    """A cluster with a subscriber and a publisher at each member, and the spans by member.

    With workers they are at these.
    """
    cluster = Cluster(count, workers=bool(workers))
    cluster.start()
    for name in cluster.names * workers:
        cluster.start_worker(name)
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    spans = {}
    for name, member in cluster.members.items():
        node = SeenNode(member.node, ratio)
        member.node = node  # type: ignore[assignment]
        spans[name] = node.seen
        if workers and "/" not in name:
            continue
        cluster.open(name, 1)
        cluster.subscribe(name, 1, SUBJECT)
        cluster.open(name, 2)
        cluster.subscribe(name, 2, "/a/*")
    cluster.run(S)
    return cluster, spans


def flush(cluster: Cluster) -> None:
    cluster.run(S)
    for member in cluster.members.values():
        assert isinstance(member.node, SeenNode)
        member.node.flushed(member.node.now)


def check_tree(spans: dict[str, list[TraceSpan]], above: int) -> list[TraceSpan]:
    """Spans of one publication: each has its parent among them, and fits between its times."""
    found = [span for of_member in spans.values() for span in of_member]
    by_id = {span.id: span for span in found}
    assert len(by_id) == len(found), "each id is there once"
    assert len({span.trace for span in found}) == 1
    for span in found:
        assert span.start <= span.end
        if span.name == "publish":
            assert (span.parent, span.remote) == (above, bool(above))
        else:
            assert by_id[span.parent].start <= span.start
            assert not span.remote
    return found


@pytest.mark.parametrize("contact", [0, 1, 2])
def test_each_member_adds_its_spans_to_the_trace_of_the_client(contact: int) -> None:
    cluster, spans = watched()
    publisher = cluster.names[contact]
    coordinator = cluster.coordinator(cluster.group(SUBJECT))
    cluster.publish(publisher, 1, SUBJECT, "one", fields={"traceparent": SAMPLED})
    flush(cluster)
    found = check_tree(spans, ABOVE)
    assert {span.trace for span in found} == {TRACE}
    forwarded = ["forward"] if publisher != coordinator else []
    assert sorted(span.name for span in found) == sorted(
        ["publish", *forwarded, "commit", "fan-out", "fan-out", "fan-out"]
    )
    names = {name: [span.name for span in of_member] for name, of_member in spans.items()}
    assert "publish" in names[publisher]
    assert "commit" in names[str(coordinator)]
    above = next(span.id for span in found if span.name == (forwarded or ["publish"])[0])
    assert next(span for span in found if span.name == "commit").parent == above
    for span in found:
        assert span.attributes["messaging.destination.name"] == SUBJECT
        assert span.attributes["mdserver.seq"] == 1
        if span.name == "fan-out":
            assert span.attributes["mdserver.sessions"] == 2, "by name and by pattern"


@pytest.mark.parametrize("count", [1, 3])
def test_workers_add_what_they_hand_out_and_their_member_the_rest(count: int) -> None:
    cluster, spans = watched(count, workers=2)
    coordinator = cluster.coordinator(cluster.group(SUBJECT))
    for member in cluster.names:
        for kept in spans.values():
            kept.clear()
        worker = f"{member}/worker-1"
        cluster.publish(worker, 1, SUBJECT, member, fields={"traceparent": SAMPLED})
        flush(cluster)
        check_tree(spans, ABOVE)
        forwarded = ["forward"] if member != coordinator else []
        names = {name: [span.name for span in kept] for name, kept in spans.items()}
        assert names[str(coordinator)].count("commit") == 1
        assert {"publish", *forwarded} <= set(names[member])
        assert sorted(name for kept in names.values() for name in kept) == sorted(
            ["publish", "commit", *forwarded, *["fan-out"] * 2 * count]
        )
        assert all(names[name] == ["fan-out"] for name in names if "/" in name)


def test_publications_of_one_read_have_all_their_spans() -> None:
    """They have the same time, and may have no number to tell them apart."""
    cluster, spans = watched()
    other = SAMPLED.replace(f"{ABOVE:016x}", f"{ABOVE + 1:016x}")
    commands = [
        Publish(subject=SUBJECT, content=content, id=content, fields={"traceparent": parent})
        for content, parent in (("one", SAMPLED), ("two", SAMPLED), ("one", other))
    ]
    cluster.say("m1:1", 1, *commands)
    flush(cluster)
    names = [span.name for of_member in spans.values() for span in of_member]
    assert names.count("publish") == names.count("commit") == 3
    assert names.count("fan-out") == 9


def test_what_is_conflated_has_no_spans_of_its_window() -> None:
    cluster, spans = watched(1)
    cluster.open("m1:1", 3)
    cluster.subscribe("m1:1", 3, SUBJECT, conflation_ms=1000)
    cluster.publish("m1:1", 1, SUBJECT, "one", qos=Qos.STANDARD, fields={"traceparent": SAMPLED})
    flush(cluster)
    cluster.run(2 * S)
    flush(cluster)
    found = check_tree(spans, ABOVE)
    assert sorted(span.name for span in found) == ["fan-out", "publish"]


def test_members_decide_alike_which_publications_without_a_trace_are_traced() -> None:
    cluster, spans = watched(ratio=0.5)
    for number in range(60):
        cluster.publish(cluster.names[number % 3], 1, SUBJECT, str(number))
        cluster.run(S // 10)
    flush(cluster)
    traces: dict[int, list[str]] = {}
    for of_member in spans.values():
        for span in of_member:
            traces.setdefault(span.trace, []).append(span.name)
    assert 10 < len(traces) < 50
    for names in traces.values():
        assert names.count("publish") == names.count("commit") == 1
        assert names.count("fan-out") == 3


def test_what_its_client_does_not_sample_is_not_traced() -> None:
    cluster, spans = watched(ratio=1.0)
    text = SAMPLED.removesuffix("1") + "0"
    cluster.publish("m1:1", 1, SUBJECT, "one", fields={"traceparent": text})
    flush(cluster)
    assert not any(spans.values())


def test_a_publication_that_no_log_holds_is_traced_as_well() -> None:
    cluster, spans = watched()
    cluster.publish("m1:1", 1, SUBJECT, "one", qos=Qos.STANDARD, fields={"traceparent": SAMPLED})
    flush(cluster)
    found = check_tree(spans, ABOVE)
    assert sorted(span.name for span in found) == ["fan-out", "fan-out", "fan-out", "publish"]
    assert all("mdserver.seq" not in span.attributes for span in found)


def test_clients_can_have_only_so_many_publications_traced() -> None:
    cluster, spans = watched(count=1)
    for number in range(2 * TRACED_PUBLICATIONS_PER_SECOND):
        cluster.publish("m1:1", 1, SUBJECT, str(number), fields={"traceparent": SAMPLED})
    flush(cluster)
    published = [span for span in spans["m1:1"] if span.name == "publish"]
    assert len(published) == TRACED_PUBLICATIONS_PER_SECOND


def test_what_never_gets_a_position_is_forgotten() -> None:
    marks = NotedTimes()
    for number in range(TRACED_OPEN_MAX + 10):
        marks.note(Publication(SUBJECT, b"", time=number), number)
    assert marks.take(Publication(SUBJECT, b"", time=9)) is None
    assert marks.take(Publication(SUBJECT, b"", time=10)) == 10
    assert marks.take(Publication(SUBJECT, b"", time=10)) is None


def test_a_traceparent_is_read_as_the_recommendation_says() -> None:
    assert read_traceparent(SAMPLED) == Parent(TRACE, ABOVE, True)
    assert read_traceparent(f"cc{SAMPLED[2:]}-what-comes-later") == Parent(TRACE, ABOVE, True)
    for text in (
        "",
        f"ff{SAMPLED[2:]}",
        f"{SAMPLED}-more",
        SAMPLED.upper(),
        f"00-{0:032x}-{ABOVE:016x}-01",
        f"00-{TRACE:032x}-{0:016x}-01",
        f" {SAMPLED}",
        f"{SAMPLED}\n",
    ):
        assert read_traceparent(text) is None, text


@given(st.text(max_size=80))
def test_any_text_may_stand_in_the_field(text: str) -> None:
    publication = Publication(SUBJECT, b"", fields={"traceparent": text})
    read = read_traceparent(text)
    assert Sampler(0.0).parent_of(publication) == (read if read and read.sampled else None)
    if read is None:
        found = Sampler(1.0).parent_of(publication)
        assert found is not None, "as without one"
        assert evolve(found, trace=0) == Parent(0, 0, True)
