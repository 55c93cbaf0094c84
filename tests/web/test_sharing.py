"""Overlapping subscriptions in JavaScript do what those in Python do, command by command."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.web.recorded_sharing import walk

WALKS = 200


def test_walks_of_overlapping_subscriptions(tmp_path: Path, node: Callable[..., str]) -> None:
    file = tmp_path / "walks"
    lines = [json.dumps(walk(seed)) for seed in range(WALKS)]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert f"{WALKS} walks: the same" in node("replay_sharing.mjs", file)
