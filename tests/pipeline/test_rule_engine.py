"""Many groups at once: results follow from the messages, not from how they are cut into batches."""

import random
from pathlib import Path

import pytest

from mdserver import limits
from mdserver.pipeline.derive import rules
from mdserver.pipeline.derive.operators import US, Derived, State, WatchedMessage
from mdserver.pipeline.derive.rule_engine import Key, RuleEngine, fingerprint
from mdserver.pipeline.derive.rules import Rule

RULES = """\
rules:
  - {name: mean, kind: window, function: avg, seconds: 10, from: /a/*, to: "/mean/{1}"}
  - {name: silent, kind: stale, seconds: 5, from: /a/*, to: "/silent/{1}"}
  - {name: best, kind: top, count: 2, seconds: 30, from: /a/*, to: /best/all, group: all}
  - {name: high, kind: threshold, above: 80, clear: 50, from: /a/*, to: "/high/{1}"}
"""


def load(tmp_path: Path, text: str = RULES) -> list[Rule]:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return rules.load(path)


def event(second: float, name: str, content: str) -> WatchedMessage:
    return WatchedMessage(f"/a/{name}", int(second * US), {"content": content})


def run(engine: RuleEngine, loaded: list[Rule], events: list[WatchedMessage]) -> list[Derived]:
    said: list[Derived] = []
    for each in events:
        said += engine.advance(each.ts)
        for rule in loaded:
            more, refusal = engine.take(rule, each)
            assert refusal is None
            said += more
    return said


