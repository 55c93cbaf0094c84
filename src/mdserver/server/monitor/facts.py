"""`/configuration` and `/version` of the monitor: the settings and the versions of this server."""

import platform
from collections.abc import Callable

from mdserver import __version__
from mdserver.codec.http import Request
from mdserver.config import PARAMETERS, Config
from mdserver.limits import NS_PER_MS, PROTOCOL_VERSION
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.clock import Clock
from mdserver.server.http.answers import Parameters, json_answer, text_answer
from mdserver.server.monitor.pages import FORMATS


class ConfigurationPage:
    """The configuration in force; values of secret parameters are not shown."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return the name and the value of each parameter, as a configuration file has them."""
        asked = Parameters(request, ("format",))
        asked.check()
        current = self._config()
        shown = {
            name: text
            for row in PARAMETERS.values()
            for name, text in row.shown(getattr(current, row.attribute)).items()
        }
        if asked.choice("format", FORMATS, False):
            return text_answer(
                "".join(f"{name} = {text}".rstrip() + "\n" for name, text in shown.items())
            )
        return json_answer(shown)


class VersionPage:
    """The versions of the server, its protocol and Python, and how long the server runs."""

    def __init__(self, node: str, clock: Clock, clients: Callable[[], list[str]]) -> None:
        self._node = node
        self._clock = clock
        self._clients = clients
        self._started = clock()

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return the versions and the URLs of the listeners for clients, as JSON or as text."""
        asked = Parameters(request, ("format",))
        asked.check()
        facts = {
            "node": self._node,
            "version": __version__,
            "protocol": PROTOCOL_VERSION,
            "python": platform.python_version(),
            "started": self._started // NS_PER_MS,
            "running_ms": (self._clock() - self._started) // NS_PER_MS,
            "clients": self._clients(),
        }
        if asked.choice("format", FORMATS, False):
            facts["clients"] = " ".join(self._clients())
            return text_answer("".join(f"{name} {value}\n" for name, value in facts.items()))
        return json_answer(facts)
