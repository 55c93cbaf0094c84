"""The lock in an object store: one owner at a time, also after one was killed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mdserver.pipeline.common import leases, object_store
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


def test_the_answer_to_a_renewal_may_be_lost(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store made the change, and its owner does not know the version of it."""
    change = RemoteStore.replace

    def replace(self: RemoteStore, name: str, content: bytes, version: str) -> str | None:
        change(self, name, content, version)
        raise PipelineError("no answer")

    monkeypatch.setattr(leases, "CHECKED_S", 0.0)
    with leased(remote, NAME, "the tables", NEVER) as held:
        before = remote.content(NAME)
        with monkeypatch.context() as patched:
            patched.setattr(RemoteStore, "replace", replace)
            held()
        assert remote.content(NAME) != before
        held()
    assert remote.content(NAME) == FREE


def test_an_owner_that_was_suspended_asks_the_store(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock did not go on meanwhile, and another process took the lock."""
    monkeypatch.setattr(leases, "CHECKED_S", 0.0)
    with leased(remote, NAME, "the tables", NEVER) as held:
        held()
        remote.put(NAME, b"of another process")
        assert complaint(held) is not None
    assert remote.content(NAME) == b"of another process"


def test_a_lock_counts_from_its_request(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer came later than another process would have waited for the next change."""
    create = RemoteStore.create_version
    times = LeaseTimes(renew_s=600.0, watch_s=601.0)

    def answered_late(self: RemoteStore, name: str, content: bytes) -> str | None:
        made = create(self, name, content)
        time.sleep(1.1)
        return made

    monkeypatch.setattr(leases, "CHECKED_S", 600.0)
    monkeypatch.setattr(RemoteStore, "create_version", answered_late)
    with leased(remote, NAME, "the tables", times) as held:
        assert complaint(held) is not None


def complaint(held: Callable[[], None]) -> str | None:
    """What the owner is told, None if it still has the lock."""
    try:
        held()
    except PipelineError as error:
        return str(error)
    return None
