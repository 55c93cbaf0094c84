"""Power cuts of chaos runs find out servers that do not sync: for `make verify-chaos-long`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.chaos import disks, namespaces


@pytest.fixture(autouse=True)
def possible() -> None:
    """Skip without disks or networks of their own."""
    why = disks.missing() or namespaces.missing()
    if why is not None:
        pytest.skip(f"no disks: {why}")


TIMEOUT_S = 400
NEVER = """
import os

def never(real):
    def sync(file):
        number = file if isinstance(file, int) else file.fileno()
        if {part!r} not in os.readlink(f"/proc/self/fd/{{number}}"):
            real(number)
    return sync

os.fsync, os.fdatasync = never(os.fsync), never(os.fdatasync)
"""


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("/journal-", r"FAILED (disclosed loss|I10): "),
        ("/disk-", r"FAILED (disclosed loss|I10|lost|fork|log|process: .* ended by itself)"),
    ],
    ids=["the journal", "anything"],
)
def test_a_server_that_does_not_sync_is_found_out(part: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NEVER.format(part=part), encoding="utf-8")
    command = [sys.executable, "-m", "simulation", "chaos", "--profile", "disks", "--rounds", "2"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "kept")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(found, done.stdout), done.stdout
