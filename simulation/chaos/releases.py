"""The release before this one, which members run until they are upgraded."""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = "0.1.0"
COMMIT = "d5fba9b10d27c174441ce0dba6a2c40f8e125a28"
"""Of that release. With a new release, both move on to the one before it."""
TIMEOUT_S = 60


class NoReleaseError(Exception):
    """The release before is not in this repository's history, or is not what it should be."""


@cache
def missing() -> str | None:
    """Return why the release before cannot be had, or None if it can."""
    try:
        found = git("cat-file", "-e", f"{COMMIT}^{{commit}}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"git does not run: {error}"
    if found.returncode:
        said, *_ = [*found.stderr.strip().splitlines(), "nothing"]
        return (
            f"commit {COMMIT[:12]}, release {RELEASE}, is not in this repository's history; "
            f"git says: {said}"
        )
    return None


def expected() -> bool:
    """Return whether the history has to be here: on a machine of CI (by its variable CI).

    Not so in a shallow clone, which may have no network to get more, in a copy that begins a
    history of its own, in a repository that git does not trust, and without one.
    """
    if not os.environ.get("CI") or not (ROOT / ".git").exists():
        return False
    try:
        shallow = git("rev-parse", "--is-shallow-repository").stdout.strip()
        commits = git("rev-list", "--count", "--max-count=2", "HEAD").stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return False
    return (shallow, commits) == ("false", "2")


def git(*words: str) -> "subprocess.CompletedProcess[str]":
    """Ask git about this repository, in English. Raises OSError, subprocess.TimeoutExpired."""
    command = ["git", *words]
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "LC_ALL": "C"},
    )


def unpack(folder: Path) -> Path:
    """Unpack the release before into a folder; return where Python finds its modules.

    Raises NoReleaseError.
    """
    why = missing()
    if why is not None:
        raise NoReleaseError(why)
    command = ["git", "archive", COMMIT, "src/mdserver"]
    packed = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if packed.returncode:
        raise NoReleaseError(packed.stderr.decode(errors="replace"))
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    source = folder / "src"
    said = subprocess.run(
        [sys.executable, "-m", "mdserver.cli.main", "--version"],
        capture_output=True,
        check=False,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment(source)},
    )
    # Otherwise a run of this code alone would pass for one of both.
    if RELEASE not in said.stdout:
        raise NoReleaseError(
            f"release {RELEASE} does not run: it says {said.stdout!r} {said.stderr!r}"
        )
    return source


def environment(source: Path) -> Mapping[str, str]:
    """Return what makes Python prefer the modules of a release to those that are installed."""
    return {"PYTHONPATH": str(source)}
