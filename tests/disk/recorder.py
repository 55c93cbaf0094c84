"""Writes down what a program asks of its disk, and makes every state that a crash could leave.

`Recorder` stands under the calls of `os` that change files of one folder, and carries them out.
What is written is on the disk for certain once its file was synced, and a name once its folder was.
Before that it may be there or not: a crash at any time leaves

- the names as they were at the last sync of the folder, or after any number of the changes since,
  in their order (as a file system with a journal has them), and
- of each file what was synced, or all that was written since, or that with the last write torn,
  after a sector or in its middle.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

SECTOR_BYTES = 512
CUT = -1
"""The offset of what is no write, but has the file end at a size."""


@define(eq=False)
class File:
    """What a file holds: for certain, and the writes (offset, data) since its last sync."""

    synced: bytes = b""
    written: list[tuple[int, bytes]] = field(factory=list)

    def content(self, *, written: bool, torn: Callable[[int], int] | None = None) -> bytes:
        """Return what is there without the writes since the last sync, or with them.

        `torn`: how much of the last of them, of its size.
        """
        held = bytearray(self.synced)
        last = len(self.written) - 1
        for number, (offset, data) in enumerate(self.written if written else ()):
            if offset == CUT:
                size = int(data)
                held = bytearray(bytes(held[:size]).ljust(size, b"\0"))
                continue
            piece = data[: torn(len(data))] if torn and number == last else data
            held = held.ljust(offset, b"\0")
            held[offset : offset + len(piece)] = piece
        return bytes(held)


LEFT: tuple[tuple[bool, Callable[[int], int] | None], ...] = (
    (False, None),
    (True, None),
    (True, lambda size: size // 2),
    (True, lambda size: min(SECTOR_BYTES, size // 2)),
)
"""What may be left of the writes since the last sync: whether any, and how much of the last one."""

Check = Callable[[Path, list[int]], None]
"""Looks at a folder as a crash left it, and at what was said before; an AssertionError fails."""


class Recorder:
    """Records one folder, which is empty; after each call `check` sees all that a crash leaves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, check: Check) -> None:
        self.folder = folder
        self.said: list[int] = []
        self.crashes = 0
        self.failure: AssertionError | None = None
        self._check = check
        self._looking = False
        self._names: dict[str, File] = {}
        self._certain: dict[str, File] = {}
        self._changes: list[dict[str, File]] = []
        self._files: dict[int, File | None] = {}  # None: the folder
        for name in (
            "open",
            "close",
            "write",
            "pwrite",
            "ftruncate",
            "fsync",
            "fdatasync",
            "rename",
            "replace",
            "link",
            "unlink",
        ):
            self._stand_under(monkeypatch, name)
        monkeypatch.setattr(Path, "write_bytes", write_bytes)

    def _stand_under(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        real, note = getattr(os, name), getattr(self, f"_on_{name}")

        def call(*args: Any, **named: Any) -> Any:
            if self._looking:
                return real(*args, **named)
            at = os.lseek(args[0], 0, os.SEEK_CUR) if name == "write" else 0
            result = real(*args, **named)
            if note(result, at, *args):
                self._look()
            return result

        monkeypatch.setattr(os, name, call)

    def say(self, what: int) -> None:
        """Note that something was said that has to be true after any crash from now on."""
        self.said.append(what)
        self._look()

    def _look(self) -> None:
        if self.failure is not None:
            return
        self._looking = True
        try:
            for contents in self._left():
                self.crashes += 1
                self._check_one(contents)
        except AssertionError as error:
            self.failure = error
        finally:
            self._looking = False

    def _left(self) -> Iterator[dict[str, bytes]]:
        seen: list[dict[str, bytes]] = []
        for names in (self._certain, *self._changes):
            for written, torn in LEFT:
                left = {n: file.content(written=written, torn=torn) for n, file in names.items()}
                if left not in seen:
                    seen.append(left)
                    yield left

    def _check_one(self, contents: dict[str, bytes]) -> None:
        left = self.folder.with_name(f"{self.folder.name}.left")
        shutil.rmtree(left, ignore_errors=True)
        left.mkdir()
        for name, content in contents.items():
            with (left / name).open("wb") as file:
                file.write(content)
        self._check(left, self.said)

    # The calls; each returns whether a crash may leave something else now

    def _name(self, path: Any) -> str | None:
        found = Path(os.fsdecode(path))
        return found.name if found.parent == self.folder else None

    def _on_open(self, file: int, _: int, path: Any, flags: int, *__: Any) -> bool:
        if Path(os.fsdecode(path)) == self.folder:
            self._files[file] = None
        name = self._name(path)
        if name is None or not flags & (os.O_WRONLY | os.O_RDWR):
            return False
        made = name not in self._names
        if made:
            self._names[name] = File()
            self._changes.append(dict(self._names))
        self._files[file] = self._names[name]
        if flags & os.O_TRUNC:
            self._names[name].written.append((CUT, b"0"))
        return made or bool(flags & os.O_TRUNC)

    def _on_close(self, _: None, __: int, file: int) -> bool:
        self._files.pop(file, None)
        return False

    def _on_write(self, size: int, at: int, file: int, data: bytes) -> bool:
        held = self._files.get(file)
        if held is not None:
            held.written.append((at, bytes(data[:size])))
        return held is not None

    def _on_pwrite(self, size: int, _: int, file: int, data: bytes, at: int) -> bool:
        return self._on_write(size, at, file, data)

    def _on_ftruncate(self, _: None, __: int, file: int, size: int) -> bool:
        held = self._files.get(file)
        if held is not None:
            held.written.append((CUT, b"%d" % size))
        return held is not None

    def _on_fsync(self, _: None, __: int, file: int) -> bool:
        if file not in self._files:
            return False
        held = self._files[file]
        if held is None:
            self._certain, self._changes = dict(self._names), []
        else:
            held.synced, held.written = held.content(written=True), []
        return True

    _on_fdatasync = _on_fsync

    def _on_rename(self, _: None, __: int, before: Any, after: Any) -> bool:
        name, to = self._name(before), self._name(after)
        if name is None or to is None:
            return False
        self._names[to] = self._names.pop(name)
        self._changes.append(dict(self._names))
        return True

    _on_replace = _on_rename

    def _on_link(self, _: None, __: int, before: Any, after: Any) -> bool:
        name, to = self._name(before), self._name(after)
        if name is None or to is None:
            return False
        self._names[to] = self._names[name]
        self._changes.append(dict(self._names))
        return True

    def _on_unlink(self, _: None, __: int, path: Any) -> bool:
        name = self._name(path)
        if name is None:
            return False
        del self._names[name]
        self._changes.append(dict(self._names))
        return True


def write_bytes(path: Path, data: bytes) -> int:
    """Do what `Path.write_bytes` does, by calls that are recorded."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return os.write(file, data)
    finally:
        os.close(file)
