"""The options `--config` and `--set`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mdserver.config import Loaded, load


def configuration_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config FILE` and `--set Name=value` to a subcommand."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a parameter; wins over the file and the environment. Repeatable.",
    )(command)
    return click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The configuration file.",
    )(command)


def effective(file: Path | None, overrides: tuple[str, ...]) -> Loaded:
    """Return the configuration of this process. Raises `ConfigError`."""
    return load(file, os.environ, overrides)
