"""The servers that a client may connect to, and the weighted choice among them."""

import random
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from attrs import frozen

WEIGHT_DEFAULT = 100
_SECURE = {"http": False, "ws": False, "https": True, "wss": True}


@frozen
class ServerEndpoint:
    """The address of a server; with `secure` None the client's `encryption` setting decides."""

    host: str
    port: int
    secure: bool | None = None
    weight: int = WEIGHT_DEFAULT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_server(text: str, *, secure: bool = False) -> ServerEndpoint:
    """Read `[weight] [scheme://]host[:port]`, for instance `100 push.example.com:8800`.

    The weight is an integer from 0 to 100, by default 100; a server of weight 0 is chosen only when
    no other server is left. The scheme is http, ws, https or wss. The default port is 443 if the
    scheme, or without one `secure`, asks for encryption, and otherwise 80. Raises ValueError.
    """
    first, blank, rest = text.strip().partition(" ")
    weight, address = WEIGHT_DEFAULT, text.strip()
    if blank:
        if not first.isascii() or not first.isdigit() or int(first) > 100:
            raise ValueError(f"{text!r}: the weight before the address is an integer, 0 to 100")
        weight, address = int(first), rest.strip()
    parts = _split_address(text, address)
    scheme_secure = _SECURE[parts.scheme] if parts.scheme else None
    encrypted = secure if scheme_secure is None else scheme_secure
    assert parts.hostname is not None
    port = parts.port or (443 if encrypted else 80)
    return ServerEndpoint(host=parts.hostname, port=port, secure=scheme_secure, weight=weight)


def _split_address(text: str, address: str) -> SplitResult:
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is no address of a server: {error}") from None
    if parts.scheme not in _SECURE and parts.scheme:
        raise ValueError(f"{text!r}: the scheme is one of http, ws, https, wss")
    if not parts.hostname or port == 0 or " " in address:
        raise ValueError(f"{text!r} is no address of a server; write [weight] host:port")
    if parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{text!r}: give host and port only, the path is always the same")
    return parts


class ServerChoice:
    """Chooses the server of each attempt: by weight, and not the one that just failed.

    Servers that failed are left out until all have failed. Then a new round begins, in which the
    one that failed last is left out if there is another one.
    """

    def __init__(self, servers: Iterable[ServerEndpoint]) -> None:
        self._servers: list[ServerEndpoint] = []
        self._preferred: list[ServerEndpoint] = []
        self._failed: dict[ServerEndpoint, None] = {}
        self.replace(servers)

    @property
    def count(self) -> int:
        """The number of servers to choose from."""
        return len(self._servers)

    def replace(self, servers: Iterable[ServerEndpoint]) -> None:
        """Use these servers from the next attempt on.

        Raises ValueError if there are none.
        """
        self._servers = list(dict.fromkeys(servers))
        if not self._servers:
            raise ValueError("a client needs at least one server")
        self._preferred = []
        self._failed = {}

    def prefer(self, servers: Iterable[ServerEndpoint]) -> None:
        """Try these servers first, as a member asked; they need not be among the client's own."""
        self._preferred = list(dict.fromkeys(servers))

    def failed(self, server: ServerEndpoint) -> None:
        """Note that a connection to this server failed, or that it sent the client away."""
        self._failed.pop(server, None)
        self._failed[server] = None
        self._preferred = [other for other in self._preferred if other != server]

    def succeeded(self) -> None:
        """Note that a session is established: no server counts as failed any more."""
        self._failed = {}
        self._preferred = []

    def choose(self, rng: random.Random) -> ServerEndpoint:
        """Return the server for the next attempt."""
        candidates = self._preferred or [s for s in self._servers if s not in self._failed]
        if not candidates:
            last = next(reversed(self._failed))
            self._failed = {last: None}
            candidates = [s for s in self._servers if s != last] or self._servers
        total = sum(server.weight for server in candidates)
        if total == 0:
            return candidates[rng.randrange(len(candidates))]
        point = rng.random() * total
        for server in candidates:
            point -= server.weight
            if point < 0:
                return server
        return candidates[-1]
