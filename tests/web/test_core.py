"""The JavaScript core does what the Python core does, call by call."""

import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import simulation.clients
from simulation.plan import make
from simulation.run import run
from tests.web.conversations import Conversation
from tests.web.recorded import RecordedCore

Node = Callable[..., str]
SEEDS = int(os.environ.get("REPLAYED_SEEDS", "60"))


def write(file: Path, conversations: Iterable[tuple[str, dict[str, Any]]]) -> None:
    with file.open("w", encoding="utf-8") as lines:
        for name, conversation in conversations:
            lines.write(json.dumps({"name": name} | conversation) + "\n")


def simulated(seeds: Iterable[int]) -> Iterable[tuple[str, dict[str, Any]]]:
    for seed in seeds:
        RecordedCore.kept = []
        run(make(seed))
        for number, kept in enumerate(RecordedCore.kept):
            yield f"seed {seed}, client {number}", kept


def anything(seeds: Iterable[int]) -> Iterable[tuple[str, dict[str, Any]]]:
    for seed in seeds:
        RecordedCore.kept = []
        Conversation(seed).play(300)
        yield from ((f"seed {seed}", kept) for kept in RecordedCore.kept)


@pytest.mark.slow
def test_in_simulated_clusters_with_faults(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation.clients, "ClientCore", RecordedCore)
    file = tmp_path / "conversations"
    write(file, simulated(range(SEEDS)))
    assert "the same" in node("replay.mjs", file)


def test_with_a_server_that_says_anything(tmp_path: Path, node: Node) -> None:
    file = tmp_path / "conversations"
    first = random.SystemRandom().randrange(10**9)
    write(file, anything(range(first, first + 150)))
    assert "150 conversations" in node("replay.mjs", file)


def test_another_output_is_noticed(tmp_path: Path, node: Node) -> None:
    file = tmp_path / "conversations"
    ((name, kept),) = anything([1])
    step = next(step for step in kept["steps"] if step["call"] == "opened" and step["outputs"])
    step["outputs"][0]["command"]["client"] = "somebody else"
    write(file, [(name, kept)])
    with pytest.raises(AssertionError, match=r"seed 1\): step \d+, opened"):
        node("replay.mjs", file)
