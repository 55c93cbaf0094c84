"""The common part of commands for operators: requests to the monitor listener of a member."""

import base64
import http.client
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import click

from mdserver.errors import MdserverError

TIMEOUT_S = 10
ORDER = {"X-Mdserver": "1"}  # the monitor accepts no command without this header

_HINT = "does a member's monitor listen there? --monitor URL names another one"
_CREDENTIALS_HINT = (
    "MDSERVER_MONITORUSERNAME and MDSERVER_MONITORPASSWORD, or --credentials FILE, give them"
)


class MonitorError(MdserverError):
    """The member refused a request, or the request did not reach it."""


def monitor_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--monitor` and `--credentials`."""
    function = click.option(
        "--credentials",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with `user:password`; else MDSERVER_MONITORUSERNAME and -PASSWORD.",
    )(function)
    return click.option(
        "--monitor",
        default="http://127.0.0.1:4000",
        show_default=True,
        metavar="URL",
        help="The monitor listener of any member.",
    )(function)


def ask(monitor: str, credentials: Path | None, method: str, path: str) -> Any:
    """Send a request to a member and return its answer, JSON as plain values.

    Raises `MonitorError` with the reason if the member refuses or cannot be reached.
    """
    status, body = _answer(monitor, credentials, method, path)
    try:
        value = json.loads(body)
    except ValueError:
        raise _refused(monitor, credentials, status, path, body) from None
    if status != http.client.OK:
        raise MonitorError(str(value.get("refused")))
    return value


def ask_text(
    monitor: str, credentials: Path | None, path: str, parameters: Mapping[str, object]
) -> str:
    """Return a page of a member in its text form. Raises `MonitorError`."""
    query = urlencode({**parameters, "format": "text"})
    status, body = _answer(monitor, credentials, "GET", f"{path}?{query}")
    if status != http.client.OK:
        raise _refused(monitor, credentials, status, path, body)
    return body.decode(errors="replace")


def authorization(credentials: Path | None) -> dict[str, str]:
    """Return the header with user and password, or none if there are none.

    They come from a file or the environment, never from arguments, which every user of the machine
    can see.
    """
    if credentials is not None:
        pair = credentials.read_text(encoding="utf-8").strip()
    else:
        user = os.environ.get("MDSERVER_MONITORUSERNAME", "")
        password = os.environ.get("MDSERVER_MONITORPASSWORD", "")
        pair = f"{user}:{password}" if password else ""
    if not pair:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _answer(monitor: str, credentials: Path | None, method: str, path: str) -> tuple[int, bytes]:
    """Send a request; return status and body. Raises `MonitorError` if there is no answer."""
    url = urlsplit(monitor)
    if url.scheme != "http" or not url.hostname:
        raise click.UsageError(f"--monitor {monitor}: expected http://host:port")
    connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, headers=ORDER | authorization(credentials))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise MonitorError(f"cannot ask {monitor}: {reason} ({_HINT})") from None
    finally:
        connection.close()


def _refused(
    monitor: str, credentials: Path | None, status: int, path: str, body: bytes
) -> MonitorError:
    """Return the error for an answer that is not the expected one, with a hint at the cause."""
    told = f"{monitor}: {body.decode(errors='replace').strip()}"
    if status == http.client.NOT_FOUND:
        told = f"{monitor} has no {path} ({_HINT})"
    elif status == http.client.UNAUTHORIZED and authorization(credentials):
        given = f"{credentials}" if credentials else "the environment"
        told = f"{monitor}: user or password is wrong, as {given} gives them ({_CREDENTIALS_HINT})"
    elif status == http.client.UNAUTHORIZED:
        told = f"{told} ({_CREDENTIALS_HINT})"
    return MonitorError(told)
