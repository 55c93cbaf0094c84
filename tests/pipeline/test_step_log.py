"""What `derive` remembers survives a restart at any point, and a change of the rules."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from mdserver.client import Numbering
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.derive import rules, step_log
from mdserver.pipeline.derive.distributed import Distributed, RepeatedBatch
from mdserver.pipeline.derive.job import opened
from mdserver.pipeline.derive.operators import Derived
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.step_log import StepLog

DERIVED = Derived("high", "/high/p", "91", 5, {"state": "above"})
ASIDE = {"stream": "messages", "reason": "late", "line": "{}"}
KEY = ("high", "/a/p")


@pytest.fixture
def loaded(tmp_path: Path) -> list[Rule]:
    path = tmp_path / "rules.yaml"
    path.write_text(
        'rules: [{name: high, kind: threshold, above: 80, clear: 50, from: /a/*, to: "/high/{1}"}]'
    )
    return rules.load(path)


def test_an_empty_log(tmp_path: Path, loaded: list[Rule]) -> None:
    log = StepLog(tmp_path / "log", loaded)
    assert (log.empty, log.batch, log.states, log.pending) == (True, -1, {}, None)
    assert StepLog(tmp_path / "log", loaded).publisher == log.publisher
    assert StepLog(tmp_path / "other", loaded).publisher != log.publisher


def test_a_step_is_pending_until_that_is_noted(tmp_path: Path, loaded: list[Rule]) -> None:
    log = StepLog(tmp_path / "log", loaded)
    step = log.append(0, [(KEY, True)], [DERIVED], [ASIDE])
    again = StepLog(tmp_path / "log", loaded)
    assert (again.batch, again.states, again.pending) == (0, {KEY: True}, step)
    assert not again.empty
    log.published(Numbering(128, {7: 1}), {KEY: True})
    again = StepLog(tmp_path / "log", loaded)
    assert (again.batch, again.states, again.pending) == (0, {KEY: True}, None)
    assert again.numbering == Numbering(128, {7: 1})


def test_the_identity_of_the_publisher_is_kept_before_anything_is_published(
    tmp_path: Path, loaded: list[Rule]
) -> None:
    log = StepLog(tmp_path / "log", loaded)
    log.published(Numbering(), {KEY: True})
    step = log.append(0, [(KEY, True)], [DERIVED], [])
    given = Numbering(128, {7: 1}, "~0f/derive", "key")
    log.identified(given)
    again = StepLog(tmp_path / "log", loaded)
    assert (again.numbering, again.pending) == (given, step)
    assert (tmp_path / "log" / "published.json").stat().st_mode & 0o777 == 0o600


def test_only_the_last_step_can_be_pending(tmp_path: Path, loaded: list[Rule]) -> None:
    log = StepLog(tmp_path / "log", loaded)
    log.append(0, [(KEY, True)], [DERIVED], [ASIDE])
    log.published(Numbering(), {KEY: True})
    step = log.append(1, [(KEY, False)], [], [])
    again = StepLog(tmp_path / "log", loaded)
    assert (again.batch, again.states, again.pending) == (1, {KEY: False}, step)


def test_snapshots_bound_the_number_of_files(
    tmp_path: Path, loaded: list[Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_log, "SNAPSHOT_EVERY", 5)
    log, states = StepLog(tmp_path / "log", loaded), {}
    for batch in range(23):
        states[("high", f"/a/{batch}")] = bool(batch % 2)
        log.append(batch, [(("high", f"/a/{batch}"), bool(batch % 2))], [], [])
        log.published(Numbering(), states)
        assert len(list((tmp_path / "log").iterdir())) <= 5 + 3
        again = StepLog(tmp_path / "log", loaded)
        assert (again.batch, again.states) == (batch, states)


def test_states_of_a_rule_that_changed_are_forgotten(tmp_path: Path, loaded: list[Rule]) -> None:
    log = StepLog(tmp_path / "log", loaded)
    log.append(3, [(KEY, True)], [], [])
    log.take_snapshot({KEY: True})
    (tmp_path / "rules.yaml").write_text(
        (tmp_path / "rules.yaml").read_text().replace("above: 80", "above: 70")
    )
    again = StepLog(tmp_path / "log", rules.load(tmp_path / "rules.yaml"))
    assert (again.batch, again.states) == (3, {})


def test_a_damaged_file_is_named(tmp_path: Path, loaded: list[Rule]) -> None:
    StepLog(tmp_path / "log", loaded).append(0, [], [], [])
    (tmp_path / "log" / "snapshot.json").write_text("{")
    with pytest.raises(PipelineError, match=r"snapshot\.json cannot be used"):
        StepLog(tmp_path / "log", loaded)


class Power:
    """What a power cut would leave of a folder: names and contents as they were last synced."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.names: dict[str, int] = {}
        self.contents: dict[int, bytes] = {}
        self.cuts = 0
        self.sync = os.fsync
        monkeypatch.setattr(os, "fsync", self.synced)

    def synced(self, descriptor: int) -> None:
        self.sync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == self.folder:
            files = [each for each in path.iterdir() if each.is_file()]
            self.names = {each.name: each.stat().st_ino for each in files}
            self.keep()
        elif path.parent == self.folder:
            self.contents[path.stat().st_ino] = path.read_bytes()

    def keep(self) -> None:
        """Files stay until their name is gone from the disk, so that no inode is given twice."""
        for name in self.names:
            if (self.folder / name).exists():
                kept = self.folder.with_name("kept") / f"{self.names[name]}"
                kept.parent.mkdir(exist_ok=True)
                if not kept.exists():
                    kept.hardlink_to(self.folder / name)

    def cut(self) -> Path:
        self.cuts += 1
        left = self.folder.with_name(f"after cut {self.cuts}")
        left.mkdir()
        for name, inode in self.names.items():
            (left / name).write_bytes(self.contents.get(inode, b""))
        return left


