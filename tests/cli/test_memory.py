"""`mdserver check-config --memory`: what a configuration lets clients have the server keep."""

from pathlib import Path

import attrs
import pytest

from mdserver.cli.main import exit_status
from mdserver.cli.memory import bounds, table
from mdserver.config import PARAMETERS, Config
from mdserver.limits import KB, MB

PAGE = Path(__file__).parents[2] / "docs/security.md"


@pytest.fixture(autouse=True)
def no_parameters_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in PARAMETERS.values():
        monkeypatch.delenv(row.environment, raising=False)


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["check-config", "--memory"]) == 0
    printed = capsys.readouterr().out
    assert f"```text\n{printed}```" in PAGE.read_text(encoding="utf-8")


def test_sums_are_those_of_the_configuration() -> None:
    small = attrs.evolve(
        Config(),
        max_connections=20,
        max_connections_per_address=30,
        max_cache_bytes=MB,
        max_subjects=10,
        max_subscriptions_per_session=1,
        buffer_limit_send=64 * KB,
    )
    lines = {line.split("  ")[0]: line.split() for line in table(small)}
    waiting = lines["messages waiting to be sent"]
    assert waiting[5:11] == ["64", "KB", "1,280", "KB", "1,280", "KB"]
    assert lines["cached messages"][2:6] == ["-", "-", "1,024", "KB"]
    each = sum(one.each for one in bounds(small))
    whole = sum(one.whole for one in bounds(small))
    assert 64 * MB < each < 65 * MB
    assert lines["sum"][5:] == [f"{(whole + 20 * each) / MB:,.0f}", "MB"]


def test_parameters_that_are_named_exist() -> None:
    config = attrs.evolve(Config(), journal=True)
    named = {name for one in bounds(config) for name in one.named.split(", ") if name}
    assert named <= set(PARAMETERS)
