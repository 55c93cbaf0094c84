"""The `mdserver` command: find the subcommand, and report each failure in one line.

Exit status: 0 done, 1 refused or failed, 2 bad usage or configuration, 130 interrupted.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

import click

from mdserver import __version__
from mdserver.cli.terminal import harmless
from mdserver.errors import ConfigError, MdserverError

COMMANDS = {
    "run": "Run a server.",
    "check-config": "Print the effective configuration and where each value comes from.",
    "pub": "Publish messages.",
    "sub": "Subscribe to subjects and print what arrives.",
    "snapshot": "Print the snapshot of a subject.",
    "token": "Make or explain an entitlement token.",
    "pipeline": "Archive, audit, roll up and replay what went through, with Spark.",
    "ship": "Send a member's journal to where the archive reads all members.",
    "bridge": "Copy messages between topics of Kafka and subjects.",
    "top": "Show what a server does, live: rates, latency, slow sessions, top subjects.",
    "stats": "Print the statistics of a server.",
    "sessions": "Print the sessions of a server, the slowest first.",
    "bench": "Measure servers: throughput, latency, storms, cuts, restarts, long loads.",
    "cluster": "Look after a cluster: status, drain, seeds, readmit, cold-start.",
    "completion": "Print what makes bash, zsh or fish complete commands and options.",
}

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """Imports the module of a subcommand only when it is called, which makes starting faster.

    The module has the name of the subcommand, and in it a click command of the name `command`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the subcommands, without importing their modules."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a subcommand."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mdserver.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; for an option of a subcommand say where it has to stand."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            reason = f"No such option {error.option_name!r} of mdserver itself."
            hint = "Options stand after the command: mdserver pub --server URL SUBJECT CONTENT"
            raise click.UsageError(f"{reason} {hint}", ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; suggest the nearest name for one that does not exist."""
        name = args[0]
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        if name not in COMMANDS and close:
            raise click.UsageError(f"No such command {name!r}. Did you mean {close[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands from `COMMANDS`, without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mdserver")
def mdserver() -> None:
    """Real-time messaging server: subjects pushed to very many subscribers, losing none."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `mdserver` command and exit with its status."""
    sys.exit(exit_status(arguments))


def exit_status(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit status; deliberate errors become one line on stderr."""
    try:
        status = mdserver.main(arguments, prog_name="mdserver", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except ConfigError as error:
        click.echo(harmless(str(error)), err=True)
        return EXIT_USAGE
    except MdserverError as error:
        for line in harmless(str(error)).split("\n"):
            click.echo(f"mdserver: {line}", err=True)
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader of our output has ended, as `head` does. Python flushes stdout at exit, which
        # must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    main()
