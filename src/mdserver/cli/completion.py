"""`mdserver completion`: print the script that makes a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MDSERVER_COMPLETE"  # set by the shell when it asks for completions; named by click


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands and options of `mdserver`.

    For bash: `eval "$(mdserver completion bash)"` in ~/.bashrc; zsh likewise in ~/.zshrc. For fish:
    `mdserver completion fish > ~/.config/fish/completions/mdserver.fish`.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "mdserver", VARIABLE).source())
