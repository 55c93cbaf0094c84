"""A lock in an object store, which has no locks: an object that its owner changes again and again.

Every change is made on the condition that nobody else changed the object (RFC 9110, section 13.1.1,
`If-Match`). Who finds the object watches it for longer than its owner would leave it as it is, by a
clock of its own, so no two clocks are compared. If it did not change meanwhile, its owner is gone.
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
    times = times or LeaseTimes()
    version = _taken(store, name, what, times)
    ended, lost = threading.Event(), threading.Event()
    latest: tuple[str, float] = (version, time.monotonic())

    def renew() -> None:
        nonlocal latest
        while not ended.wait(times.renew_s):
            try:
                changed = store.replace(name, _content(), latest[0])
            except PipelineError:
                continue  # `check` says when that was too long
            if changed is None:
                lost.set()
                return
            latest = (changed, time.monotonic())

    def check() -> None:
        if lost.is_set() or time.monotonic() - latest[1] > times.watch_s - times.renew_s:
            raise PipelineError(f"{what}: the lock {name} was lost: start the job again")

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield check
    finally:
        ended.set()
        thread.join(times.watch_s)
        with contextlib.suppress(PipelineError):
            store.replace(name, FREE, latest[0])


def _taken(store: RemoteStore, name: str, what: str, times: LeaseTimes) -> str:
    """Take the lock and return the version of its object."""
    made = store.create_version(name, _content())
    if made is not None:
        return made
    content, version = store.with_version(name)
    if content != FREE:
        time.sleep(times.watch_s)
        content, now = store.with_version(name)
        if now != version and content != FREE:
            raise BusyError(f"another job is at work on {what}")
        version = now
    taken = store.replace(name, _content(), version)
    if taken is None:
        raise BusyError(f"another job is at work on {what}")
    return taken


def _content() -> bytes:
    return f"{secrets.token_hex(16)}\n".encode()
