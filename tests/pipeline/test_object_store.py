"""Objects in a folder and in an object store: whole or not there, and never replaced."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from mdserver.journal.segments import sync_folder
from mdserver.pipeline.common import object_store
from mdserver.pipeline.common.object_store import FolderStore, ObjectStore, RemoteStore
from mdserver.pipeline.common.requirements import PipelineError


def test_an_object_is_never_replaced(store: ObjectStore) -> None:
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.content("a/b") == b"first"


def test_of_several_that_create_one_object_one_does(tmp_path: Path) -> None:
    """In a folder; an object store has its own promise of that, which the one of tests lacks."""
    store = FolderStore(tmp_path)
    contents = [b"%d" % number for number in range(8)]
    made: list[bytes] = []

    def create(content: bytes) -> None:
        if store.create("a/b", content):
            made.append(content)

    threads = [threading.Thread(target=create, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [store.content("a/b")]


def test_what_is_read_and_listed(store: ObjectStore, tmp_path: Path) -> None:
    for name in ("x/1/a", "x/1/b", "x/2/c", "y/d"):
        store.create(name, name.encode())
    assert store.folders("x") == ["1", "2"]
    assert store.folders("") == ["x", "y"]
    assert store.sizes("x/1") == {"a": 5, "b": 5}
    assert store.sizes("x") == store.sizes("missing") == {}
    made = store.times("x/1")
    assert sorted(made) == ["a", "b"]
    assert made["a"] <= made["b"] <= store.times("y")["d"]
    assert store.times("x") == store.times("missing") == {}
    assert store.folders("missing") == []
    assert store.tail("x/1/a", 3) == (5, b"1/a")
    assert store.tail("x/1/a", 9) == (5, b"x/1/a")
    store.fetch("x/2/c", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"x/2/c"
    for read in (store.content, lambda name: store.tail(name, 1)):
        with pytest.raises(FileNotFoundError):
            read("x/3")


def test_what_killed_processes_left_is_removed_once_a_run(tmp_path: Path) -> None:
    def leave(name: str, moment: float) -> None:
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_bytes(b"half")
        os.utime(tmp_path / "a" / name, (moment, moment))

    def names() -> list[str]:
        return sorted(path.name for path in (tmp_path / "a").iterdir())

    young = f".b.{'1' * 16}"
    leave(f".b.{'0' * 16}", 0.0)
    leave(f".other.{'2' * 16}", 0.0)
    leave(young, time.time())
    leave(".keep", 0.0)
    store = FolderStore(tmp_path)
    store.create("a/b", b"whole")
    assert names() == [young, ".keep", "b"]
    assert store.sizes("a") == {"b": 5}
    leave(f".b.{'3' * 16}", 0.0)
    store.create("a/c", b"whole")
    assert f".b.{'3' * 16}" in names()


@pytest.mark.parametrize("there", [False, True])
def test_a_run_syncs_the_folders_that_an_earlier_one_made(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ended after it had made a folder may not have synced the one above."""
    (tmp_path / "x" / "y").mkdir(parents=True)
    if there:
        (tmp_path / "x" / "y" / "b").write_bytes(b"whole")
    synced: list[Path] = []

    def sync(folder: Path) -> None:
        synced.append(folder)
        sync_folder(folder)

    monkeypatch.setattr(object_store, "sync_folder", sync)
    assert FolderStore(tmp_path).create("x/y/b", b"whole") is not there
    assert set(synced) == {tmp_path, tmp_path / "x", tmp_path / "x" / "y"}


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"no folder")
    with pytest.raises(PipelineError, match=r"a/b: (Not a directory|File exists)"):
        FolderStore(tmp_path).create("a/b", b"x")


def test_what_comes_behind_a_name_is_listed_alone(store: ObjectStore) -> None:
    for name in ("x/1", "x/2", "x/3", "x/4/a", "y/5"):
        store.create(name, b"-")
    assert store.sizes("x", "1") == {"2": 1, "3": 1}
    assert store.sizes("x", "3") == store.sizes("missing", "1") == {}


def test_a_store_that_does_not_answer_is_one_line_with_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        store = RemoteStore("s3://b/x", request_s=0.2, retry_s=0.1)
        with pytest.raises(PipelineError, match=r"a: timed out: AWS_TIMEOUT gives it more time\Z"):
            store.create("a", b"x")


def test_no_credentials_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any the library asks the cloud, whose address is no help to anybody else."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
    store = RemoteStore("s3://b/x", request_s=0.2, retry_s=0.1)
    with pytest.raises(PipelineError, match=r"^s3://b/x: no credentials: [^\n]* by its cloud\Z"):
        store.create("a", b"x")


def test_a_uri_of_a_folder(tmp_path: Path) -> None:
    assert object_store.opened(f"file://{tmp_path}") == FolderStore(tmp_path)
