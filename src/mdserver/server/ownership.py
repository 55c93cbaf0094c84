"""Gives the files and folders that the server writes to the user of `RunAsUser`.

Root makes the folders and gives them to that user; files are made with the user's rights
(`acting_as`). Files of root from an earlier start are given to the user as well, but never through
a link: the user can place links among its files, and must not get other files of root that way.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mdserver.server.privileges import account


def give_folder(folder: Path, user: str | None, patterns: Iterable[str] = ()) -> None:
    """Make a folder for `user` if there is none, and give the user the files that match patterns.

    An existing folder keeps its owner, because others may use it too. Does nothing unless the
    process is root's. Raises OSError, and StartError if there is no such user.
    """
    if user is None or os.geteuid() != 0:
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        _give(path, user)
    for pattern in patterns:
        for path in folder.glob(pattern):
            _give(path, user)


def give_tree(folder: Path, user: str | None) -> None:
    """Make a folder for `user` if there is none, and give the user it and all that is in it.

    Does nothing unless the process is root's. Raises OSError, and StartError if there is no such
    user.
    """
    if user is None or os.geteuid() != 0:
        return
    give_folder(folder, user)
    _give(folder, user)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _give(Path(parent, name), user)


def _give(path: Path, user: str) -> None:
    """Give a file or folder of root to `user`, but no link and no file with a second name."""
    entry, found = account(user), path.lstat()
    plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
    if plain and found.st_uid == 0:
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
