"""The servers under load: those that run already, or one that is started for the measurement."""

import secrets
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen

from mdserver.bench import processes
from mdserver.bench.encodings import Encoding
from mdserver.bench.opening import AdapterOpening, Opening, WebSocketOpening
from mdserver.bench.wire import Upgrade
from mdserver.core.commands import Connect, WireCommand
from mdserver.errors import ConfigError

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@frozen
class ServerAddress:
    """Where a server listens for clients."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether it is on this computer, in 127.0.0.0/8."""
        return self.host.startswith("127.")


@frozen
class Running:
    """Servers that run already: their addresses, and what clients need to be let in.

    `encrypted` says that clients speak TLS; `authority` is a file of certificates that they trust
    instead of the system's. `pid` is the process of one of them, if it is on this computer.
    """

    addresses: tuple[ServerAddress, ...]
    encrypted: bool = False
    authority: Path | None = None
    token: str | None = None
    pid: int | None = None

    @classmethod
    def at(
        cls,
        urls: Sequence[str],
        authority: Path | None = None,
        token: str | None = None,
        pid: int | None = None,
    ) -> "Running":
        """Read the addresses of URLs, as `--server` takes them.

        Raises ConfigError if one is no URL of a server, if only some have TLS, or if the file of
        the authority has no certificate.
        """
        addresses = []
        schemes = set()
        for url in urls:
            try:
                parts = urlsplit(url)
                port = parts.port
            except ValueError:
                raise ConfigError(f"--server {url}: expected http://HOST:PORT") from None
            if parts.scheme not in _PORTS or not parts.hostname:
                raise ConfigError(f"--server {url}: expected http://HOST:PORT or https://HOST:PORT")
            schemes.add(parts.scheme in ("https", "wss"))
            addresses.append(ServerAddress(parts.hostname, port or _PORTS[parts.scheme]))
        if len(schemes) > 1:
            raise ConfigError("--server: all servers of a measurement have TLS, or none has")
        try:
            ssl.create_default_context(cafile=authority)
        except ssl.SSLError:
            raise ConfigError(f"--ca {authority}: expected a certificate in PEM") from None
        return cls(tuple(addresses), True in schemes, authority, token, pid)

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the clients; None without TLS."""
        return ssl.create_default_context(cafile=self.authority) if self.encrypted else None

    def hello(self) -> list[WireCommand]:
        """Return the commands with which a client begins."""
        return [] if self.token is None else [Connect(token=self.token)]


@frozen
class ServersUnderTest:
    """The servers under load, and the process whose time and memory are measured, if any."""

    running: Running
    pid: int | None = None

    @property
    def addresses(self) -> tuple[ServerAddress, ...]:
        """Where clients connect."""
        return self.running.addresses

    def opening(self, encoding: Encoding, commands: Sequence[WireCommand] = ()) -> Opening:
        """Return how a client opens that sends these commands first."""
        upgrade = Upgrade(str(self.addresses[0]), encoding.subprotocol, encoding.path)
        if encoding.server is None:
            return AdapterOpening(upgrade, Connect(token=self.running.token), commands)
        return WebSocketOpening(upgrade, [*self.running.hello(), *commands])

    @property
    def cpu_s(self) -> float:
        """Processor time of that process so far, in seconds; 0 if there is none."""
        return 0.0 if self.pid is None else processes.cpu_s(self.pid)

    @property
    def resident_kib(self) -> int | None:
        """Resident memory of that process, or None."""
        return None if self.pid is None else processes.resident_kib(self.pid)


def local(*ports: int) -> tuple[ServerAddress, ...]:
    """Return the addresses of these ports of 127.0.0.1."""
    return tuple(ServerAddress("127.0.0.1", port) for port in ports)


def own_subject() -> str:
    """Return a subject that nothing was published to, so that its messages count from 1."""
    return f"/bench/{secrets.token_hex(5)}"


@contextmanager
def opened(
    running: Running | None,
    settings: Sequence[str] = (),
    python: str | None = None,
    store: Path | None = None,
) -> Iterator[ServersUnderTest]:
    """Yield the servers that run already or, without them, one that is started and ended.

    With a key store a server is started in any case, and the listener for TLS is what is yielded.
    Raises BenchError if it cannot be started.
    """
    if store is not None:
        settings = (*settings, "ListenEncrypted=127.0.0.1:0", f"KeyStore={store}")
    elif running is not None:
        yield ServersUnderTest(running, running.pid)
        return
    scheme = "http" if store is None else "https"
    with processes.server(settings, scheme, python=python) as (process, port):
        yield ServersUnderTest(Running(local(port)), process.pid)
