"""Every command of docs/bench.md measures, with smaller loads than on the page."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from mdserver.bench.commands import bench
from tests.docs.test_commands import commands
from tests.live import LiveServer

PAGE = Path(__file__).parents[2] / "docs" / "bench.md"
COMMANDS = [
    words[2:]
    for words in commands(PAGE)
    if Path(words[0]).name == "mdserver" and "--format" not in words
]
SMALL = {
    "latency": "--clients 20 --subjects 3 --rate 60 --seconds 0.4",
    "storm": "--clients 10 --newcomers 30 --rate 60 --seconds 0.3",
    "slow": "--clients 10 --slow 2 --rate 60 --seconds 0.3",
    "held": "--clients 20 --seconds 0.2 --processes 2 --sources 2 --set Workers=2",
    "jitter": "--clients 20 --rate 60 --seconds 1 --cut-every 0.5 --away 0.1",
    "avalanche": "--clients 20 --rate 60 --seconds 0.3",
    "soak": "--clients 10 --rate 60 --seconds 1 --cut-every 0.5",
    "fanout": "--subscribers 20 --seconds 0.2",
    "subjects": "--subjects 20 --seconds 0.2 --window 40",
    "publish": "--count 500",
    "idle": "--connections 20",
    "connect": "--connections 20",
    "cluster": "--count 300 --one-by-one 10",
}

STARTED = {
    "latency --clients 1000",
    "held --clients 100000",
    "connect --connections 2000",
    "soak --seconds 3600",
    "avalanche --clients 1000",
}
"""What begins so starts its own servers here, too; the others have the one of the test."""


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_page_measures_and_loses_nothing(
    words: list[str], server: LiveServer
) -> None:
    given = [word.replace("8800", str(server.port)) for word in words]
    if "--server" not in given and " ".join(words[:3]) not in STARTED:
        given += ["--server", server.url]
    result = CliRunner().invoke(bench, [*given, *shlex.split(SMALL[words[0]])])
    # A busy computer may exceed a threshold on the page, which is no mistake of the command.
    said = re.findall(r"^(?:Error: )?(.+)$", result.stderr, re.MULTILINE)
    assert all(line.startswith("--fail-if") for line in said), result.stderr
    assert result.exit_code == (1 if said else 0)
    assert f" {words[0]} " in result.stdout


def test_the_page_has_every_command_that_takes_servers() -> None:
    takes = {
        name
        for name, command in bench.commands.items()
        if any(option.name == "servers" for option in command.params)
    }
    assert takes - {"connect"} <= {words[0] for words in COMMANDS}
