"""Folders for temporary files of jobs, which do not stay for ever when a job is killed.

A folder has a file that its process holds a lock of as long as it lives. The first folder that a
process makes removes those of its kind whose lock nobody holds. Folders without the file, such as
those of earlier releases, are left alone.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK = "in-use.lock"


@contextlib.contextmanager
def folder(kind: str) -> Iterator[Path]:
    """Give a folder in the one that TMPDIR names, and remove it at the end of the block.

    `kind` is a part of its name. Raises OSError.
    """
    prefix = f"mdserver-{kind}-"
    _remove_left(tempfile.gettempdir(), prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        fresh = Path(name) / f"{LOCK}.new"
        with fresh.open("w") as file:
            # Some file systems have no locks: the folder then looks like one without the file.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Others see the file only when its lock is held.
                fresh.rename(Path(name) / LOCK)
            yield Path(name)


@functools.cache
def _remove_left(parent: str, prefix: str) -> None:
    """Remove what processes of this user that were killed have left; once in a process."""
    for found in Path(parent).glob(f"{prefix}*"):
        # Others may put links and pipes into a folder that all users share.
        with contextlib.suppress(OSError):
            if found.lstat().st_uid == os.getuid() and not found.is_symlink():
                with (found / LOCK).open() as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(found, ignore_errors=True)
