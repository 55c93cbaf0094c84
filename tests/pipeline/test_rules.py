"""Rules files: what is meant is understood, what is wrong is named with its line."""

from pathlib import Path

import pytest

from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.derive import rules
from mdserver.pipeline.derive.operators import US, Tick, WatchedMessage, step
from mdserver.pipeline.derive.rules import Rule

SPEEDING = """\
rules:
  - name: speeding
    kind: threshold
    from: /vehicles/*/speed
    to: /notifications/{1}
    above: 90
    clear: 80
    message: "{1} drives {value} km/h"
"""


def load(tmp_path: Path, text: str) -> list[Rule]:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return rules.load(path)


def rule(tmp_path: Path, kind: str, **keys: object) -> Rule:
    lines = "".join(f"    {key}: {value}\n" for key, value in keys.items())
    head = f"rules:\n  - name: r\n    kind: {kind}\n    from: /a/*\n    to: /out/{{1}}\n"
    (loaded,) = load(tmp_path, head + lines)
    return loaded


def run(loaded: Rule, *events: tuple[float, str] | float) -> list[tuple[float, str]]:
    """Events are (second, content) or a second at which time has come that far."""
    state, said = None, []
    for event in events:
        if isinstance(event, tuple):
            item: WatchedMessage | Tick = WatchedMessage(
                "/a/x", int(event[0] * US), {"content": event[1]}
            )
        else:
            item = Tick(int(event * US))
        state, out = step(loaded, state, item)
        said += [(derived.ts / US, derived.content) for derived in out]
    return said


def test_the_vehicles_example(tmp_path: Path) -> None:
    (loaded,) = load(tmp_path, SPEEDING)
    assert loaded.watches("/vehicles/car66/speed")
    assert not loaded.watches("/vehicles/car66/fuel")
    state, said = None, []
    for second, speed in enumerate(["85", "95", "99", "85", "79", "91", "fast"]):
        event = WatchedMessage("/vehicles/car66/speed", second * US, {"content": speed})
        state, out = step(loaded, state, event)
        said += out
    assert {derived.subject for derived in said} == {"/notifications/car66"}
    assert [(d.ts // US, d.content, d.fields["state"]) for d in said] == [
        (1, "car66 drives 95 km/h", "above"),
        (4, "car66 drives 79 km/h", "clear"),
        (5, "car66 drives 91 km/h", "above"),
    ]


def test_a_threshold_without_clear_speaks_each_time(tmp_path: Path) -> None:
    loaded = rule(tmp_path, "threshold", above=1)
    assert run(loaded, (0, "2"), (1, "3"), (2, "1")) == [(0, "2"), (1, "3")]


@pytest.mark.parametrize(
    ("function", "expected"),
    [("avg", "2"), ("count", "3"), ("max", "3"), ("min", "1"), ("rate", "0.3")],
)
def test_windows_follow_each_other(tmp_path: Path, function: str, expected: str) -> None:
    loaded = rule(tmp_path, "window", function=function, seconds=10)
    said = run(loaded, (20, "1"), (25, "2"), (29.9, "3"), (30, "50"), 39.9, 40)
    assert said[0] == (30, expected)
    assert [second for second, _ in said] == [30, 40]


def test_bars_have_open_high_low_close(tmp_path: Path) -> None:
    loaded = rule(tmp_path, "ohlc", seconds=60)
    state, said = None, []
    for second, price in enumerate(["5", "9", "2", "4"]):
        state, _ = step(loaded, state, WatchedMessage("/a/x", second * US, {"content": price}))
    _, said = step(loaded, state, Tick(60 * US))
    assert said[0].fields == {"open": "5", "high": "9", "low": "2", "close": "4"}
    assert said[0].content == "4"


def test_the_top_of_a_period_over_subjects(tmp_path: Path) -> None:
    loaded = rule(tmp_path, "top", count=2, seconds=10, group="all")
    state = None
    for name, value in [("p", "1"), ("q", "7"), ("r", "3"), ("q", "2")]:
        state, _ = step(loaded, state, WatchedMessage(f"/a/{name}", 0, {"content": value}))
    _, said = step(loaded, state, Tick(10 * US))
    assert said[0].content == (
        '[{"subject": "/a/r", "value": 3.0}, {"subject": "/a/q", "value": 2.0}]'
    )


def test_stale_speaks_once_and_once_again(tmp_path: Path) -> None:
    loaded = rule(tmp_path, "stale", seconds=5)
    expected = [(5, "stale"), (11, "fresh"), (17, "stale")]
    assert run(loaded, (0, "1"), 4.9, 5, 9, (11, "2"), (12, "3"), 17) == expected
    assert run(loaded, (0, "1"), (11, "2"), (12, "3"), 40) == expected


def test_geofence_speaks_when_the_border_is_crossed(tmp_path: Path) -> None:
    loaded = rule(tmp_path, "geofence", area="[[0, 0], [10, 0], [10, 10], [0, 10]]")
    state, words = None, []
    for x in (-1, 1, 9, 11, 12):
        event = WatchedMessage("/a/x", 0, {"content": "", "x": str(x), "y": "5"})
        state, out = step(loaded, state, event)
        words += [derived.content for derived in out]
    assert words == ["entered", "left"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", None, "the rules file is empty"),
        ("rules: 3\n", 1, "`rules` is a list"),
        ("rulez: []\n", 1, "one key, `rules`"),
        (SPEEDING.replace("threshold", "bound"), 3, "unknown kind 'bound'"),
        (SPEEDING.replace("above: 90", "above: high"), 6, "`above` is a number, not 'high'"),
        (SPEEDING.replace("    above: 90\n", ""), 2, "the rule lacks `above`"),
        (SPEEDING.replace("clear: 80", "clear: 91"), 7, "`clear` is at most `above`, which is 90"),
        (SPEEDING.replace("clear: 80", "cleer: 80"), 7, "threshold has no `cleer`"),
        (SPEEDING.replace("/vehicles/*/speed", "vehicles"), 4, "does not start with '/'"),
        (SPEEDING.replace("{1}\n", "{7}\n"), 5, "the subject has 3 segments"),
        (SPEEDING.replace("{1}\n", "{car}\n"), 5, "only numbers of segments"),
        (SPEEDING.replace("above: 90", "name: twice"), 6, "`name` stands here twice"),
        (SPEEDING + SPEEDING.removeprefix("rules:\n"), 9, "a second rule is named 'speeding'"),
        ("rules:\n  - name: [\n", 3, "expected the node content"),
        (SPEEDING.replace("threshold", "window"), 6, "window has no `above`"),
        (
            SPEEDING.replace("/notifications/{1}", "/vehicles/{1}/speed"),
            2,
            "feed each other for ever: speeding -> speeding",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, text: str, line: int | None, reason: str
) -> None:
    with pytest.raises(PipelineError) as caught:
        load(tmp_path, text)
    assert reason in str(caught.value)
    if line is not None:
        assert f"rules.yaml:{line}: " in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"none\.yaml: No such file or directory"):
        rules.load(tmp_path / "none.yaml")
