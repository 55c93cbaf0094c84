"""What clients speak over: TCP, or TLS over it, for tests that run with both (`conftest.py`)."""

import ssl

from attrs import evolve, frozen

from mdserver.server.server import Server
from mdserver.server.settings import ServerSettings
from mdserver.server.tls import KeyStore
from tests.server.serving import LOOPBACK


@frozen
class Layer:
    """What clients speak over; without a context that is TCP alone."""

    context: ssl.SSLContext | None = None
    store: KeyStore | None = None

    def settings(self, settings: ServerSettings) -> ServerSettings:
        """The same settings, with a listener of this kind."""
        if self.store is None:
            return settings
        return evolve(settings, listen_encrypted=LOOPBACK, key_store=self.store)

    def port(self, server: Server) -> int:
        """The port of that listener."""
        start = "http://" if self.context is None else "https://"
        (url,) = [url for url in server.urls if url.startswith(start)]
        return int(url.rpartition(":")[2])
