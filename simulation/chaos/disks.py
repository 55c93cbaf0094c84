"""Disks of members: file systems of their own, which fill up, and which lose power.

Each is an ext4 in a file. What a process writes stays in the kernel's cache until it is synced (or
for minutes), so that file is, at any moment, what a power cut would leave of the disk.
Mounting a copy of it shows a member just that: the file system repairs itself by its own journal.
"""

import os
import shutil
from functools import cache
from pathlib import Path

import trio

from simulation.chaos.processes import run, why_not

SIZE_BYTES = 64 * 1024 * 1024
TOOLS = {"mkfs.ext4": "e2fsprogs", "mount": "mount", "unshare": "util-linux"}
OPTIONS = "loop,noatime,commit=600,noauto_da_alloc"
"""Nothing but a sync brings anything to the disk; a rename is not synced either."""
LEAVE_TIMEOUT_S = 60
BALLAST = "ballast"
DISKS_TRIED = 3  # of a run of three members, at a time: loop devices may be few
TRIAL = f"""set -e
folder=$(mktemp -d)
trap 'cd /; umount "$folder"/? 2>/dev/null; rm -rf "$folder"' EXIT
for number in {" ".join(map(str, range(DISKS_TRIED)))}; do
  mkdir "$folder/$number"
  truncate -s 8M "$folder/$number.image"
  mkfs.ext4 -q -F "$folder/$number.image"
  mount -o {OPTIONS} "$folder/$number.image" "$folder/$number"
done
"""


class NoDiskError(Exception):
    """A disk could not be made, although the trial of `missing` succeeded."""


@cache
def missing() -> str | None:
    """Return why members cannot have disks of their own here, or None if they can."""
    if os.geteuid():
        return "only root may mount a file system"
    command = ["unshare", "--mount", "sh", "-c", TRIAL]
    return why_not("mounting a file system", TOOLS, command)


class Disk:
    """A file system at `folder`, for a run that is alone in its mount namespace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = folder.with_suffix(".image")

    async def make(self) -> None:
        """Make an empty one, and mount it. Raises NoDiskError."""
        try:
            self.folder.mkdir()
            with self.image.open("wb") as file:
                file.truncate(SIZE_BYTES)
            await run("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", str(self.image))
            await self._mount()
        except (OSError, RuntimeError, trio.TooSlowError) as error:
            raise NoDiskError(f"{self.folder.name}: {error}") from error

    async def _mount(self) -> None:
        await run("mount", "-o", OPTIONS, str(self.image), str(self.folder))

    async def power_cut(self) -> dict[str, int]:
        """Lose what was not synced; no process may have a file open.

        Returns the files that are shorter than they were, or gone, and by how many bytes.
        """
        before = self._sizes()
        left = self.image.with_suffix(".left")
        # Unmounting would write everything.
        await run("cp", "--sparse=always", str(self.image), str(left))
        await run("umount", str(self.folder))
        left.replace(self.image)
        await self._mount()
        after = self._sizes()
        return {
            name: size - after.get(name, 0)
            for name, size in before.items()
            if name not in after or after[name] < size
        }

    def _sizes(self) -> dict[str, int]:
        return {
            str(path.relative_to(self.folder)): path.stat().st_size
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    def fill(self) -> None:
        """Leave no free block, until `empty`."""
        with (self.folder / BALLAST).open("ab") as file:
            taken, size = 0, SIZE_BYTES
            while size:
                try:
                    os.posix_fallocate(file.fileno(), taken, size)
                except OSError:
                    size //= 2
                else:
                    taken += size

    def empty(self) -> None:
        """Make room again."""
        (self.folder / BALLAST).unlink()

    async def leave(self) -> None:
        """Unmount it, and leave its files in an ordinary folder of the same name.

        Raises OSError, RuntimeError or trio.TooSlowError.
        """
        with trio.fail_after(LEAVE_TIMEOUT_S, shield=True):
            copy = self.folder.with_suffix(".copy")
            shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("lost+found", BALLAST))
            await run("umount", str(self.folder))
            self.folder.rmdir()
            copy.rename(self.folder)
            self.image.unlink()
