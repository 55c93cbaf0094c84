import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mdserver.bench.commands import bench


@pytest.mark.slow
def test_messages_wait_in_the_server_for_slow_clients(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    small = ["--clients", "5", "--slow", "5", "--rate", "50", "--seconds", "0.5"]
    result = CliRunner().invoke(bench, ["slow", *small, "--json", str(lines)])
    assert result.exit_code == 0, result.output
    *_, last = (json.loads(line) for line in lines.read_text().splitlines())
    assert (last["mode"], last["connections"], last["count"]) == ("slow clients", 5, 5)
    assert last["kib_each"] >= 64
