"""What one session can make a step do is bounded: counted in branches and subjects looked at."""

import itertools
from collections.abc import Sequence

import pytest

from mdserver.core.commands import Connect, PositionAfter, Publish, Subscribe, Unsubscribe
from mdserver.core.events import Delivery, Status, StatusName
from mdserver.core.outputs import Deliver, Log, Output, Send
from mdserver.core.proposal import Proposal
from mdserver.core.settings import BrokerSettings
from tests.core.one_seed import OneSeed


class Watched(OneSeed):
    """Notes how much each step looked at."""

    def __init__(self, settings: BrokerSettings) -> None:
        super().__init__(settings)
        self.steps: list[int] = []
        self.worked = 0

    def _finish(self, out: list[Output], proposals: Sequence[Proposal] = ()) -> list[Output]:
        worked = self.broker.statistics().catch_up.worked
        if worked > self.worked:
            self.steps.append(worked - self.worked)
            self.worked = worked
        return super()._finish(out, proposals)

    @property
    def visited(self) -> int:
        return self.broker.statistics().interest.visited


def subjects_of(outputs: list[Output]) -> list[str]:
    return [
        output.event.entry.publication.subject
        for output in outputs
        if isinstance(output, Send) and isinstance(output.event, Delivery)
    ]


def filled(settings: BrokerSettings, subjects: list[str]) -> Watched:
    seed = Watched(settings)
    seed.open(1)
    seed.receive(1, [Connect()])
    for subject in subjects:
        seed.receive(1, [Publish(subject=subject, content="x")])
    seed.open(2)
    seed.receive(2, [Connect()])
    return seed


def exported_of(seed: OneSeed, group: int) -> list[str]:
    return [image.subject for image in seed.broker.export_group(group).subjects]


def delivered_to(seed: OneSeed, subject: str) -> list[int]:
    return [
        session
        for output in seed.receive(1, [Publish(subject=subject, content="x")])
        if isinstance(output, Deliver)
        for session in output.sessions
    ]


def test_many_patterns_over_many_subjects_are_searched_bit_by_bit() -> None:
    seed = filled(BrokerSettings(), [f"/users/{u}/x{u % 40}" for u in range(4_000)])
    patterns = [f"/users/*/x{number}" for number in range(1_000)]
    outputs = seed.receive(2, [Subscribe(subjects=patterns)])
    first = subjects_of(outputs)
    assert max(seed.steps) <= 5_000 + 10
    rest = subjects_of(seed.settle())
    assert sorted(first + rest) == sorted(f"/users/{u}/x{u % 40}" for u in range(4_000))
    # Each step does a bounded amount, and all together what the patterns ask for, not more.
    assert max(seed.steps) <= 5_000 + 10
    assert sum(seed.steps) <= 1_000 * 2 * 4_002 + 10 * 4_000
    assert seed.broker.statistics().catch_up.searches == 0
    assert not seed.broker.statistics().cache.noting


def test_all_ways_to_match_one_subject_cost_no_more_than_their_segments() -> None:
    subject = "/" + "/".join("abcdefghijklmn")
    seed = filled(BrokerSettings(), [subject])
    ways = itertools.product(*[(letter, "*") for letter in "abcdefghij"])
    patterns = ["/" + "/".join([*way, *"klmn"]) for way in ways][1:1001]
    before = seed.visited
    outputs = seed.receive(2, [Subscribe(subjects=patterns)]) + seed.settle()
    assert subjects_of(outputs) == [subject]
    assert seed.visited - before <= 1_000 * 16
    assert max(seed.steps) <= 5_000 + 20
    before = seed.visited
    seed.receive(1, [Publish(subject=subject, content="y")])
    assert seed.visited - before <= 1_000 * 14


def test_a_session_has_so_many_patterns_at_most() -> None:
    seed = filled(BrokerSettings(patterns_per_session_max=2), [])
    outputs = seed.receive(2, [Subscribe(subjects=["/a/*", "/a/b", "/b/*", "/c/*", "/a/c"])])
    assert [output.event for output in outputs if isinstance(output, Send)] == [
        Status(
            status=StatusName.SUBSCRIBE_DENY,
            subject="/c/*",
            reason="A session has at most 2 patterns: end others first.",
        )
    ]
    seed.receive(2, [Unsubscribe(subjects=["/b/*"])])
    assert seed.receive(2, [Subscribe(subjects=["/c/*", "/a/*"])]) == []


@pytest.mark.parametrize("congested", [False, True])
def test_a_subject_that_comes_up_during_a_search_is_brought_as_well(congested: bool) -> None:
    seed = filled(BrokerSettings(work_at_once=50), [f"/a/{n}/{n}" for n in range(500)])
    if congested:
        seed.writability(2, writable=False)
    outputs = seed.receive(2, [Subscribe(subjects=["/a/*/*", "/a/**"])])
    live: list[Output] = []
    for number in range(40):
        live += seed.receive(1, [Publish(subject=f"/a/0/new{number}", content="x")])
        live += seed.receive(1, [Publish(subject=f"/a/{number}/{number}/more", content="x")])
        live += seed.receive(1, [Publish(subject=f"/a/{number}", content="x")])
    assert not [output for output in live if isinstance(output, Deliver)]
    if congested:
        seed.writability(2, writable=True)
    brought = subjects_of(outputs + seed.settle())
    assert len(brought) == len(set(brought)) == 500 + 3 * 40
    # From then on the live messages come.
    (deliver,) = seed.receive(1, [Publish(subject="/a/0/new0", content="y")])
    assert isinstance(deliver, Deliver)
    assert (deliver.delivery.match, deliver.sessions) == ("/a/*/*", [2])
    assert not seed.broker.statistics().cache.noting


