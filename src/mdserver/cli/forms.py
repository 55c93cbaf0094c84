"""The option `--format` of commands that print."""

from collections.abc import Callable
from typing import Any

import click


def format_option(
    help: str,  # noqa: A002 - click's name
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--format text|json` to a command; the function gets it as `form`."""
    return click.option(
        "--format", "form", type=click.Choice(["text", "json"]), default="text",
        show_default=True, help=help,
    )  # fmt: skip
