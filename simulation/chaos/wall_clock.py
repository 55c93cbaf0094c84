"""A wall clock of its own for a process: a file says how wrong it is, and libfaketime reads it."""

from collections.abc import Mapping
from pathlib import Path

LIBRARIES = ("libfaketimeMT.so.1", "libfaketime.so.1")
FOLDERS = (Path("/usr/lib"), Path("/usr/local/lib"))


def fake_clock() -> Path | None:
    """The library by which a process sees another wall clock; None where it is not installed."""
    for name in LIBRARIES:
        for folder in FOLDERS:
            found = sorted((*folder.glob(f"faketime/{name}"), *folder.glob(f"*/faketime/{name}")))
            if found:
                return found[0]
    return None


class WallClock:
    """Right at first. `can_be_set`: the library is installed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._library = fake_clock()

    @property
    def can_be_set(self) -> bool:
        """Whether `set` has an effect here."""
        return self._library is not None

    def set(self, seconds: int) -> None:
        """Go wrong by so much from now on; a process that runs notices after a second or two."""
        fresh = self._file.with_suffix(".new")  # else it may be read while it is empty
        fresh.write_text(f"{seconds:+d}s\n", encoding="ascii")
        fresh.replace(self._file)

    def environment(self) -> Mapping[str, str]:
        """Return what a process needs to see this clock: nothing if it cannot be set."""
        if self._library is None:
            return {}
        if not self._file.exists():
            self.set(0)
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            # As with a real clock that is set: only the wall clock jumps.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Else it ends waits that go by the monotonic clock at once. A thread that waits for
            # Python's lock asks for it without a pause then, which makes two threads slower by far.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
