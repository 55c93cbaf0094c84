"""The server log: JSON lines with stable names, levels, and a folder that can be used."""

import os
import pty
import re
import sys
from pathlib import Path

import msgspec
import pytest
import structlog

from mdserver.config import Config, LogFormat, LogLevel
from mdserver.errors import MdserverError
from mdserver.server.logs import server_log, set_level


def lines_of(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "mdserver.log").read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


def test_a_line_is_an_object_with_time_level_event_and_values(tmp_path: Path) -> None:
    log = structlog.get_logger()
    with server_log(Config(log_folder=tmp_path)):
        log.debug("not at this level")
        log.warning("out of descriptors", limit=1024, path=Path("/x"))
        try:
            raise ValueError("boom")
        except ValueError:
            log.exception("session failed", session=3)
    first, second = lines_of(tmp_path)
    assert list(first) == ["time", "level", "event", "node", "limit", "path"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(first["time"]))
    assert (first["level"], first["event"]) == ("warning", "out of descriptors")
    assert (first["limit"], first["path"]) == (1024, "/x")
    assert second["level"] == "error"
    assert "ValueError: boom" in str(second["exception"])


def test_a_line_with_text_that_cannot_be_encoded_is_written_with_escapes(tmp_path: Path) -> None:
    with server_log(Config(log_folder=tmp_path)):
        structlog.get_logger().warning("no such file", path="/a/\ud800", where=Path("/b"))
    (line,) = lines_of(tmp_path)
    assert (line["event"], line["path"], line["where"]) == ("no such file", "/a/\\ud800", "/b")


def test_the_level_changes_while_the_server_runs(tmp_path: Path) -> None:
    log = structlog.get_logger()
    with server_log(Config(log_folder=tmp_path, log_level=LogLevel.ERROR)):
        log.info("before")
        set_level(LogLevel.DEBUG)
        log.debug("after")
    assert [line["event"] for line in lines_of(tmp_path)] == ["after"]


def test_without_a_folder_lines_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with server_log(Config()):
        structlog.get_logger().info("hello")
    out, err = capfd.readouterr()
    assert out == ""
    assert msgspec.json.decode(err)["event"] == "hello"


def test_a_folder_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = tmp_path / "file"
    with pytest.raises(MdserverError) as caught, server_log(Config(log_folder=folder)):
        pass
    assert str(caught.value).startswith(f"LogFolder = {folder}: ")


def on_a_terminal(config: Config, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a few lines of the log look like on a terminal."""
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with server_log(config):
            log = structlog.get_logger()
            log.warning("out of descriptors", limit=1024, address="\x1b[2Jevil\n")
            try:
                raise ValueError("boom")
            except ValueError:
                log.exception("session failed", session="mdserver-3")
    shown = os.read(controller, 65536).decode()
    os.close(controller)
    return shown.replace("\r\n", "\n")


def test_on_a_terminal_lines_are_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_terminal(Config(node_name="n7"), monkeypatch)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert plain != shown, "coloured"
    assert "\x1b[2J" not in shown, "what came from outside cannot move the cursor"
    first, second, *traceback = plain.splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \[warning *\] out of descriptors +node=n7 ", first)
    assert "limit=1024" in first
    assert "session=mdserver-3" in second
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == "ValueError: boom"


def test_json_can_be_had_on_a_terminal_and_text_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = on_a_terminal(Config(log_format=LogFormat.JSON), monkeypatch)
    assert [msgspec.json.decode(line)["level"] for line in shown.splitlines()] == [
        "warning",
        "error",
    ]
    monkeypatch.undo()
    with server_log(Config(log_folder=tmp_path, log_format=LogFormat.TEXT)):
        structlog.get_logger().info("hello", count=1)
    (line,) = (tmp_path / "mdserver.log").read_text().splitlines()
    assert "\x1b" not in line
    assert re.search(r"\[info *\] hello +node=mdserver count=1$", line)


def test_a_text_line_writes_lists_and_dicts_as_people_do(tmp_path: Path) -> None:
    values = {
        "urls": ["http://a:1"],
        "monitor": [],
        "taken": ("MaxSubjects", "LogLevel"),
        "groups": {"h1": [1, 2], "h2": []},
        "force": False,
        "peer": None,
        "evil": ["\x1b[2J"],
    }
    with server_log(Config(log_folder=tmp_path, log_format=LogFormat.TEXT)):
        structlog.get_logger().info("ready", **values)
    (line,) = (tmp_path / "mdserver.log").read_text().splitlines()
    assert line.split("node=mdserver ")[1] == (
        "urls=http://a:1 monitor=none taken='MaxSubjects, LogLevel' groups='h1: (1, 2), h2: (none)'"
        " force=no peer=none evil=\\x1b[2J"
    )
