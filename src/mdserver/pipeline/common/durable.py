"""The replacement of small files, so that neither a crash nor a power cut leaves half of one."""

import os
from pathlib import Path

from mdserver.journal.segments import sync_folder

MODE = 0o644
PRIVATE = 0o600
"""The mode of files with keys: only their owner may read them."""


def replace_file(path: Path, content: bytes, mode: int = MODE) -> None:
    """Replace a file in one piece; when this returns, its new content survives a power cut.

    The content is on the disk before the name is, and the name when the folder is synced. Raises
    OSError.
    """
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)
