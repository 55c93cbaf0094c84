"""Folders for temporary files: those of a process that was killed go, those of others stay."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mdserver.pipeline.common import temporary

pytestmark = pytest.mark.pipeline

HOLD = """
import sys
from mdserver.pipeline.common import temporary
with temporary.folder("tables") as folder:
    (folder / "copy").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


def holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has a folder until its input ends; return it with the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(parent)},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "mdserver-tables-of-an-earlier-release"
    other.mkdir()
    killed, left = holder(tmp_path)
    living, held = holder(tmp_path)
    try:
        killed.kill()
        killed.wait()
        assert (left / "copy").exists()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with temporary.folder("replay") as own:
            assert set(tmp_path.iterdir()) == {other, left, held, own}
        with temporary.folder("tables") as own:
            assert set(tmp_path.iterdir()) == {other, held, own}
        assert (held / "copy").exists()
        living.communicate()
        assert list(tmp_path.iterdir()) == [other]
    finally:
        for process in (killed, living):
            process.kill()
            process.communicate()
