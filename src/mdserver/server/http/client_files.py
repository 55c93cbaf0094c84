"""The JavaScript client, as every server serves it (docs/javascript.md).

Under `/client/` lie the files of this server's version, and under `/client/0.1.0/` the same ones
for pages that name the version: browsers keep those for a year without asking.
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
    """Answers with a file of the client, read once; 404 says which there are."""

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
