"""The common options of `mdserver pipeline`'s jobs: for Spark, and for a job's figures."""

import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mdserver.pipeline.common.figures import Outlets

DRIVER_MEMORY = "spark.driver.memory"
SPARK_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SECRET = re.compile(
    r"(password|passphrase|secret|token|user\.info|jaas\.config|keystore\.key|encryption\.key"
    r"|(secret|access|private)[._-]?key)\Z"
    # The store goes by the name of the account, or of the container, which comes last.
    r"|(account\.key|client\.secret)(\.|\Z)|azure\.sas\.(?!token\.provider\.type)",
    re.IGNORECASE,
)
"""The part of a setting's name by which its value is one that nobody else may see."""
SPARK_MEMORY_MIN = 512 << 20  # with less than 450 MB Spark does not start


def spark_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of Spark; the function gets them as `spark_settings`."""

    @click.option(
        "--driver-memory",
        metavar="SIZE",
        help="Memory for Spark in this process, such as 4g.  [default: 1g]",
    )
    @click.option(
        "--spark-option",
        "given",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of Spark, such as spark.local.dir=/var/tmp; repeatable.",
    )
    @functools.wraps(function)
    def with_settings(driver_memory: str | None, given: tuple[str, ...], **others: Any) -> Any:
        parsed = dict(parsed_setting(text, "--spark-option") for text in given)
        for name in parsed:
            if not name.startswith("spark."):
                raise click.BadParameter(
                    f"{name!r} is no setting like spark.local.dir.",
                    param_hint="--spark-option",
                )
            refuse_secret(
                name,
                "--spark-option",
                "put it into spark-defaults.conf, in the folder that SPARK_CONF_DIR names",
            )
        if driver_memory is not None:
            parsed[DRIVER_MEMORY] = spark_size(driver_memory)
        return function(spark_settings=parsed, **others)

    return with_settings


def spark_size(text: str) -> str:
    """Return a size in the notation of Spark.

    Raises BadParameter if the text is no size, or too small for Spark to start.
    """
    match = re.fullmatch(r"(\d{1,9})\s*([kmgt]?)b?", text.strip().lower())
    if match is None or int(match[1]) * SPARK_UNITS[match[2]] < SPARK_MEMORY_MIN:
        raise click.BadParameter(
            f"{text!r} is no size of 512m or more, such as 4g.", param_hint="--driver-memory"
        )
    return f"{match[1]}{match[2] or 'b'}"


def figures_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a job's figures; the function gets them as `outlets`."""
    file = click.Path(dir_okay=False, path_type=Path)
    token = click.Path(exists=True, dir_okay=False, path_type=Path)

    @click.option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Serve figures of the job to Prometheus here (on loopback without a host).",
    )
    @click.option("--metrics-file", type=file, help="Write them to this file after each batch.")
    @click.option(
        "--report-to",
        metavar="SERVER",
        help="Publish them on /__mdserver__/pipeline/JOB of this server.",
    )
    @click.option("--report-token-file", type=token, help="The entitlement token for that.")
    @functools.wraps(function)
    def with_outlets(
        metrics: str | None,
        metrics_file: Path | None,
        report_to: str | None,
        report_token_file: Path | None,
        **others: Any,
    ) -> Any:
        host, port = (None, None) if metrics is None else parsed_address(metrics)
        secret = None
        if report_token_file is not None:
            secret = token_in(report_token_file, "--report-token-file")
        outlets = Outlets(
            metrics_file,
            host or Outlets().host,
            port,
            () if report_to is None else (report_to,),
            secret,
        )
        return function(outlets=outlets, **others)

    return with_outlets


def token_in(file: Path, option: str) -> str:
    """Return the token in a file; raise BadParameter if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "it is not UTF-8, as a token is"
    raise click.BadParameter(f"{file} cannot be read: {reason}.", param_hint=option)


def refuse_given(names: Iterable[str], reason: str) -> None:
    """Raise UsageError if the command line has options of these parameters, which do nothing."""
    context = click.get_current_context()
    given = [
        max(option.opts, key=len)
        for option in context.command.params
        if option.name in names
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{reason}: leave out {', '.join(given)}.")


def parsed_address(text: str) -> tuple[str, int]:
    """Return the host, "" if none is given, and the port of an address. Raises BadParameter."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise click.BadParameter(f"{text!r} is no PORT or HOST:PORT.", param_hint="--metrics")
    return host.strip("[]"), int(port)


def refuse_secret(name: str, option: str, where: str) -> None:
    """Raise BadParameter if a setting has a secret: all users see the command line in `ps`."""
    if SECRET.search(name):
        raise click.BadParameter(
            f"all users of the computer could see the value of {name}: {where}.", param_hint=option
        )


def parsed_setting(text: str, option: str = "--kafka-option") -> tuple[str, str]:
    """Return name and value of NAME=VALUE; raise BadParameter if the name or the `=` is missing."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint=option)
    return name, value
