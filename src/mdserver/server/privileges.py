"""Gives up the rights of the user that started the process, before the first client is accepted."""

import ctypes
import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mdserver.errors import StartError

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h


def drop_privileges(user: str) -> None:
    """Change the process to `user` and the groups of that user, irrevocably.

    Raises StartError if there is no such user, or if the process has no right to change.
    """
    entry = account(user)
    groups = _groups(entry)
    already = (
        set(os.getresuid()) == {entry.pw_uid}
        and set(os.getresgid()) == {entry.pw_gid}
        and set(os.getgroups()) <= set(groups)
    )
    if already:
        return
    try:
        os.setgroups(groups)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except PermissionError:
        if entry.pw_uid == os.geteuid():
            raise StartError(
                f"RunAsUser = {user}: the process has groups that this user has not "
                f"({', '.join(map(str, os.getgroups()))}), and only root can take them away; start "
                "it without them, or as root"
            ) from None
        raise StartError(
            f"RunAsUser = {user}: only root can change its user; start the server as root"
        ) from None


@contextmanager
def acting_as(user: str | None) -> Iterator[None]:
    """Run the block with the rights of `user` if the process is root's, then become root again.

    Files that the block makes belong to that user. What that user may not write is refused, and no
    link that the user placed leads to files that only root may use. Raises StartError if there is
    no such user.
    """
    if user is None or os.geteuid() != 0:
        yield
        return
    entry = account(user)
    groups, group = os.getgroups(), os.getegid()
    os.setgroups(_groups(entry))
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def account(user: str) -> pwd.struct_passwd:
    """Return the account of a user. Raises StartError if there is none."""
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise StartError(f"RunAsUser = {user}: there is no such user") from None


def _groups(entry: pwd.struct_passwd) -> list[int]:
    return sorted({entry.pw_gid, *os.getgrouplist(entry.pw_name, entry.pw_gid)})


def take_no_new_privileges() -> None:
    """Keep programs that this process starts from getting more rights than it has (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
