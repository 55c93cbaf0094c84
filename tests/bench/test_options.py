import pytest

from mdserver.bench.commands import bench
from mdserver.bench.options import command_line


def test_the_token_does_not_stand_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["mdserver", "bench", "latency", "--token", "sesame"])
    command = bench.commands["latency"]
    with command.make_context("latency", ["--token", "sesame"]):
        assert command_line() == ["mdserver", "bench", "latency", "--token", "TOKEN"]
