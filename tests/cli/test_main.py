"""The command itself: help, exit status, errors as one line."""

import subprocess
import sys

import pytest

from mdserver.cli.main import COMMANDS, exit_status


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def test_bad_usage_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["no-such-command"]) == 2
    assert "No such command 'no-such-command'" in capsys.readouterr().err
    assert exit_status(["check-config", "--no-such-option"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_the_group_imports_no_subcommand_before_it_is_called() -> None:
    code = (
        "import sys\n"
        "from mdserver.cli.main import exit_status\n"
        "exit_status(['--help'])\n"
        "sys.exit('trio' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
