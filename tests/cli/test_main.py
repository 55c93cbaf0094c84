"""The command itself: help, exit status, errors as one line."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mdserver.cli.main import COMMANDS, exit_status, mdserver

# `run` prints one line that programs read, `completion` what a shell evaluates.
WITHOUT_FORMAT = {"run", "bridge", "completion", "top"}  # `stats --json` has what `top` shows


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def test_bad_usage_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["no-such-command"]) == 2
    assert "No such command 'no-such-command'" in capsys.readouterr().err
    assert exit_status(["check-config", "--no-such-option"]) == 2
    assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["snapshott"], "snapshot"),
        (["checkconfig"], "check-config"),
        (["cluster", "drian"], "drain"),
    ],
)
def test_a_mistyped_subcommand_is_answered_with_the_nearest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(words) == 2
    assert f"No such command '{words[-1]}'. Did you mean '{meant}'?" in capsys.readouterr().err


def test_an_option_before_the_command_is_told_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["-s", "127.0.0.1:8800", "pub", "/a/b", "hello"]) == 2
    said = capsys.readouterr().err
    assert "No such option '-s' of mdserver itself. Options stand after the command" in said


def leaves(group: click.Group, *path: str) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command below a group that is no group itself, with its words."""
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += leaves(command, *path, name)
        else:
            found.append(((*path, name), command))
    return found


@pytest.mark.parametrize(
    ("words", "command"),
    [
        pytest.param(words, command, id=" ".join(words))
        for words, command in leaves(mdserver)
        if words[0] not in WITHOUT_FORMAT
    ],
)
def test_every_command_that_prints_a_result_can_print_json(
    words: tuple[str, ...], command: click.Command
) -> None:
    options = {option.opts[0]: option for option in command.params}
    assert "--format" in options
    kind = options["--format"].type
    assert isinstance(kind, click.Choice)
    assert (list(kind.choices), options["--format"].default) == (["text", "json"], "text")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_completes_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(["completion", shell]) == 0
    assert f"_MDSERVER_COMPLETE={shell}_complete" in capsys.readouterr().out
    asked = {
        **os.environ,
        "_MDSERVER_COMPLETE": "bash_complete",
        "COMP_WORDS": "mdserver snap",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("mdserver")],
        env=asked,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert "snapshot" in done.stdout


def test_the_group_imports_no_subcommand_before_it_is_called() -> None:
    code = (
        "import sys\n"
        "from mdserver.cli.main import exit_status\n"
        "exit_status(['--help'])\n"
        "sys.exit('trio' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
