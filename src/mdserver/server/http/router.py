"""Maps the paths and methods of HTTP requests to the functions that answer them."""

from collections.abc import Callable, Mapping

from mdserver.codec.http import Request, RequestRefusedError
from mdserver.codec.streaming import STREAM_PATH, PartedAnswer, StreamAnswer
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http import client_files, health, produce, rest, snapshot, sse, stream
from mdserver.server.http.answers import Path, text_answer

Methods = Mapping[str, Path]
SECRET_PATHS = STREAM_PATH + "/{secret}"


class Paths:
    """A table of paths and methods. HEAD is answered as GET; the connection omits the body."""

    def __init__(self, routes: Mapping[str, Methods]) -> None:
        self.routes = dict(routes)

    def add(self, path: str, methods: Methods) -> None:
        """Add a path with the function for each method."""
        self.routes[path] = methods

    def route_of(self, path: str) -> str:
        """Return the route that answers a path."""
        return path

    async def __call__(
        self, request: Request, exchange: Exchange
    ) -> Answer | PartedAnswer | StreamAnswer:
        """Answer a request; a 404 lists the paths, a 405 the methods."""
        methods = self.routes.get(self.route_of(request.path))
        if methods is None:
            return text_answer(f"There are {', '.join(self.routes)}.\n", 404)
        path = methods.get("GET" if request.method == "HEAD" else request.method)
        if path is not None:
            try:
                return await path(request, exchange)
            except RequestRefusedError as error:
                return text_answer(error.reason + "\n", error.status)
        allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        answer = text_answer(f"This path takes {allowed}.\n", 405)
        return Answer(405, [*answer.headers, (b"allow", allowed.encode())], answer.body)


class Router(Paths):
    """The paths for clients: everything that is served over HTTP."""

    def __init__(
        self,
        unready: Callable[[], str | None] = health.nothing,
        warning: Callable[[], str | None] = health.nothing,
    ) -> None:
        super().__init__(
            {
                "/rest/produce": {"POST": produce.produce},
                "/rest/consume": {"GET": rest.consume},
                "/snapshot": {"GET": snapshot.snapshot},
                "/sse": {"GET": sse.sse},
                STREAM_PATH: {"POST": stream.open_stream},
                SECRET_PATHS: {"POST": stream.give_commands},
                "/health/live": {"GET": health.live},
                "/health/ready": {"GET": health.Ready(unready, warning)},
                "/openapi.json": {"GET": client_files.OneFile("openapi.json")},
                **client_files.routes(),
            }
        )

    def route_of(self, path: str) -> str:
        """Return the route: one for all secret paths of streams, one for the files of a folder."""
        for prefix in client_files.PREFIXES:
            if path.startswith(prefix):
                return client_files.route_below(prefix)
        return SECRET_PATHS if path.startswith(STREAM_PATH + "/") else path
