"""The option `--format`, and printing a result in the chosen form."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import click


def format_option(
    help: str,  # noqa: A002 - click's name
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--format text|json` to a command; the function gets it as `form`."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help=help,
    )


def print_result(form: str, text: str, value: Mapping[str, Any]) -> None:
    """Print a result: its text, or its value as a JSON object on one line."""
    click.echo(json.dumps(value) if form == "json" else text)
