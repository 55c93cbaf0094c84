"""Subscriptions, positions, recovery and duplicates."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.client.core.positions import Positions
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType
from mdserver.limits import CLIENT_COMMAND_BYTES_MAX, SUBJECTS_PER_COMMAND_MAX


def contents(it: Any) -> list[str]:
    taken, it.messages = it.messages, []
    return [f"{message.subject} {message.seq}" for message in taken]


def subscribes(it: Any) -> list[dict[str, Any]]:
    return [command for command in it.spoken() if command["op"] == "subscribe"]


def test_a_join_that_saw_very_much_recovers_each_subject_once(stage: Any) -> None:
    it = much_seen(stage)
    it.spoken()
    it.take(it.core.subscribe(["/a/**"], replay=True))
    [pattern] = subscribes(it)
    assert pattern["subjects"] == ["/a/**"], "the single subscriptions have their positions"
    it.take(it.core.subscribe(["/a/1"], replay=True))
    it.hear({"op": "status", "status": "DATA_SYNC", "subject": "/a/1"})
    assert it.spoken()[-1]["op"] == "subscribe", "what the application wants by name stays"
    it.message("/a/2", 2, match="/a/**")
    assert it.spoken() == [], "that came before its own subscription stood"


def much_seen(stage: Any) -> Any:
    """A client that lost its connection after it saw 2,000 subjects of one pattern."""
    it = stage()
    it.take(it.core.subscribe(["/a/**"], conflation_ms=100))
    it.connect()
    for number in range(2000):
        it.message(f"/a/{number}", 1, match="/a/**")
    contents(it)
    it.sent = []
    it.lose()
    it.wait("attempt")
    it.greet()
    return it


def test_a_pattern_that_saw_very_much_is_recovered_in_parts(stage: Any) -> None:
    it = much_seen(stage)
    commands = [command for command in it.spoken() if "subjects" in command]
    assert {command["op"] for command in commands} == {"subscribe"}
    *parts, pattern = commands
    assert len(parts) > 1
    assert [s for part in parts for s in part["subjects"]] == [f"/a/{n}" for n in range(2000)]
    assert all(len(part["positions"]) == len(part["subjects"]) for part in parts)
    assert pattern["subjects"] == ["/a/**"]
    assert "positions" not in pattern


@pytest.mark.parametrize("count", [1, 2000])
def test_a_position_under_a_pattern_goes_along_with_those_of_its_subjects(
    stage: Any, count: int
) -> None:
    it = stage()
    seen = {f"/a/{number}": ("h1", 1, 4) for number in range(count)}
    it.core.positions.restore({"/a/**": ("h1", 0, 0)} | seen)
    it.take(it.core.subscribe(["/a/**"]))
    it.connect()
    pattern = subscribes(it)[-1]
    assert pattern["subjects"] == ["/a/**"]
    assert pattern["positions"]["/a/**"] == {"history": "h1", "epoch": 0, "seq": 0}
    assert ("/a/0" in pattern["positions"]) == (count == 1)


def test_the_parts_end_when_their_subjects_are_recovered_and_not_before(stage: Any) -> None:
    it = much_seen(stage)
    it.spoken()
    it.hear({"op": "status", "status": "DATA_SYNC", "subject": "/a/1"})
    assert it.spoken() == [{"op": "unsubscribe", "subjects": ["/a/1"]}]
    it.message("/a/1", 2, type="RECOVERED")
    resync = {"op": "status", "status": "DATA_RESYNC", "subject": "/a/2"}
    it.hear(resync, {"op": "status", "status": "DATA_SYNC", "subject": "/a/3"})
    assert it.spoken() == [{"op": "unsubscribe", "subjects": ["/a/2", "/a/3"]}]
    it.message("/a/4", 2)
    assert it.spoken() == [{"op": "unsubscribe", "subjects": ["/a/4"]}]
    it.message("/a/4", 3, match="/a/**")
    assert it.spoken() == []
    assert contents(it) == ["/a/1 2", "/a/4 2", "/a/4 3"]


@pytest.mark.parametrize("end", ["unsubscribe", "pause", "hold"])
def test_what_ends_with_a_pattern(stage: Any, end: str) -> None:
    it = much_seen(stage)
    it.spoken()
    it.take(it.core.pause() if end == "pause" else getattr(it.core, end)(["/a/**"]))
    ended = [s for command in it.spoken() for s in command["subjects"]]
    assert sorted(ended) == sorted(["/a/**", *(f"/a/{n}" for n in range(2000))])
    it.hear({"op": "status", "status": "DATA_SYNC", "subject": "/a/1"})
    assert it.spoken() == []


def test_of_very_many_that_are_left_at_once_none_takes_what_was_sent_before(stage: Any) -> None:
    it = stage()
    subjects = [f"/a/{number}" for number in range(SUBJECTS_PER_COMMAND_MAX + 1)]
    it.take(it.core.subscribe(subjects))
    it.connect()
    it.take(it.core.unsubscribe(subjects))
    it.take(it.core.subscribe(subjects))
    for subject in subjects:
        it.message(subject, 2)
    assert contents(it) == []
    it.hear({"op": "pong", "t": "r1"})
    it.message("/a/0", 2, type="SNAPSHOT")
    assert contents(it) == ["/a/0 2"]


def test_commands_stay_small_enough_for_any_server(stage: Any) -> None:
    it = stage()
    subjects = [f"/{'s' * 900}/{number}" for number in range(200)]
    it.take(it.core.subscribe(subjects))
    it.connect()
    sent = subscribes(it)
    assert [subject for command in sent for subject in command["subjects"]] == subjects
    assert max(len(str(command)) for command in sent) <= CLIENT_COMMAND_BYTES_MAX * 1.05


def test_positions_are_bounded() -> None:
    positions = Positions(positions_max=2)
    positions.connected("h")
    for number in range(3):
        positions.accept(
            MessageEvent(subject=f"/a/{number}", type=MessageType.UPDATE, epoch=1, seq=1)
        )
    assert list(positions) == ["/a/1", "/a/2"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 6))))
def test_what_is_accepted_only_ever_rises(arrivals: list[tuple[str, int, int]]) -> None:
    positions = Positions()
    positions.connected("h")
    seen: dict[str, tuple[int, int]] = {}
    for subject, epoch, seq in arrivals:
        message = MessageEvent(subject=subject, type=MessageType.UPDATE, epoch=epoch, seq=seq)
        new = (epoch, seq) > seen.get(subject, (0, 0))
        assert positions.accept(message) is new
        if new:
            seen[subject] = (epoch, seq)
