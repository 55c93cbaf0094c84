"""A class of the operator's hears of a subscriber that went away, from a running server."""

import os
import subprocess
import sys
from pathlib import Path

from tests.live import live_server

MODULE = """
from pathlib import Path

class Push:
    def __init__(self):
        self.file = Path(__file__).with_suffix(".out")

    async def joined(self, who, subject):
        self.note("joined", who, subject)

    async def left(self, who, subject):
        self.note("left", who, subject)

    def note(self, what, who, subject):
        with self.file.open("a") as file:
            file.write(f"{what} {who.session} {subject}\\n")
"""
RULES = (
    "Listen=127.0.0.1:0",
    "Entitlement=None",
    "Extension.Presence=true",
    "Extension.Presence.Class=push:Push",
)


def test_left_is_told_when_a_subscriber_disconnects(tmp_path: Path) -> None:
    (tmp_path / "push.py").write_text(MODULE)
    words = [word for rule in RULES for word in ("--set", rule)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with live_server(tmp_path, *words, environment=environment) as server:
        for command in (["pub", "/a/b", "x"], ["sub", "/a/*", "--count", "1"]):
            run = [sys.executable, "-m", "mdserver.cli.main", *command, "--server", server.url]
            subprocess.run(run, check=True, capture_output=True, timeout=30)
    # The server drained: whatever it had to tell was told.
    assert [line.split() for line in (tmp_path / "push.out").read_text().splitlines()] == [
        ["joined", "mdserver-2", "/a/*"],
        ["left", "mdserver-2", "/a/*"],
    ]


def test_a_class_without_presence_is_told_to_the_operator() -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mdserver.cli.main", "run", "--set", "Listen=127.0.0.1:0"),
            *("--set", "Extension.Presence.Class=push:Push"),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 2
    assert "--set: Extension.Presence.Class: it needs Extension.Presence = true" in run.stderr
