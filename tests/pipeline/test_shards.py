"""Rules divided into shards publish what one engine does, in the same order, batch by batch."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from mdserver.pipeline.derive import rules as rules_file
from mdserver.pipeline.derive.operators import US, Derived
from mdserver.pipeline.derive.rule_engine import RuleEngine
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.shards import Result, RowRouter, Shard, ShardPart, merged, shard_of
from mdserver.pipeline.derive.watched_rows import clocks_of, event_of, reached_by_all

RULES = """\
rules:
  - {name: last, kind: last, from: /a/*, to: "/to/all/{1}"}
  - {name: high, kind: threshold, above: 5, clear: 3, from: /a/*, to: "/to/all/{1}"}
  - {name: mean, kind: window, function: avg, seconds: 3, from: /a/*, to: "/to/mean/{1}"}
  - {name: bars, kind: ohlc, seconds: 2, from: /a/x, to: /to/all/x}
  - name: load
    kind: window
    function: count
    seconds: 4
    from: "/*/*"
    to: /to/load/all
    group: all
  - {name: best, kind: top, count: 2, seconds: 3, from: "/*/*", to: "/to/best/{0}", group: "{0}"}
  - {name: silent, kind: stale, seconds: 2, from: /a/*, to: "/to/all/{1}"}
"""
LATENESS_S = 1.0
SUBJECTS = ["/a/x", "/a/y", "/a/z", "/b/x", "/b/y"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[Rule]:
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(RULES)
    return rules_file.load(path)


def row(kind: str, place: tuple[str, float, str], number: int) -> dict[str, Any]:
    subject, second, content = place
    return {
        "value": content.encode(),
        "reason": None,
        "ts": int(second * US),
        "subject": subject,
        "epoch": 1,
        "seq": number,
        "content": content,
        "content_base64": None,
        "compressed": None,
        "fields": None,
        "src_kind": kind,
        "src_topic": "t.messages" if kind == "kafka" else None,
        "src_partition": SUBJECTS.index(subject) % 2,
        "src_pos": number,
    }


class OneEngine:
    """What `batches.Derive` does with a batch: the oracle."""

    def __init__(self, loaded: Sequence[Rule]) -> None:
        self._rules = loaded
        self._engine = RuleEngine(loaded)

    def take(self, rows: Sequence[dict[str, Any]]) -> tuple[list[Derived], list[str]]:
        derived: list[Derived] = []
        refused: list[str] = []
        reached = reached_by_all(clocks_of(rows))
        for each in sorted(rows, key=lambda r: (r["ts"], r["subject"], r["epoch"], r["seq"])):
            event = event_of(each)
            assert reached is not None
            derived += self._engine.advance(min(event.ts, reached) - int(LATENESS_S * US))
            for rule in self._rules:
                if rule.watches(event.subject):
                    said, refusal = self._engine.take(rule, event)
                    derived += said
                    refused += [f"rule {rule.name}: {refusal.reason}"] if refusal else []
        return derived, refused

    def idle(self, now: int) -> list[Derived]:
        return self._engine.advance(now - int(LATENESS_S * US))


class Shards:
    """Routers and shards without Spark; everything between them goes as bytes."""

    def __init__(self, loaded: Sequence[Rule], count: int, readers: int) -> None:
        self._routers = [RowRouter(loaded, count) for _ in range(readers)]
        self._shards = [Shard(n, count, loaded, {}, LATENESS_S) for n in range(count)]

    def take(self, rows: Sequence[dict[str, Any]]) -> Result:
        """A partition of the source is read by one of the readers, in packs of three rows."""
        parts: list[list[bytes]] = [[] for _ in self._shards]
        for number, router in enumerate(self._routers):
            own = [r for r in rows if r["src_partition"] % len(self._routers) == number]
            for shard, part in router.route(_packs(own)):
                parts[shard].append(msgspec.msgpack.encode(part))
        return merged(
            _copied(shard.take([msgspec.msgpack.decode(each, type=ShardPart) for each in found]))
            for shard, found in zip(self._shards, parts, strict=True)
            if found
        )

    def idle(self, now: int) -> Result:
        return merged(shard.idle(now) for shard in self._shards)


def _packs(rows: Sequence[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    return [rows[start : start + 3] for start in range(0, len(rows), 3)]


def _copied(result: Result) -> Result:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=Result)


message = st.tuples(
    st.sampled_from(SUBJECTS),
    st.integers(0, 40).map(lambda n: n / 4),
    st.sampled_from(["1", "4", "7", "9", "none"]),
)
batch = st.lists(message, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(["journal", "kafka"]),
    batches=st.lists(batch, min_size=1, max_size=5),
    count=st.integers(1, 5),
    readers=st.integers(1, 2),
    pause=st.booleans(),
)
def test_shards_publish_what_one_engine_does(
    loaded: list[Rule],
    kind: str,
    batches: list[list[tuple[str, float, str]]],
    count: int,
    readers: int,
    pause: bool,
) -> None:
    one, many = OneEngine(loaded), Shards(loaded, count, readers)
    numbers = itertools.count(1)
    for found in batches:
        rows = [row(kind, place, next(numbers)) for place in found]
        derived, refused = one.take(rows)
        result = many.take(rows)
        assert [each.derived for each in result.said] == derived
        assert sorted(each["reason"] for each in result.aside) == sorted(refused)
        assert result.rows == len(rows)
        if pause:
            now = int((found[-1][1] if found else 0) * US)
            assert [each.derived for each in many.idle(now).said] == one.idle(now)


def test_a_shard_goes_on_from_its_states(loaded: list[Rule]) -> None:
    """As it does after a kill: the states go through JSON."""
    rows = [row("journal", (SUBJECTS[n % 3], n / 2, str(n % 10)), n) for n in range(40)]
    whole = Shard(0, 1, loaded, {}, LATENESS_S)
    expected = [_take(whole, rows[:20]), _take(whole, rows[20:])]
    first = Shard(0, 1, loaded, {}, LATENESS_S)
    found = [_take(first, rows[:20])]
    states = {key: msgspec.json.decode(msgspec.json.encode(s)) for key, s in first.states.items()}
    assert first.next_due() is not None
    second = Shard(0, 1, loaded, states, LATENESS_S)
    assert second.next_due() == first.next_due()
    assert [*found, _take(second, rows[20:])] == expected
    assert expected[1].said


def _take(shard: Shard, rows: Sequence[dict[str, Any]]) -> Result:
    return shard.take([part for _, part in RowRouter(shard._rules, 1).route([rows])])


def test_batches_with_nothing_but_bad_rows_go_to_every_shard(loaded: list[Rule]) -> None:
    """A shard that gets no part of a batch takes it for one without rows, and lets time go on."""
    bad = row("journal", ("/a/x", 1, "1"), 1) | {"reason": "not UTF-8", "ts": None}
    routed = list(RowRouter(loaded, 3).route([[bad]]))
    assert {shard for shard, _ in routed} == {0, 1, 2}
    assert sum(part.rows for _, part in routed) == 1
    assert list(RowRouter(loaded, 3).route([[]])) == []


def test_a_rule_may_be_left_out_of_a_batch(loaded: list[Rule]) -> None:
    parts = [part for _, part in RowRouter(loaded, 1).route([[row("kafka", ("/a/x", 1, "9"), 1)]])]
    shard = Shard(0, 1, loaded, {}, LATENESS_S)
    result = shard.take(parts, without={"high", "mean"})
    assert {one.derived.rule for one in result.said} == {"last"}
    assert {name for name, _ in shard.states}.isdisjoint({"high", "mean"})


def test_a_group_over_subjects_is_in_one_shard(loaded: list[Rule]) -> None:
    by_name = {rule.name: rule for rule in loaded}
    assert len({shard_of(by_name["load"], f"/a/{n}", 8) for n in range(50)}) == 1
    assert len({shard_of(by_name["mean"], f"/a/{n}", 8) for n in range(50)}) == 8
