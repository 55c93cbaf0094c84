"""`RunAsUser` and logs that cannot be written: nothing ends in silence."""

import http.client
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.cli.test_run import failed_run
from tests.cluster.live_cluster import LiveCluster
from tests.live import LiveServer, live_server

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
ROTATE_BYTES = 64 * 1024
LONG_SUBJECT = "/" + "/".join(["a" * 100] * 5)
LINES_PER_FILE = ROTATE_BYTES // len(LONG_SUBJECT)
PATIENCE_S = 30


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter, and only root may write to."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def logging(folder: Path, **settings: str) -> list[str]:
    """Return the arguments of a server that logs publications to `folder`."""
    every = {
        "Listen": "127.0.0.1:0",
        "Entitlement": "None",
        "LogFolder": str(folder),
        "LogRotateLimit": "64KB",
        "Extension.Audit.Message": "true",
        **settings,
    }
    return [word for name, value in every.items() for word in ("--set", f"{name}={value}")]


def publish(server: LiveServer, count: int) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    for _ in range(count):
        connection.request("POST", f"/rest/produce?subject={quote(LONG_SUBJECT)}", body="x")
        assert connection.getresponse().read()
    connection.close()


def ready(server: LiveServer) -> str:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    connection.request("GET", "/health/ready")
    answer = connection.getresponse()
    assert answer.status == 200
    body = answer.read().decode()
    connection.close()
    return body


