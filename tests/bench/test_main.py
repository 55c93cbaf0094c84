import pytest
from click.testing import CliRunner

from mdserver.bench.commands import bench


@pytest.mark.parametrize("command", sorted(bench.commands))
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(bench, [command, "--help"])
    assert result.exit_code == 0
    assert "--encoding" in result.output
    assert "--json" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["fanout", "--subscribers", "0"],
        ["fanout", "--seconds", "1e9"],
        ["fanout", "--encoding", "xml"],
        ["idle", "--connections", "1000000000"],
        ["publish", "--batch", "100", "--window", "10"],
    ],
)
def test_what_is_out_of_bounds_is_refused_before_anything_starts(arguments: list[str]) -> None:
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 2
    assert "Error: Invalid value for" in result.output
