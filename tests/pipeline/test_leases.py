"""The lock in an object store: one owner at a time, also after one was killed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mdserver.pipeline.common import object_store
from mdserver.pipeline.common.leases import FREE, BusyError, LeaseTimes, leased
from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.requirements import PipelineError

NAME = "_checkpoints/archive.lock"
OWNER = LeaseTimes(renew_s=0.05, watch_s=600.0)
WATCHER = LeaseTimes(renew_s=0.05, watch_s=5.0)
NEVER = LeaseTimes(renew_s=600.0, watch_s=1200.0)
PATIENCE_S = 60


@pytest.fixture
def remote(bucket: str, tmp_path: Path) -> RemoteStore:
    store = object_store.opened(f"{bucket}/{tmp_path.name}")
    assert isinstance(store, RemoteStore)
    return store


def test_a_lock_that_is_changed_is_not_taken(remote: RemoteStore) -> None:
    with (
        leased(remote, NAME, "the tables", OWNER),
        pytest.raises(BusyError, match="another job is at work on the tables"),
        leased(remote, NAME, "the tables", WATCHER),
    ):
        pytest.fail("two processes have the lock")
    assert remote.content(NAME) == FREE
    with leased(remote, NAME, "the tables", NEVER) as held:
        held()


def test_the_lock_of_an_owner_that_is_gone_is_taken(remote: RemoteStore) -> None:
    remote.create(NAME, b"of a process that was killed")
    with leased(remote, NAME, "the tables", LeaseTimes(renew_s=600.0, watch_s=0.1)):
        assert remote.content(NAME) != FREE
    assert remote.content(NAME) == FREE


def test_an_owner_whose_lock_was_taken_is_told(remote: RemoteStore) -> None:
    other = b"of another process"
    with leased(remote, NAME, "the tables", OWNER) as held:
        deadline = time.monotonic() + PATIENCE_S
        while (told := complaint(held)) is None:
            assert time.monotonic() < deadline
            # Again and again: the store of tests looks at the version and writes in two steps.
            remote.put(NAME, other)
            time.sleep(0.2)
    assert told == "the tables: the lock _checkpoints/archive.lock was lost: start the job again"
    assert remote.content(NAME) == other


def complaint(held: Callable[[], None]) -> str | None:
    """What the owner is told, None if it still has the lock."""
    try:
        held()
    except PipelineError as error:
        return str(error)
    return None
