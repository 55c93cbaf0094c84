"""A lock in an object store, which has no locks: an object that its owner changes again and again.

Every change is made on the condition that nobody else changed the object (RFC 9110, section 13.1.1,
`If-Match`). Who finds the object watches it for longer than its owner would leave it as it is, by a
clock of its own, so no two clocks are compared. If it did not change meanwhile, its owner is gone.

An owner counts the time from before its request, and not from the answer: the store may have made
the change at any moment in between.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator

from attrs import frozen

from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.requirements import PipelineError

FREE = b"free\n"
CHECKED_S = 1.0
"""An owner that asks whether it has the lock renews it if it did so longer ago."""
REQUEST_S = 10.0
"""How long a request of a lock may take, and be tried again: much less than a segment's."""


@frozen
class LeaseTimes:
    """How often an owner changes its object, and how long another one watches it (s)."""

    renew_s: float = 10.0
    watch_s: float = 45.0


class BusyError(PipelineError):
    """Another process has the lock of the job."""


@contextlib.contextmanager
def leased(
    store: RemoteStore, name: str, what: str, times: LeaseTimes | None = None
) -> Iterator[Callable[[], None]]:
    """Have a lock until the end of the block; yield a function that raises if it was lost.

    Raises BusyError if another process has it, PipelineError if the store refuses. `what`
    names what is locked.
    """
    quick = RemoteStore(store.uri, request_s=REQUEST_S, retry_s=REQUEST_S)
    lease = _Lease(quick, name, what, times or LeaseTimes())
    lease.take()
    thread = threading.Thread(target=lease.keep, name="lease", daemon=True)
    thread.start()
    try:
        yield lease.check
    finally:
        lease.ended.set()
        thread.join(lease.times.watch_s)
        lease.free()


class _Lease:
    """The lock as its owner has it. `check` and `renew` may be called in any thread."""

    def __init__(self, store: RemoteStore, name: str, what: str, times: LeaseTimes) -> None:
        self.times = times
        self.ended = threading.Event()
        self._store = store
        self._name = name
        self._what = what
        self._owner = secrets.token_hex(16).encode()
        self._changes = 0
        self._version = ""
        self._asked = 0.0
        self._lost = False
        self._turn = threading.Lock()

    def take(self) -> None:
        """Take the lock. Raises BusyError if another process has it."""
        for _ in range(2):
            # If the object is deleted meanwhile, the lock is taken like one that never was.
            with contextlib.suppress(FileNotFoundError):
                if not self._took():
                    break
                return
        raise BusyError(f"another job is at work on {self._what}")

    def keep(self) -> None:
        """Renew the lock again and again, until it is `ended` or lost."""
        while not self.ended.wait(self.times.renew_s):
            # If the store refuses, `check` says when that was too long.
            with contextlib.suppress(PipelineError):
                self.renew()
            if self._lost:
                return

    def renew(self) -> None:
        """Change the object, or note that the lock was lost."""
        with self._turn:
            asked = time.monotonic()
            changed = self._store.replace(self._name, self._content(), self._version)
            if changed is None:
                # The answer to an earlier change may have been lost, and the change made.
                changed = self._own_version()
            if changed is None:
                self._lost = True
                return
            self._version, self._asked = changed, asked

    def check(self) -> None:
        """Raise PipelineError if the lock was lost, or may have been."""
        # Asked of the store and not only of the clock: this process may have been suspended, which
        # not every clock counts.
        if not self._lost and time.monotonic() - self._asked > CHECKED_S:
            with contextlib.suppress(PipelineError):
                self.renew()
        late = time.monotonic() - self._asked > self.times.watch_s - self.times.renew_s
        if self._lost or late:
            raise PipelineError(
                f"{self._what}: the lock {self._name} was lost: start the job again"
            )

    def free(self) -> None:
        """Give the lock back, unless it was lost or the store refuses."""
        with contextlib.suppress(PipelineError):
            self._store.replace(self._name, FREE, self._version)

    def _took(self) -> bool:
        asked = time.monotonic()
        taken = self._store.create_version(self._name, self._content())
        if taken is None:
            content, version = self._store.with_version(self._name)
            if content != FREE and not self._is_own(content):
                time.sleep(self.times.watch_s)
                content, now = self._store.with_version(self._name)
                if now != version and content != FREE:
                    return False
                version = now
            asked = time.monotonic()
            taken = self._store.replace(self._name, self._content(), version)
        if taken is None:
            taken = self._own_version()
        if taken is None:
            return False
        self._version, self._asked = taken, asked
        return True

    def _own_version(self) -> str | None:
        """Return the version of the object if this process was the last to change it."""
        try:
            content, version = self._store.with_version(self._name)
        except FileNotFoundError:
            return None
        return version if self._is_own(content) else None

    def _is_own(self, content: bytes) -> bool:
        return content.startswith(self._owner)

    def _content(self) -> bytes:
        self._changes += 1
        return b"%s %d\n" % (self._owner, self._changes)