def wait_for(condition: object, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def lines(folder: Path) -> int:
    """Return how many publications the audit logs of a folder have."""
    return sum(
        file.read_text().count('"event":"publish"') for file in folder.glob("audit-message.log*")
    )


@needs_root
def test_logs_go_on_after_a_rotation_as_another_user(folder: Path) -> None:
    logs = folder / "new" / "logs"
    count = LINES_PER_FILE + 10
    with live_server(folder, *logging(logs, RunAsUser="nobody")) as server:
        publish(server, count)
        wait_for(lambda: lines(logs) == count, f"{lines(logs)} of {count} lines")
        assert (logs / "audit-message.log.1").exists()
        assert ready(server) == "ready\n"
    assert {path.owner() for path in (logs, *logs.iterdir())} == {"nobody"}
    # A start as root left files of root, such as one from before `RunAsUser` was set.
    for path in logs.iterdir():
        shutil.chown(path, "root", "root")
    with live_server(folder, *logging(logs, RunAsUser="nobody")) as server:
        publish(server, 1)
        wait_for(lambda: lines(logs) == count + 1, "a line after the restart")


@needs_root
def test_a_folder_that_the_user_may_not_write_to_is_one_line(folder: Path) -> None:
    (folder / "logs").mkdir()
    status, told = failed_run(*logging(folder / "logs", RunAsUser="nobody"))
    assert (status, told.count("\n")) == (1, 1)
    assert told.startswith(f"mdserver: LogFolder = {folder / 'logs'}: Permission denied: nobody ")
    assert list((folder / "logs").iterdir()) == []


@needs_root
@pytest.mark.parametrize("name", ["JournalFolder", "LogFolder"])
def test_a_folder_that_cannot_be_used_names_parameter_user_and_way_out(
    folder: Path, name: str
) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    settings = {"RunAsUser": "nobody", "Journal": "on", "JournalFolder": str(folder / "journal")}
    settings[name] = str(closed / "x")
    status, told = failed_run(*logging(folder / "logs", **settings))
    assert (status, told.count("\n")) == (1, 1)
    assert told.startswith(f"mdserver: {name} = {closed / 'x'}: Permission denied")
    assert "the server runs as nobody: give that user the folder" in told


@needs_root
def test_a_server_without_a_journal_needs_no_folder_to_start_in(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o700)
    under = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
    status, told = failed_run(
        "--set", "Listen=192.0.2.1:1", under=("env", "-C", str(folder / "closed"), *under)
    )
    assert (status, told.count("\n")) == (1, 1)
    assert told.startswith("mdserver: Cannot listen on 192.0.2.1:1"), "the journal is off"


@needs_root
def test_root_follows_no_link_that_the_user_put_among_its_files(folder: Path) -> None:
    logs = folder / "logs"
    logs.mkdir()
    shutil.chown(logs, "nobody")
    secret = folder / "secret"
    secret.write_text("of root\n")
    secret.chmod(0o600)
    (logs / "mdserver.log").symlink_to(secret)
    status, told = failed_run(*logging(logs, RunAsUser="nobody"))
    assert (status, told.count("\n")) == (1, 1)
    assert (secret.owner(), secret.read_text()) == ("root", "of root\n")


@needs_root
def test_root_gives_no_file_away_by_a_link_in_the_journal(folder: Path) -> None:
    stream = folder / "journal" / "messages"
    stream.mkdir(parents=True)
    shutil.chown(stream, "nobody")
    secret = folder / "secret"
    secret.write_text("of root\n")
    secret.chmod(0o600)
    (stream / "x.open").symlink_to(secret)
    arguments = logging(
        folder / "logs", RunAsUser="nobody", Journal="on", JournalFolder=str(folder / "journal")
    )
    with live_server(folder, *arguments):
        assert secret.owner() == "root"


@needs_root
def test_root_goes_over_no_link_that_the_user_put_on_the_way_to_a_folder(folder: Path) -> None:
    """The user replaces its own folder by a link to one of root."""
    (folder / "of-root" / "journal").mkdir(parents=True)
    secret = folder / "of-root" / "journal" / "secret"
    secret.write_text("of root\n")
    (folder / "home").mkdir()
    shutil.chown(folder / "home", "nobody")
    (folder / "home" / "data").symlink_to(folder / "of-root")
    (folder / "home" / "journal").symlink_to(folder / "of-root" / "journal")
    for path in ("home/data/journal", "home/journal"):
        journal = {"Journal": "on", "JournalFolder": str(folder / path)}
        status, told = failed_run(*logging(folder / "logs", RunAsUser="nobody", **journal))
        assert (status, told.count("\n")) == (1, 1)
        assert "is a link in a folder that others than root may write to" in told
        assert secret.owner() == secret.parent.owner() == "root"


@needs_root
def test_a_folder_of_roots_own_links_is_used(folder: Path) -> None:
    """An operator keeps the journal on another disk."""
    (folder / "disk").mkdir()
    (folder / "lib").symlink_to(folder / "disk")
    journal = {"Journal": "on", "JournalFolder": str(folder / "lib" / "journal")}
    with live_server(folder, *logging(folder / "logs", RunAsUser="nobody", **journal)):
        assert (folder / "disk" / "journal").owner() == "nobody"
        assert (folder / "disk").owner() == "root"


@needs_root
@pytest.mark.parametrize("target", ["home/data/journal", "{folder}/home/data/journal"])
def test_a_link_of_root_does_not_lead_over_one_of_the_user(folder: Path, target: str) -> None:
    """An operator's link leads through a folder of the user, who puts a link of its own there."""
    (folder / "of-root" / "journal").mkdir(parents=True)
    (folder / "home").mkdir()
    shutil.chown(folder / "home", "nobody")
    (folder / "home" / "data").symlink_to(folder / "of-root")
    (folder / "journal").symlink_to(target.format(folder=folder))
    journal = {"Journal": "on", "JournalFolder": str(folder / "journal")}
    status, told = failed_run(*logging(folder / "logs", RunAsUser="nobody", **journal))
    assert (status, told.count("\n")) == (1, 1)
    assert "is a link in a folder that others than root may write to" in told
    assert (folder / "of-root" / "journal").owner() == "root"


@needs_root
def test_links_of_root_that_never_end_are_one_line(folder: Path) -> None:
    (folder / "journal").symlink_to("journal")
    journal = {"Journal": "on", "JournalFolder": str(folder / "journal")}
    status, told = failed_run(*logging(folder / "logs", RunAsUser="nobody", **journal))
    assert (status, told.count("\n")) == (1, 1)
    assert "Too many levels of symbolic links" in told


@needs_root
def test_links_of_root_lead_up_and_to_folders_that_are_made(folder: Path) -> None:
    (folder / "disk" / "deep").mkdir(parents=True)
    (folder / "disk" / "deep" / "up").symlink_to("../new")
    (folder / "lib").symlink_to(folder / "disk" / "deep" / "." / "up")
    journal = {"Journal": "on", "JournalFolder": str(folder / "lib" / "journal")}
    with live_server(folder, *logging(folder / "logs", RunAsUser="nobody", **journal)):
        assert (folder / "disk" / "new" / "journal").owner() == "nobody"
        assert (folder / "disk").owner() == "root"


@needs_root
def test_a_log_that_cannot_be_renamed_is_written_on(folder: Path) -> None:
    logs = folder / "logs"
    count = LINES_PER_FILE + 10
    with live_server(folder, *logging(logs, RunAsUser="nobody")) as server:
        shutil.chown(logs, "root")
        publish(server, count)
        wait_for(lambda: lines(logs) == count, "all lines in the file that is full")
        assert (logs / "audit-message.log").stat().st_size > ROTATE_BYTES
        told = f"{logs / 'audit-message.log'} is full and cannot be renamed: Permission denied"
        assert ready(server).startswith(f"ready\nwarning: {told}")
        assert server.log.read_text().count(told) == 1, "said once, not at each line"


def test_lost_lines_are_counted_and_told(tmp_path: Path) -> None:
    logs, count = tmp_path / "logs", 20
    file = logs / "audit-message.log"
    with live_server(tmp_path, *logging(logs)) as server:
        publish(server, 1)
        wait_for(lambda: lines(logs) == 1, "the first line")
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (file.stat().st_size, hard))
        publish(server, count)
        told = f"{count} lines for {file} are lost: File too large"
        wait_for(lambda: told in ready(server), "a warning")
        assert server.log.read_text().count(f"{file} cannot be written: File too large") == 1
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        publish(server, 1)
        wait_for(lambda: ready(server) == "ready\n", "no warning")
        assert lines(logs) == 2
        assert f'"event":"lines-lost","count":{count}' in file.read_text()
        assert f"{count} lines for {file} were lost" in server.log.read_text()


@needs_root
@pytest.mark.slow
def test_a_seed_that_runs_as_another_user_writes_its_vote_file(folder: Path) -> None:
    settings = {
        "RunAsUser": "nobody",
        "ClusterMemberCoordinationFolder": f"{folder}/INDEX/votes",
        "Journal": "on",
        "JournalFsync": "commit",
        "JournalFolder": f"{folder}/INDEX/journal",
    }
    with LiveCluster(folder, 3, settings=settings) as cluster:
        assert cluster.produce(0, "/a/b", "one")
        cluster.kill(2)
        cluster.start(2)
        cluster.wait_ready(2)
        assert cluster.produce(2, "/a/b", "two")
        assert all("vote file cannot be written" not in cluster.log(i) for i in range(3))
        votes = list(folder.glob("*/votes/*"))
        assert len(votes) >= 6
        assert {path.owner() for path in votes} == {"nobody"}
