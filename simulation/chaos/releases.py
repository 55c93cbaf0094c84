"""The release before this one, which members run until they are upgraded."""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = "0.1.0"
COMMIT = "d5fba9b10d27c174441ce0dba6a2c40f8e125a28"
"""Of that release. With a new release, both move on to the one before it."""
TIMEOUT_S = 60


class NoReleaseError(Exception):
    """The release before is not in this repository's history, or is not what it should be."""


def missing() -> str | None:
    """Return why the release before cannot be had, or None if it can."""
    command = ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    try:
        found = subprocess.run(
            command, cwd=ROOT, capture_output=True, check=False, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"git does not run: {error}"
    if found.returncode:
        return f"commit {COMMIT[:12]}, release {RELEASE}, is not in this repository's history"
    return None


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
