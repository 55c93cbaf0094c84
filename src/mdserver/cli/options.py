"""The common parts of pub, sub and snapshot: options of the connection, reports of failures."""

import functools
import logging
import os
import re
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import trio
from attrs import frozen

from mdserver.client import (
    Client,
    Notice,
    Notification,
    ReconnectSettings,
    StoppedError,
    SubscribeError,
)
from mdserver.errors import MdserverError, leaves

DEFAULT_SERVER = "http://127.0.0.1:8800"
T = TypeVar("T")
_TOKEN = re.compile(r"\btokens?\b", re.IGNORECASE)
logging.getLogger("mdserver.client").addHandler(logging.NullHandler())  # `_watch` reports instead


class CommandError(MdserverError):
    """A command failed; the message is one line for stderr."""


@frozen
class ConnectionOptions:
    """The options of a connection."""

    servers: tuple[str, ...]
    token: str | None
    encoding: str
    authority: Path | None = None

    def client(self, **more: Any) -> Client:
        """Return a client that notifies SERVER_DOWN only after it has tried each server.

        `more` are further arguments of `Client`.
        Raises UsageError if an address cannot be read.
        """
        tls = None if self.authority is None else self._trusting(self.authority)
        reconnect = ReconnectSettings(
            quick_initial_delay_s=1, notify_after_failed_attempts=len(self.servers)
        )
        try:
            return Client(
                self.servers,
                token=self.token,
                encoding="json" if self.encoding == "json" else "binary",
                encryption=tls is not None,
                tls=tls,
                reconnect=reconnect,
                **more,
            )
        except ValueError as error:
            raise click.UsageError(f"--server {error}") from None

    def hinted(self, text: str) -> str:
        """Return what a server or the network said, with a hint at what the user can do."""
        if "certificate" in text or "CERTIFICATE" in text:
            return f"{text} (--ca FILE names the authority of its certificate)"
        if "Connection refused" in text or "Name or service not known" in text:
            other = "--server or MDSERVER_SERVER names another one"
            return f"{text} (is a server running there? {other})"
        if _TOKEN.search(text) and self.token is None:
            return f"{text} (none was given: --token or, better, MDSERVER_TOKEN gives one)"
        if _TOKEN.search(text):
            return f"{text} (the token is what --token or MDSERVER_TOKEN gave)"
        return text

    def _trusting(self, authority: Path) -> ssl.SSLContext:
        """Return a TLS context that trusts this authority alone."""
        for server in self.servers:
            if "://" in server and not server.rpartition(" ")[2].startswith(("https:", "wss:")):
                raise click.UsageError(f"--ca is for servers with https://, not for {server}")
        try:
            return ssl.create_default_context(cafile=authority)
        except (OSError, ValueError):  # an SSLError is an OSError
            raise click.UsageError(
                f"--ca {authority}: expected certificates of authorities in PEM form"
            ) from None


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a connection; the function gets them as `connection`."""

    @click.option(
        "-s",
        "--server",
        "servers",
        multiple=True,
        metavar="URL",
        show_default=f"MDSERVER_SERVER, or {DEFAULT_SERVER}",
        help="A server, with a weight before it or without: '50 http://host:port'. Repeatable; "
        "MDSERVER_SERVER has several with commas between them.",
    )
    @click.option(
        "-t",
        "--token",
        envvar="MDSERVER_TOKEN",
        metavar="TOKEN",
        help="The entitlement token; better given as MDSERVER_TOKEN, which no `ps` shows.",
    )
    @click.option(
        "--encoding",
        type=click.Choice(["binary", "json"]),
        default="binary",
        show_default=True,
        help="How commands and messages travel.",
    )
    @click.option(
        "--ca",
        "authority",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Trust the authorities in this file (PEM), and no others; servers without a scheme "
        "are then reached by TLS.",
    )
    @functools.wraps(command)
    def with_connection(
        servers: tuple[str, ...],
        token: str | None,
        encoding: str,
        authority: Path | None,
        **others: Any,
    ) -> Any:
        named = servers or _servers_of_environment() or (DEFAULT_SERVER,)
        return command(connection=ConnectionOptions(named, token, encoding, authority), **others)

    return with_connection


def _servers_of_environment() -> tuple[str, ...]:
    named = os.environ.get("MDSERVER_SERVER", "").split(",")
    return tuple(server.strip() for server in named if server.strip())


class Reached:
    """The first server that a client connected to."""

    def __init__(self) -> None:
        self._server = ""
        self._there = trio.Event()

    def note(self, server: str) -> None:
        """Note the server of a connection, and wake the tasks that wait for it."""
        self._server = server
        self._there.set()

    async def server(self) -> str:
        """Wait until there is a connection; return its server."""
        await self._there.wait()
        return self._server


def run_client(
    connection: ConnectionOptions,
    body: Callable[[Client], Awaitable[T]],
    connected: Callable[[str], object] | None = None,
) -> T:
    """Run the body with a client that is connecting, until the body ends or fails.

    `connected` is called with the server when the first connection stands. Raises what the body
    raised, not a group of it, and CommandError if no server answers at first.
    """

    async def run() -> T:
        async with connection.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(watch_client, client, connection, connected)
            result = await body(client)
            nursery.cancel_scope.cancel()
        return result

    return _run(connection, run)


def run_parts(
    connection: ConnectionOptions, parts: Sequence[Callable[[], Awaitable[None]]]
) -> None:
    """Run parts that go on for ever, until one fails; raises what it raised, not a group of it."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for part in parts:
                nursery.start_soon(part)

    _run(connection, run)


def _run(connection: ConnectionOptions, run: Callable[[], Awaitable[T]]) -> T:
    try:
        return trio.run(run)
    except BaseExceptionGroup as group:
        error = _most_telling(group)
        if isinstance(error, StoppedError | SubscribeError):
            raise CommandError(connection.hinted(str(error))) from None
        raise error from None


async def watch_client(
    client: Client, connection: ConnectionOptions, connected: Callable[[str], object] | None
) -> None:
    """Report failures on stderr; end the command if no server was ever reached."""
    ever_up = False
    async for notice in client.statuses:
        if notice.status is Notification.SERVER_UP:
            if ever_up:
                tell(f"connected again to {notice.info}")
            elif connected is not None:
                connected(notice.info or "")
            ever_up = True
        elif notice.status is Notification.SERVER_DOWN:
            if not ever_up:
                raise CommandError(f"cannot connect to {connection.hinted(notice.info or '')}")
            tell(f"connection lost: {notice.info}")
        elif notice.status in _WORTH_TELLING:
            tell(_sentence(notice))


def _sentence(notice: Notice) -> str:
    words = [notice.status.name, notice.subject, notice.info]
    if notice.missing is not None:
        first, last = notice.missing.first, notice.missing.last
        words.append(f"missing from {first.epoch}/{first.seq} to {last.epoch}/{last.seq}")
    return " ".join(word for word in words if word)


_WORTH_TELLING = {
    Notification.DATA_RESYNC,
    Notification.ERROR,
    Notification.TOKEN_EXPIRED,
    Notification.TOKEN_INVALID,
    Notification.TOKEN_TO_EXPIRE,
}


def tell(line: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"mdserver: {line}\n")
    sys.stderr.flush()


def _most_telling(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the interruption if there is one, which caused the others; else the first error."""
    errors = leaves(group)
    return next((error for error in errors if isinstance(error, KeyboardInterrupt)), errors[0])