def test_results_do_not_depend_on_ticks_or_on_a_restart(tmp_path: Path) -> None:
    loaded, rng = load(tmp_path), random.Random(5)
    moments = sorted(rng.uniform(0, 300) for _ in range(200))
    events = [event(moment, rng.choice("pqrs"), str(rng.randrange(100))) for moment in moments]
    whole = RuleEngine(loaded)
    expected = run(whole, loaded, events) + whole.advance(400 * US)
    assert {said.rule for said in expected} == {"mean", "silent", "best", "high"}

    engine = RuleEngine(loaded)
    said: list[Derived] = []
    states: dict[Key, State] = {}
    for index, each in enumerate(events):
        said += run(engine, loaded, [each])
        states |= {key: engine.states.get(key) for key in engine.changed}
        engine.changed.clear()
        following = events[index + 1].ts if index + 1 < len(events) else 400 * US
        said += engine.advance((each.ts + following) // 2)
        states |= {key: engine.states.get(key) for key in engine.changed}
        if index % 17 == 0:
            engine = RuleEngine(loaded, states)
    said += engine.advance(400 * US)
    assert said == expected


def test_windows_of_silent_groups_end_and_silence_is_noticed_once(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    engine = RuleEngine(loaded)
    run(engine, loaded, [event(1, "p", "4")])
    assert [(said.subject, said.ts // US) for said in engine.advance(10 * US)] == [
        ("/silent/p", 6),
        ("/mean/p", 10),
    ]
    assert [said.subject for said in engine.advance(1000 * US)] == ["/best/all"]


def test_what_a_rule_cannot_take_is_refused_with_its_reason(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    mean, _, best, _ = loaded
    engine = RuleEngine(loaded, groups_max=2)
    engine.take(mean, event(12, "p", "4"))
    for refused, reason in [
        (event(12, "p", "fast"), "content is no number: 'fast'"),
        (event(12, "p", "nan"), "content is no number: 'nan'"),
        (WatchedMessage("/a/p", 12 * US, {"x": "1"}), "field content is missing"),
        (event(9, "p", "4"), "late by 1 s: its period is over"),
    ]:
        said, refusal = engine.take(mean, refused)
        assert not said
        assert refusal is not None
        assert (refusal.reason, refusal.rule, refusal.event) == (reason, "mean", refused)
    engine.take(best, event(12, "p", "4"))
    _, refusal = engine.take(mean, event(12, "q", "4"))
    assert refusal is not None
    assert refusal.reason == "there are 2 groups already"


def test_a_late_message_is_refused_after_a_tick_has_ended_its_period(tmp_path: Path) -> None:
    mean = load(tmp_path)[0]
    engine = RuleEngine([mean])
    engine.take(mean, event(2, "p", "4"))
    assert len(engine.advance(10 * US)) == 1
    _, refusal = engine.take(mean, event(9, "p", "4"))
    assert refusal is not None
    assert refusal.reason.startswith("late by 1 s")


def test_states_of_rules_that_are_gone_are_dropped(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    engine = RuleEngine(loaded[1:], {("mean", "/a/p"): {"start": 0, "subject": "", "sum": None}})
    assert not engine.states


@pytest.mark.parametrize(
    "change", [("seconds: 10", "seconds: 20"), ("avg", "max"), ("/a/*", "/c/*")]
)
def test_a_rule_that_means_something_else_has_another_fingerprint(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    before = load(tmp_path)[0]
    assert fingerprint(load(tmp_path)[0]) == fingerprint(before)
    assert fingerprint(load(tmp_path, RULES.replace(*change, 1))[0]) != fingerprint(before)


def test_groups_that_are_silent_make_room_for_others(tmp_path: Path) -> None:
    """Subjects that are there for a while only: each has its say, and none is refused."""
    watching = [rule for rule in load(tmp_path) if rule.name in {"mean", "high"}]
    engine = RuleEngine(watching, groups_max=2)
    told = 0
    kept: dict[Key, State] = {}
    for number in range(50):
        at = number * (limits.DERIVE_REMEMBERED_S + 60)
        events = [event(at, f"car{number}", "90"), event(at + 1, f"car{number}", "10")]
        said = run(engine, watching, events)
        said += engine.advance(int((at + 10 + limits.DERIVE_REMEMBERED_S) * US))
        told += len(said)
        kept |= {key: engine.states.get(key) for key in engine.changed}
        engine.changed.clear()
    assert told == 50 * 3
    assert not engine.states
    assert engine.next_due() is None
    assert set(kept.values()) == {None}


def test_a_group_that_is_forgotten_refuses_late_messages_for_a_while(tmp_path: Path) -> None:
    mean = load(tmp_path)[0]
    engine = RuleEngine([mean])
    engine.take(mean, event(2, "p", "4"))
    engine.advance(int((9 + limits.DERIVE_REMEMBERED_S) * US))
    assert engine.take(mean, event(9, "p", "4"))[1] is not None
    engine.advance(int((10 + limits.DERIVE_REMEMBERED_S) * US))
    assert not engine.states


def test_a_message_that_changes_nothing_needs_no_room(tmp_path: Path) -> None:
    high = load(tmp_path)[3]
    engine = RuleEngine([high], groups_max=1)
    assert engine.take(high, event(1, "p", "90"))[1] is None
    assert engine.take(high, event(1, "q", "10"))[1] is None
    _, refusal = engine.take(high, event(1, "r", "90"))
    assert refusal is not None
    assert refusal.reason == "there are 1 groups already"
    engine.take(high, event(2, "p", "10"))
    assert engine.take(high, event(3, "r", "90"))[1] is None


def test_a_list_has_so_many_subjects_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DERIVE_RANKED_MAX", 2)
    best = load(tmp_path)[2]
    engine = RuleEngine([best])
    for name in ("p", "q", "p"):
        assert engine.take(best, event(1, name, "1"))[1] is None
    engine.changed.clear()
    _, refusal = engine.take(best, event(1, "r", "1"))
    assert refusal is not None
    assert refusal.reason == "there are 2 subjects in the period already"
    # The next period has room again; and a value that is replaced is a change.
    assert engine.take(best, event(2, "q", "7"))[1] is None
    assert engine.changed
    assert engine.take(best, event(31, "r", "1"))[1] is None
