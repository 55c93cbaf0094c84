"""A power cut leaves of a disk what was synced; a full disk takes nothing and can be read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.chaos import disks

pytestmark = pytest.mark.slow
ALONE = ["unshare", "--mount", sys.executable, "-c"]
"""What a test mounts is gone with its process."""
BEGIN = """
import os, sys
from pathlib import Path
import trio
from simulation.chaos.disks import Disk

def write(name, text, synced):
    with (disk.folder / name).open("ab", buffering=0) as file:
        file.write(text)
        if synced:
            os.fsync(file.fileno())

def sync_folder():
    descriptor = os.open(disk.folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)

disk = Disk(Path(sys.argv[1]) / "disk")
"""
POWER = """
async def main():
    await disk.make()
    write("kept", b"synced", True)
    sync_folder()
    write("kept", b" and not", False)
    write("unknown", b"never", False)
    (disk.folder / "kept").rename(disk.folder / "renamed")
    lost = await disk.power_cut()
    assert lost == {"renamed": 14, "unknown": 5}, lost
    assert (disk.folder / "kept").read_bytes() == b"synced"
    (disk.folder / "kept").rename(disk.folder / "renamed")
    sync_folder()
    assert await disk.power_cut() == {}
    assert (disk.folder / "renamed").read_bytes() == b"synced"
    await disk.leave()
    assert (disk.folder / "renamed").read_bytes() == b"synced"
    assert not disk.folder.is_mount()

trio.run(main)
"""
FULL = """
async def main():
    await disk.make()
    write("kept", b"synced", True)
    disk.fill()
    try:
        write("more", b"x" * 5000, True)
        raise SystemExit("a full disk took more")
    except OSError as error:
        assert error.errno == 28, error
    assert (disk.folder / "kept").read_bytes() == b"synced"
    disk.empty()
    write("more", b"x" * 5000, True)
    await disk.leave()

trio.run(main)
"""


@pytest.fixture(autouse=True)
def possible() -> None:
    """Skip if nothing can be mounted here, which only trying tells."""
    why = disks.missing()
    if why is not None:
        pytest.skip(f"no disks: {why}")


@pytest.mark.parametrize("script", [POWER, FULL], ids=["power cut", "full"])
def test_a_disk_loses_what_a_machine_would_lose(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*ALONE, BEGIN + script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr
