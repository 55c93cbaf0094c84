"""Serves the files of the JavaScript client (docs/javascript.md).

The files of this server's version are below `/client/`, and again below a path with the version,
such as `/client/0.1.0/`. Browsers keep the latter for a year without asking, because files of a
version never change.
"""

import importlib.resources

from mdserver import __version__
from mdserver.codec.http import Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import text_answer

PREFIX = "/client/"
ROUTE = PREFIX + "{file}"
_JAVASCRIPT = (b"content-type", b"text/javascript; charset=utf-8")
_KEEP = (b"cache-control", b"public, max-age=31536000, immutable")
_ASK = (b"cache-control", b"no-cache")


class ClientFiles:
    """Answers with a file of the client. The files are read once; a 404 lists them."""

    def __init__(self) -> None:
        folder = importlib.resources.files("mdserver.web") / "client" / "bundle"
        self._files = {file.name: file.read_bytes() for file in folder.iterdir()}

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return the file that the path names."""
        version, _, name = request.path.removeprefix(PREFIX).rpartition("/")
        body = self._files.get(name)
        if body is None or version not in {"", __version__}:
            there = ", ".join(f"{PREFIX}{__version__}/{name}" for name in sorted(self._files))
            return text_answer(f"There are {there}.\n", 404)
        return Answer(200, (_JAVASCRIPT, _KEEP if version else _ASK), body)