def test_unsubscribing_looks_at_its_own_waiting_positions_only() -> None:
    seed = filled(BrokerSettings(), [])
    subjects = [f"/a/{number}" for number in range(5_000)]
    positions = {subject: PositionAfter("h1", 1, 9) for subject in subjects}
    seed.receive(2, [Subscribe(subjects=subjects, positions=positions)])
    seed.settle()
    session = seed.broker.session_statistics(2)
    assert session is not None
    assert len(session.ahead) == 5_000
    assert session.subscription("/a/7").ahead == ("/a/7",)
    seed.receive(2, [Unsubscribe(subjects=subjects)])
    session = seed.broker.session_statistics(2)
    assert session is not None
    assert session.ahead == ()
    assert seed.broker.statistics().catch_up.awaited == ()


def test_toggling_a_pattern_leaves_the_lists_of_other_subjects_alone() -> None:
    seed = filled(BrokerSettings(), [])
    for session in range(3, 103):
        seed.open(session)
        seed.receive(session, [Subscribe(subjects=["/a/b", "/x/*"])])
    (first,) = [
        output
        for output in seed.receive(1, [Publish(subject="/a/b", content="x")])
        if isinstance(output, Deliver)
    ]
    seed.receive(1, [Publish(subject="/x/y", content="x")])
    for number in range(5_000):
        # Patterns that match nothing of it, matching ones, and many that are cut off later.
        pattern = ["/b/*", "/*/c", f"/a/{number}/*", "/a/b/*", f"/{number}/*"][number % 5]
        seed.receive(2, [Subscribe(subjects=[pattern]), Unsubscribe(subjects=[pattern])])
        before = seed.visited
        again, other = (
            output
            for subject in ("/a/b", "/x/y")
            for output in seed.receive(1, [Publish(subject=subject, content="x")])
            if isinstance(output, Deliver)
        )
        assert again.sessions is first.sessions
        assert len(other.sessions) == 100
        assert seed.visited - before < 20
    assert seed.broker.statistics().interest.emptied <= 4096
    # One that matches is there at once, and gone at once; the list by name is the same one.
    seed.receive(2, [Subscribe(subjects=["/a/*"])])
    deliveries = [
        output
        for output in seed.receive(1, [Publish(subject="/a/b", content="x")])
        if isinstance(output, Deliver)
    ]
    assert deliveries[0].sessions is first.sessions
    assert (deliveries[1].delivery.match, deliveries[1].sessions) == ("/a/*", [2])
    seed.receive(2, [Unsubscribe(subjects=["/a/*"])])
    deliveries = [
        output
        for output in seed.receive(1, [Publish(subject="/a/b", content="x")])
        if isinstance(output, Deliver)
    ]
    assert [delivery.sessions for delivery in deliveries] == [first.sessions]


def test_the_subscriptions_of_a_session_that_ended_end_bit_by_bit() -> None:
    seed = filled(BrokerSettings(subjects_at_once=100, presence=True), [])
    subjects = [f"/a/{number}" for number in range(950)] + [
        f"/b/{number}/*" for number in range(50)
    ]
    seed.receive(2, [Subscribe(subjects=subjects)])
    left = [len([log for log in seed.close(2, "gone") if isinstance(log, Log)])]
    seed.open(3)
    seed.receive(3, [Subscribe(subjects=["/a/949"])])
    assert 3 in delivered_to(seed, "/a/949")
    while leaves := [log for log in seed.pass_time(seed.now + 1_000_000) if isinstance(log, Log)]:
        left.append(len(leaves))
    assert left == [100] * 10
    assert delivered_to(seed, "/a/949") == [3]
    assert seed.broker.statistics().interest.named == ("/a/949",)


def test_windows_that_end_together_are_sent_bit_by_bit() -> None:
    subjects = [f"/a/{number}" for number in range(250)]
    seed = filled(BrokerSettings(conflated_at_once=100), [])
    seed.receive(2, [Subscribe(subjects=["/a/*"], conflation_ms=1000)])
    for content in "xy":
        for subject in subjects:
            seed.receive(1, [Publish(subject=subject, content=content)])
    sent: list[list[Deliver]] = []
    for step in range(4):
        outputs = seed.pass_time(1_000_000_000 + step * 1_000_000)
        sent.append([output for output in outputs if isinstance(output, Deliver)])
    assert [len(deliveries) for deliveries in sent] == [100, 100, 50, 0]
    messages = [output.delivery.entry.publication for row in sent for output in row]
    assert sorted(message.subject for message in messages) == sorted(subjects)
    assert {message.content for message in messages} == {b"y"}


def test_a_new_numbering_looks_at_each_subject_once() -> None:
    seed = filled(BrokerSettings(), [f"/a/{number}" for number in range(2_000)])
    seed.reset("h2", None)
    emptied = seed.broker.statistics().cache
    assert (emptied.subjects, emptied.bytes) == ((), 0)
    seed.receive(1, [Publish(subject="/a/b", content="x")])
    seed.reset("h3", [3, 7])
    exported = [subject for number in range(128) for subject in exported_of(seed, number)]
    assert exported == ["/a/b"]
    # The index of subjects by group is kept up to date, not made anew for each group.
    assert seed.broker.statistics().cache.indexed == 1
