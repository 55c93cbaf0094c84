"""Seeds that are new with each commit, so that runs of many commits are runs of many seeds.

Runs of the same seeds again and again find nothing new. A commit's seeds follow from its id, so
whoever has the commit can run them again, and each is one command to replay.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIGITS = 7
APART = 10_000
"""Commits have this many seeds each before those of another one may begin."""


def commit_of(folder: Path = ROOT) -> str:
    """Return the id of the commit that is checked out; "" outside of a repository."""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def first_seed(commit: str, first: int) -> int:
    """Return the first seed for a commit, in place of the `first` one of a fixed range."""
    return first + APART * (1 + int(commit[:DIGITS], 16)) if commit else first


def tenth_of(commit: str) -> int:
    """Return which tenth of a list is the turn of a commit, 0 to 9."""
    return int(commit[:DIGITS], 16) % 10 if commit else 0
