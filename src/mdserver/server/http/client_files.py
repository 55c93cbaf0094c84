"""Serves files of the package `mdserver.web`: the JavaScript client, and pages for people.

The client (docs/javascript.md) is below `/client/`, and again below a path with the version of this
server, such as `/client/0.2.0/`. Browsers keep the latter for a year without asking, because files
of a version never change. The demos are below `/demo/`, the welcome page is at `/`, and
`/overview/` is for looking at what members publish of themselves (docs/monitoring.md, "Messages").
"""

import importlib.resources
from collections.abc import Sequence
from importlib.resources.abc import Traversable

from mdserver import __version__
from mdserver.codec.http import CONTENT_POLICY, Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import Path, text_answer

CLIENT = "/client/"
DEMO = "/demo/"
OVERVIEW = "/overview/"
PREFIXES = (CLIENT, DEMO, OVERVIEW)
OF_DASHBOARD = ("dashboard.css", "dom.js", "kafka.js", "live.js", "plots.js")
"""The files that the overview has in common with the dashboard of the monitor."""
INDEX = "index.html"
_WELCOME = {"/": "welcome.html", "/welcome.css": "welcome.css", "/welcome.js": "welcome.js"}
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "json": b"application/json",
}
_KEEP = (b"cache-control", b"public, max-age=31536000, immutable")
_ASK = (b"cache-control", b"no-cache")
# The pages load scripts and styles only as files from this server. None is inline, so the policy
# can forbid inline ones, and an injected one does not run (CSP Level 3).
_OWN_FILES = (
    CONTENT_POLICY,
    (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
)
# A worker has the policy that its file comes with, whatever page starts it. That of tabs that share
# a connection (docs/javascript.md) loads its parts from here, and goes to any member.
_WORKER = "worker.js"
_OWN_FILES_AND_SERVERS = (
    CONTENT_POLICY,
    b"default-src 'none'; script-src 'self'; connect-src http: https: ws: wss:",
)


def web() -> Traversable:
    """Return the folder with all files that are served."""
    return importlib.resources.files("mdserver.web")


def answer_of(file: Traversable, *, kept: bool = False) -> Answer:
    """Return an answer with a file; with `kept` browsers keep it without asking again."""
    headers = (
        (b"content-type", _TYPES[file.name.rpartition(".")[2]]),
        _OWN_FILES_AND_SERVERS if file.name == _WORKER else _OWN_FILES,
        _KEEP if kept else _ASK,
    )
    return Answer(200, headers, file.read_bytes())


class OneFile:
    """Answers with one file, which is read once."""

    def __init__(self, *path: str) -> None:
        self._answer = answer_of(web().joinpath(*path))

    async def __call__(self, _request: Request, _exchange: Exchange) -> Answer:
        """Return the file."""
        return self._answer


class Folder:
    """Answers with a file of a folder. The files are read once; a 404 lists them.

    With `versioned` each file is also served below the version of this server; browsers keep that
    one. `more` are files of other folders.
    """

    def __init__(
        self, prefix: str, *path: str, versioned: bool = False, more: Sequence[Traversable] = ()
    ) -> None:
        folder = web().joinpath(*path)
        files = [*more, *(file for file in folder.iterdir() if file.is_file())]
        self._answers = {prefix + file.name: answer_of(file) for file in files}
        if versioned:
            for file in files:
                name = f"{prefix}{__version__}/{file.name}"
                self._answers[name] = answer_of(file, kept=True)
        listed = ", ".join(sorted(self._answers))
        if index := self._answers.get(prefix + INDEX):
            self._answers[prefix] = index
        self._missing = text_answer(f"There are {listed}.\n", 404)

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return the file that the path names."""
        return self._answers.get(request.path, self._missing)


def route_below(prefix: str) -> str:
    """Return the route of all paths with a prefix."""
    return prefix + "{file}"


def routes() -> dict[str, dict[str, Path]]:
    """Return the routes of all files."""
    folders = {
        CLIENT: Folder(CLIENT, "client", "bundle", versioned=True),
        DEMO: Folder(DEMO, "demo"),
        OVERVIEW: Folder(
            OVERVIEW,
            "overview",
            more=[web().joinpath("dashboard", name) for name in OF_DASHBOARD],
        ),
    }
    return {
        **{route_below(prefix): {"GET": folder} for prefix, folder in folders.items()},
        **{path: {"GET": OneFile("pages", name)} for path, name in _WELCOME.items()},
    }