def test_a_power_cut_takes_nothing_back(
    tmp_path: Path, loaded: list[Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_log, "SNAPSHOT_EVERY", 3)
    power = Power(tmp_path / "log", monkeypatch)
    log = StepLog(tmp_path / "log", loaded)
    log.identified(Numbering(128, {7: 0}, "~0f/derive", "key"))
    for batch in range(8):
        state = bool(batch % 2)
        step = log.append(batch, [(KEY, state)], [DERIVED], [])
        again = StepLog(power.cut(), loaded)
        assert (again.batch, again.states, again.pending) == (batch, {KEY: state}, step)
        assert again.numbering == log.numbering
        assert again.publisher == log.publisher
        log.published(Numbering(128, {7: batch + 1}, "~0f/derive", "key"), {KEY: state})
        again = StepLog(power.cut(), loaded)
        assert (again.batch, again.states, again.pending) == (batch, {KEY: state}, None)
        assert again.numbering == log.numbering


def test_a_power_cut_leaves_the_source_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power = Power(tmp_path / "derive", monkeypatch)
    opened(tmp_path / "derive", {"the journal": "/j", "the stream messages": "1"})
    opened(power.cut(), {"the journal": "/moved", "the stream messages": "1"})
    with pytest.raises(PipelineError, match="is not the one that this job has read"):
        opened(power.cut(), {"the journal": "/j", "the stream messages": "2"})


def test_a_damaged_source_is_named(tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text("")
    with pytest.raises(PipelineError, match=r"source\.json is damaged"):
        opened(tmp_path, {"the journal": "/j"})


def test_the_rules_of_the_last_batch_are_known_after_a_change_of_rules(
    tmp_path: Path, loaded: list[Rule]
) -> None:
    log = StepLog(tmp_path / "log", loaded)
    assert log.batch_rules is None
    log.append(0, [], [DERIVED], [])
    rules = log.batch_rules
    assert rules is not None
    assert rules.keys() == {"high"}
    for _ in range(2):
        again = StepLog(tmp_path / "log", [])
        assert again.batch_rules == rules
        again.take_snapshot({})


def test_rules_that_a_logged_batch_did_not_have_are_left_out_of_its_repetition(
    tmp_path: Path, loaded: list[Rule]
) -> None:
    checkpoint = tmp_path / "spark"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    new = tmp_path / "new.yaml"
    new.write_text((tmp_path / "rules.yaml").read_text().replace("above: 80", "above: 90"))

    def repeated(now: list[Rule]) -> RepeatedBatch:
        log = StepLog(tmp_path / "log", now)
        server = cast("Any", None)
        run = Distributed(now, log, server, tmp_path, lambda _: None, 2, once=True)
        return run._repeated(checkpoint)

    assert repeated(loaded) == RepeatedBatch()
    (checkpoint / "offsets" / "9").write_text('v1\n{"batchTimestampMs":5}\n{}')
    (checkpoint / "offsets" / "10").write_text('v1\n{"batchTimestampMs":7}\n{}')
    (checkpoint / "commits" / "9").write_text("v1\n{}")
    assert repeated(rules.load(new)) == RepeatedBatch(7)  # not logged: it counts as it is now
    StepLog(tmp_path / "log", loaded).append(10, [], [DERIVED], [])
    assert repeated(loaded) == RepeatedBatch(7)
    assert repeated(rules.load(new)) == RepeatedBatch(7, frozenset({"high"}))
    (checkpoint / "commits" / "10").write_text("v1\n{}")
    assert repeated(rules.load(new)) == RepeatedBatch()
