"""Write the manual pages and the shell completions from what the commands say of themselves.

    python packaging/manual.py FOLDER

FOLDER stands for /usr/share: below it go `man/man1`, and the folders in which bash, zsh and fish
look for completions. One page a command, as git has them: mdserver(1), mdserver-run(1),
mdserver-cluster-drain(1).
"""

import gzip
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from mdserver import __version__
from mdserver.cli.completion import VARIABLE
from mdserver.cli.main import mdserver

COMPLETIONS = {
    "bash": "bash-completion/completions/mdserver",
    "zsh": "zsh/vendor-completions/_mdserver",
    "fish": "fish/vendor_completions.d/mdserver.fish",
}
FILES = (
    ("/etc/mdserver/mdserver.conf", "the configuration of the service"),
    ("/usr/share/doc/mdserver", "the documentation"),
)
STATUSES = (
    ("0", "done"),
    ("1", "refused or failed"),
    ("2", "bad usage or configuration"),
    ("130", "interrupted"),
)


def main() -> None:
    """Write everything into the folder that is given."""
    share = Path(sys.argv[1])
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or time.time()
    date = time.strftime("%Y-%m-%d", time.gmtime(moment))
    for name, command, context in commands(mdserver, None, "mdserver"):
        file = share / "man/man1" / f"{name.replace(' ', '-')}.1.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(page(name, command, context, date)) + "\n"
        file.write_bytes(gzip.compress(text.encode(), mtime=0))
    for shell, place in COMPLETIONS.items():
        kind = get_completion_class(shell)
        assert kind is not None
        (share / place).parent.mkdir(parents=True, exist_ok=True)
        script = kind(mdserver, {}, "mdserver", VARIABLE).source()
        (share / place).write_text(script, encoding="utf-8")


def commands(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield a command and those below it, each with its full name."""
    context = click.Context(command, parent=parent, info_name=name.rpartition(" ")[2])
    yield name, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from commands(found, context, f"{name} {below}")


def page(name: str, command: click.Command, context: click.Context, date: str) -> Iterator[str]:
    """Yield the lines of a manual page, in the language man(7)."""
    title = name.replace(" ", "-")
    text = command.help or ""
    yield f'.TH "{title.upper()}" "1" "{date}" "mdserver {__version__}" "mdserver"'
    yield ".SH NAME"
    yield f"{plain(title)} \\- {plain(command.get_short_help_str(limit=200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {plain(name)}"
    yield plain(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    for paragraph in text.replace("\f", "").split("\n\n"):
        verbatim = paragraph.strip().startswith("\b")
        yield ".PP"
        if verbatim:
            yield ".nf"
        lines = (line.strip("\b") for line in paragraph.splitlines())
        yield from (plain(line if verbatim else line.strip()) for line in lines if line.strip())
        if verbatim:
            yield ".fi"
    records = [each.get_help_record(context) for each in command.get_params(context)]
    yield from listed("OPTIONS", [record for record in records if record])
    if isinstance(command, click.Group):
        below = [each for each in commands(command, context.parent, name) if each[0] != name]
        yield from listed(
            "COMMANDS",
            [
                (f"{each.replace(' ', '-')}(1)", part.get_short_help_str(limit=200))
                for each, part, _ in below
                if each.count(" ") == name.count(" ") + 1
            ],
        )
    yield from listed("EXIT STATUS", STATUSES)
    yield from listed("FILES", FILES)
    if context.parent is not None:
        yield ".SH SEE ALSO"
        yield f"{plain(name.rpartition(' ')[0].replace(' ', '-'))}(1)"


def listed(
    title: str, rows: "list[tuple[str, str]] | tuple[tuple[str, str], ...]"
) -> Iterator[str]:
    """Yield a section that lists names and what they mean."""
    if rows:
        yield f".SH {title}"
    for term, meaning in rows:
        yield ".TP"
        yield f"\\fB{plain(term)}\\fP"
        yield plain(" ".join(meaning.split()))


def plain(text: str) -> str:
    """Write text so that it stands on a page as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


if __name__ == "__main__":
    main()
