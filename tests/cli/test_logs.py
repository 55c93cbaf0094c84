"""The server log: JSON lines with stable names, levels, and a folder that can be used."""

import re
from pathlib import Path

import msgspec
import pytest
import structlog

from mdserver.cli.logs import server_log, set_level
from mdserver.config import Config, LogLevel
from mdserver.errors import MdserverError


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
    assert list(first) == ["time", "level", "event", "limit", "path"]
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
