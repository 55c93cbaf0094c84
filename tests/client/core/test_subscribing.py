"""Subscriptions, positions, recovery and duplicates."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.client.core.positions import Positions
from mdserver.client.core.values import Notification
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType
from mdserver.errors import InvalidSubjectError
from mdserver.limits import CLIENT_COMMAND_BYTES_MAX


def contents(it: Any) -> list[str]:
    taken, it.messages = it.messages, []
    return [f"{message.subject} {message.seq}" for message in taken]


def subscribes(it: Any) -> list[dict[str, Any]]:
    return [command for command in it.spoken() if command["op"] == "subscribe"]


def test_what_was_subscribed_before_connecting_is_sent_then(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b", "/a/c"]))
    it.take(it.core.subscribe(["/h/1"], history=5))
    it.take(it.core.subscribe(["/**"], conflation_ms=500))
    assert it.sent == []
    it.connect()
    sent = [
        (c["subjects"], c.get("history"), c.get("conflation_ms"), c.get("positions"))
        for c in subscribes(it)
    ]
    assert sent == [
        (["/a/b", "/a/c"], None, None, None),
        (["/h/1"], 5, None, None),
        (["/**"], None, 500, None),
    ]


def test_the_fence_says_when_a_subscription_is_in_place(stage: Any) -> None:
    it = stage()
    it.connect()
    it.take(it.core.subscribe(["/a/b", "/a/c"]))
    ping = it.sent[-1]
    assert ping["op"] == "ping"
    assert it.subscribed == []
    it.hear({"op": "pong", "t": ping["t"]})
    assert it.subscribed == ["/a/b", "/a/c"]


def test_messages_come_in_order_and_once(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b"]))
    it.connect()
    it.message("/a/b", 7, type="SNAPSHOT")
    for seq in (8, 8, 7, 9):
        it.message("/a/b", seq)
    assert contents(it) == ["/a/b 7", "/a/b 8", "/a/b 9"]


def test_standard_messages_have_no_position_and_always_come(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b"]))
    it.connect()
    it.message("/a/b", 3)
    for _ in range(2):
        it.message("/a/b", 0, epoch=0, qos="STANDARD")
    assert contents(it) == ["/a/b 3", "/a/b 0", "/a/b 0"]


def test_a_reconnect_recovers_from_the_last_position(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b", "/a/c"]))
    it.connect()
    it.message("/a/b", 4)
    it.spoken()
    it.lose()
    it.wait("attempt")
    it.greet()
    [command] = subscribes(it)
    assert command["subjects"] == ["/a/b", "/a/c"]
    assert command["positions"] == {"/a/b": {"history": "h1", "epoch": 1, "seq": 4}}
    it.told()
    it.hear({"op": "status", "status": "DATA_SYNC", "subject": "/a/b"})
    it.message("/a/b", 4, type="RECOVERED")
    it.message("/a/b", 5, type="RECOVERED")
    assert it.notices[-1].subject == "/a/b"
    assert it.told() == ["DATA_SYNC"]
    assert contents(it) == ["/a/b 4", "/a/b 5"]


def test_an_epoch_above_is_newer_whatever_the_seq(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b"]))
    it.connect()
    it.message("/a/b", 9, epoch=1)
    it.message("/a/b", 10, epoch=3)
    it.message("/a/b", 10, epoch=2)
    assert contents(it) == ["/a/b 9", "/a/b 10"]


def test_a_range_that_is_gone_is_told(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b"]))
    it.connect()
    first = {"history": "h1", "epoch": 1, "seq": 5}
    last = {"history": "h1", "epoch": 2, "seq": 8}
    it.hear(
        {
            "op": "status",
            "status": "DATA_RESYNC",
            "subject": "/a/b",
            "missing": {"from": first, "to": last},
        }
    )
    assert it.notices[-1].missing.first.seq == 5
    assert it.notices[-1].missing.last.seq == 8


def test_another_history_is_recovered_from_nowhere(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b"]))
    it.connect()
    it.message("/a/b", 4)
    it.lose()
    it.wait("attempt")
    it.spoken()
    it.greet(history="h2")
    [command] = subscribes(it)
    assert command["positions"] == {"/a/b": {"history": "h1", "epoch": 1, "seq": 4}}
    it.hear({"op": "reset", "history": "h2", "subjects": ["/a/b"]})
    [resync] = [n for n in it.notices if n.status is Notification.DATA_RESYNC]
    assert (resync.subject, resync.missing) == ("/a/b", None)
    assert "numbers messages anew (history h2)" in resync.info
    it.message("/a/b", 1, type="SNAPSHOT")
    assert contents(it) == ["/a/b 4", "/a/b 1"]
    it.lose()
    it.wait("attempt")
    it.greet(history="h2")
    [command] = subscribes(it)
    assert command["positions"] == {"/a/b": {"history": "h2", "epoch": 1, "seq": 1}}


def test_a_reset_of_a_live_session_begins_anew(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b"]))
    it.connect()
    it.message("/a/b", 4)
    it.hear({"op": "reset", "history": "h2", "subjects": ["/a/b"]})
    it.message("/a/b", 1)
    assert contents(it) == ["/a/b 4", "/a/b 1"]


def test_what_a_reset_does_not_name_goes_on_under_the_new_history(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b", "/a/c", "/w/*"]))
    it.connect()
    it.message("/a/b", 4)
    it.message("/a/c", 7)
    it.message("/w/1", 2, match="/w/*")
    it.told()
    it.hear({"op": "reset", "history": "h2", "subjects": ["/a/b", "/w/*", "/not/mine"]})
    assert [n.subject for n in it.notices] == ["/a/b", "/w/*"]
    it.message("/a/c", 7)
    assert contents(it) == ["/a/b 4", "/a/c 7", "/w/1 2"]
    it.spoken()
    it.lose()
    it.wait("attempt")
    it.greet(history="h2")
    positions = [command["positions"] for command in subscribes(it)]
    assert positions == [
        {"/a/c": {"history": "h2", "epoch": 1, "seq": 7}},
        {"/w/1": {"history": "h1", "epoch": 1, "seq": 2}},
    ]


def test_a_reset_of_nonsense_breaks_the_protocol(stage: Any) -> None:
    it = stage()
    it.connect()
    it.hear({"op": "reset", "history": "h2", "subjects": ["nonsense"]})
    assert it.stopped is not None


def test_invalid_subjects_are_refused_before_anything_is_subscribed(stage: Any) -> None:
    it = stage()
    with pytest.raises(InvalidSubjectError, match="does not start with '/'"):
        it.core.subscribe(["/a/b", "nonsense"])
    assert list(it.core.subscriptions) == []


def test_a_pattern_recovers_each_subject_that_it_saw(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/**"], history=3))
    it.take(it.core.subscribe(["/a/x"]))
    it.connect()
    it.message("/a/b", 4, match="/a/**")
    it.message("/a/c", 2, match="/a/**")
    it.message("/a/x", 1)
    it.spoken()
    it.lose()
    it.wait("attempt")
    it.greet()
    exact, pattern = subscribes(it)
    assert exact["subjects"] == ["/a/x"]
    assert list(exact["positions"]) == ["/a/x"]
    assert pattern["subjects"] == ["/a/**"]
    assert {s: p["seq"] for s, p in pattern["positions"].items()} == {"/a/b": 4, "/a/c": 2}


def test_a_join_carries_what_was_seen_and_asks_for_it_again(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/**"]))
    it.connect()
    it.message("/a/b", 4, match="/a/**")
    it.message("/a/c", 2, match="/a/**")
    it.take(it.core.pause())
    it.take(it.core.resume())
    it.spoken()
    it.take(it.core.subscribe(["/a/**"], replay=True))
    it.take(it.core.subscribe(["/a/b", "/a/new"], replay=True))
    pattern, exact = subscribes(it)
    assert {s: p["seq"] for s, p in pattern["positions"].items()} == {"/a/b": 4, "/a/c": 2}
    assert {s: p["seq"] for s, p in exact["positions"].items()} == {"/a/b": 4}
    assert pattern["replay"] is exact["replay"] is True
    it.message("/a/c", 3, match="/a/**", type="RECOVERED")
    it.message("/a/c", 4, match="/a/**", type="RECOVERED")
    it.message("/a/c", 4, match="/a/**", type="SNAPSHOT")
    assert contents(it) == ["/a/b 4", "/a/c 2", "/a/c 3", "/a/c 4", "/a/c 4"]


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


def test_commands_stay_small_enough_for_any_server(stage: Any) -> None:
    it = stage()
    subjects = [f"/{'s' * 900}/{number}" for number in range(200)]
    it.take(it.core.subscribe(subjects))
    it.connect()
    sent = subscribes(it)
    assert [subject for command in sent for subject in command["subjects"]] == subjects
    assert max(len(str(command)) for command in sent) <= CLIENT_COMMAND_BYTES_MAX * 1.05


def test_history_is_given_although_it_was_seen(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/**"]))
    it.connect()
    it.message("/a/b", 4, match="/a/**")
    it.message("/a/b", 5, match="/a/**")
    contents(it)
    it.take(it.core.subscribe(["/a/b"], history=2))
    assert "positions" not in subscribes(it)[-1]
    it.message("/a/b", 4, type="HISTORICAL")
    it.message("/a/b", 5, type="HISTORICAL")
    it.message("/a/b", 5)
    it.message("/a/b", 6)
    assert contents(it) == ["/a/b 4", "/a/b 5", "/a/b 6"]


def test_unsubscribed_subjects_are_forgotten(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b", "/a/c", "/b/*"]))
    it.connect()
    it.message("/a/b", 4)
    it.message("/b/1", 4, match="/b/*")
    it.spoken()
    it.take(it.core.unsubscribe(["/a/b", "/b/*", "/never/there"]))
    assert it.spoken() == [{"op": "unsubscribe", "subjects": ["/a/b", "/b/*"]}]
    it.message("/a/b", 5)
    assert contents(it) == ["/a/b 4", "/b/1 4"], "a late message is not delivered"
    assert len(it.core.positions) == 0
    assert list(it.core.subscriptions) == ["/a/c"]


def test_what_a_pattern_still_covers_is_kept(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b", "/a/*", "/**"]))
    it.connect()
    it.message("/a/b", 4)
    it.message("/a/c", 4, match="/a/*")
    it.take(it.core.unsubscribe(["/a/b"]))
    it.take(it.core.unsubscribe(["/a/*"]))
    assert list(it.core.positions) == ["/a/b", "/a/c"]
    it.take(it.core.unsubscribe(["/**"]))
    assert list(it.core.positions) == []


def test_a_denied_subject_is_dropped_and_told(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b", "/a/c"]))
    it.connect()
    it.told()
    it.hear({"op": "status", "status": "SUBSCRIBE_DENY", "subject": "/a/b", "reason": "no right"})
    assert it.notices[-1].info == "no right"
    assert it.told() == ["SUBSCRIBE_DENY"]
    assert (it.refused[0].subjects, it.refused[0].reason) == (["/a/b"], "no right")
    assert list(it.core.subscriptions) == ["/a/c"]


def test_an_invalid_subject_is_dropped_with_the_servers_reason(stage: Any) -> None:
    it = stage()
    it.connect()
    it.take(it.core.subscribe(["/one"]))
    command = subscribes(it)[0]
    it.hear(
        {"op": "error", "code": "invalid-subject", "reason": "one segment", "id": command["id"]}
    )
    assert it.refused[0].subjects == ["/one"]
    assert it.refused[0].reason == "one segment"
    assert list(it.core.subscriptions) == []


def test_one_invalid_subject_of_many_is_told_by_name(stage: Any) -> None:
    it = stage()
    it.connect()
    it.take(it.core.subscribe(["/a/b", "/one", "/a/c"]))
    commands = subscribes(it)
    assert [command["subjects"] for command in commands] == [["/one"], ["/a/b", "/a/c"]]
    error = {"op": "error", "code": "invalid-subject", "reason": "one segment"}
    it.hear(error | {"id": commands[0]["id"]})
    assert it.refused[0].subjects == ["/one"]
    it.told()
    it.hear(error | {"id": commands[1]["id"]})
    assert it.told() == ["ERROR"], "which of the two is not known"
    assert list(it.core.subscriptions) == ["/a/b", "/a/c"]


def test_pause_and_resume_recover_what_was_missed(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b"]))
    it.connect()
    it.message("/a/b", 4)
    it.spoken()
    it.take(it.core.pause())
    it.take(it.core.pause())
    assert it.spoken() == [{"op": "unsubscribe", "subjects": ["/a/b"]}]
    it.message("/a/b", 5)
    it.take(it.core.subscribe(["/a/c"]))
    assert it.spoken() == []
    it.take(it.core.resume())
    [command] = subscribes(it)
    assert command["subjects"] == ["/a/b", "/a/c"]
    assert command["positions"]["/a/b"]["seq"] == 4
    it.message("/a/b", 5, type="RECOVERED")
    assert contents(it) == ["/a/b 4", "/a/b 5"]


def test_a_paused_client_stays_paused_over_a_reconnect(stage: Any) -> None:
    it = stage()
    it.take(it.core.subscribe(["/a/b"]))
    it.take(it.core.pause())
    it.connect()
    assert subscribes(it) == []
    it.take(it.core.resume())
    assert len(subscribes(it)) == 1


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
