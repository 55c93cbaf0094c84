"""Without the release before, what is left out is said; CI fails if it should be there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.chaos import releases

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (releases.ROOT / ".git").exists(), reason="this is no repository"),
]
TIMEOUT_S = 120


def git(*words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *words]
    subprocess.run(command, check=True, capture_output=True)


def simulated(repository: Path, *words: str, automatic: bool) -> "subprocess.CompletedProcess[str]":
    """Run a command of the simulator with the history of another repository."""
    return subprocess.run(
        [sys.executable, "-m", "simulation", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "GIT_DIR": str(repository), "CI": "true" if automatic else ""},
    )


def test_a_missing_release_is_told_and_fails_ci_if_the_history_is_whole(tmp_path: Path) -> None:
    whole, shallow = tmp_path / "whole", tmp_path / "shallow"
    git("init", "--quiet", str(whole))
    for message in ("one", "two"):
        git("-C", str(whole), "commit", "--quiet", "--allow-empty", "-m", message)
    git("clone", "--quiet", "--bare", "--depth", "1", whole.as_uri(), str(shallow))
    for repository, automatic, status in [
        (whole / ".git", False, 0),
        (whole / ".git", True, 1),
        (shallow, True, 0),
        (tmp_path / "none", True, 0),
    ]:
        done = simulated(repository, "run", "--profile", "upgrade", automatic=automatic)
        assert done.returncode == status, (repository, done.stderr)
        assert done.stderr.startswith("NO RELEASE BEFORE, nothing was run: commit ")
    assert "git says: fatal: not a git repository" in done.stderr


def test_no_run_is_repeated_without_the_release_that_it_needs(tmp_path: Path) -> None:
    done = simulated(tmp_path, "replay", "--profile", "upgrade", "1", automatic=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: no release before: commit ")
