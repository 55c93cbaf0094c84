"""Gives the files and folders that the server writes to the user of `RunAsUser`.

A server that is started as root makes the folders and gives them to that user. Files are made with
the user's rights (`acting_as`); files of root from an earlier start are given to the user as well.

The user can change its folders at any moment, and must not obtain other files of root by that. The
danger is a path that means one file when it is checked and another one when its owner is changed.
So every check and every change refers to an open descriptor, not to a path:

- A path is opened folder by folder, and so is the target of a link in it. As soon as a part could
  have been placed by a user other than root, links are no longer followed (`_opened`).
- A file is opened without following a link, and checked and given by its descriptor (`_give`). A
  file with a second name is not given: that name may be a hard link, made by the user, to a file
  elsewhere.
"""

import errno
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from mdserver import limits
from mdserver.errors import StartError
from mdserver.server.privileges import account

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def unusable_folder(name: str, folder: Path, error: OSError, user: str | None) -> StartError:
    """Return the error for a folder that the server cannot use as the parameter `name` says.

    `user` is that of `RunAsUser`, None if the server keeps the rights with which it was started.
    """
    place = "" if error.filename in (None, str(folder)) else f": {error.filename}"
    told = f"{name} = {folder}: {error.strerror or error}{place}"
    if not isinstance(error, PermissionError):
        return StartError(told)
    who = user or _user_of_process()
    return StartError(
        f"{told}; the server runs as {who}: give that user the folder and the right to pass "
        "through those above it, or name another folder"
    )


def _user_of_process() -> str:
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def give_folder(folder: Path, user: str | None, patterns: Iterable[str] = ()) -> None:
    """Make a folder for `user` if there is none, and give the user the files that match `patterns`.

    An existing folder keeps its owner, because others may use it too. Do nothing unless the process
    runs as root. Raises OSError, and StartError if there is no such user.
    """
    if user is None or os.geteuid() != 0:
        return
    with _opened(folder, user) as descriptor:
        for name in os.listdir(descriptor):  # noqa: PTH208 - a descriptor has no path
            if any(fnmatch(name, pattern) for pattern in patterns):
                _give(name, user, descriptor)


def give_tree(folder: Path, user: str | None) -> None:
    """Make a folder for `user` if there is none, and give the user the folder and all its contents.

    Do nothing unless the process runs as root. Raises OSError, and StartError if there is no such
    user.
    """
    if user is None or os.geteuid() != 0:
        return
    with _opened(folder, user) as descriptor:
        _give_opened(descriptor, user)
        for _, folders, files, parent in os.fwalk(".", dir_fd=descriptor):
            for name in (*folders, *files):
                _give(name, user, parent)


@contextmanager
def _opened(folder: Path, user: str) -> Iterator[int]:
    """Open a folder; make missing folders on the way to it, and give those to `user`.

    Raises OSError, also if the path contains a link that a user other than root may have placed.
    """
    path = folder.absolute()
    descriptor = os.open(path.anchor, _FOLDER)
    try:
        names = list(reversed(path.parts[1:]))  # the next one last
        safe, links = True, 0
        while names:
            name = names.pop()
            safe = safe and _holds_only_roots(name, descriptor)
            target = _target(name, descriptor) if safe else None
            if target is None:
                parent, descriptor = descriptor, _entered(descriptor, name, user)
                os.close(parent)
                continue
            # The kernel would follow all of the target, also through a folder of the user.
            links += 1
            if links > limits.LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            names += [part for part in reversed(target.split("/")) if part not in ("", ".")]
            if target.startswith("/"):
                parent, descriptor = descriptor, os.open("/", _FOLDER)
                os.close(parent)
        yield descriptor
    finally:
        os.close(descriptor)


def _holds_only_roots(name: str, parent: int) -> bool:
    """Return whether only root can have placed `name` in a folder, and only root can replace it."""
    found = os.fstat(parent)
    if found.st_uid != 0:
        return False
    if not found.st_mode & _WRITABLE_BY_OTHERS:
        return True
    # In a folder with the sticky bit, such as /tmp, users can replace only their own files.
    try:
        placed_by = os.stat(name, follow_symlinks=False, dir_fd=parent).st_uid
    except FileNotFoundError:
        return False
    return bool(found.st_mode & stat.S_ISVTX) and placed_by == 0


def _target(name: str, parent: int) -> str | None:
    """Return the target of the link `name` in `parent`, None if it is no link or is not there."""
    try:
        return os.readlink(name, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _entered(parent: int, name: str, user: str) -> int:
    """Open the folder `name` in `parent`; if there is none, make it and give it to `user`."""
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(name, dir_fd=parent)
        descriptor = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        _give_opened(descriptor, user)
        return descriptor
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, follow_symlinks=False, dir_fd=parent).st_mode):
            raise OSError(
                errno.ELOOP, f"{name} is a link in a folder that others than root may write to"
            ) from None
        raise


def _give(name: str, user: str, parent: int) -> None:
    """Give `user` a file or folder of root in the folder `parent`; skip links and special files."""
    if not _is_plain(os.stat(name, follow_symlinks=False, dir_fd=parent)):
        return  # opening a FIFO or a device can have effects on its reader or driver
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
        )
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOENT):
            return  # replaced by a link or removed since it was looked at
        raise
    try:
        _give_opened(descriptor, user)
    finally:
        os.close(descriptor)


def _give_opened(descriptor: int, user: str) -> None:
    """Give `user` what is open as `descriptor`, if it is root's and has no second name."""
    entry, found = account(user), os.fstat(descriptor)
    if _is_plain(found) and found.st_uid == 0:
        os.fchown(descriptor, entry.pw_uid, entry.pw_gid)


def _is_plain(found: os.stat_result) -> bool:
    """Return whether this is a folder, or a regular file with one name."""
    return stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
