"""Paths, methods and health."""

from mdserver.server.http.router import Router
from tests.server.http.test_rest import Http, http
from tests.server.raw import connected
from tests.server.serving import port_of, serving


async def test_an_unknown_path_names_those_there_are() -> None:
    async with http() as ask:
        status, _, body = await ask("GET", "/nothing")
        assert status == 404
        assert b"/rest/produce" in body


async def test_another_method_names_those_there_are() -> None:
    async with http() as ask:
        status, headers, _ = await ask("GET", "/rest/produce")
        assert (status, headers["allow"]) == (405, "POST")
        status, headers, _ = await ask("DELETE", "/snapshot")
        assert (status, headers["allow"]) == (405, "GET, HEAD")


async def test_head_is_get_without_the_body() -> None:
    async with http() as ask:
        _, expected, body = await ask("GET", "/")
        status, headers, nothing = await ask("HEAD", "/")
        assert (status, nothing) == (200, b"")
        assert headers["content-length"] == expected["content-length"] == str(len(body))
        assert b"<html" in body.lower()


async def test_health() -> None:
    reason = None
    async with (
        serving(handler=Router(lambda: reason)) as server,
        connected(port_of(server)) as client,
    ):
        ask = Http(client)
        assert (await ask("GET", "/health/live"))[::2] == (200, b"live\n")
        assert (await ask("GET", "/health/ready"))[::2] == (200, b"ready\n")
        reason = "no quorum"
        assert (await ask("GET", "/health/ready"))[::2] == (503, b"no quorum\n")
        assert (await ask("GET", "/health/live"))[0] == 200


async def test_a_path_stands_for_itself_alone() -> None:
    async with http() as ask:
        for path in ("/rest%2fproduce", "/rest/%70roduce", "/%ff", "/rest//produce", "/./snapshot"):
            assert (await ask("POST", path, b"x", subject="/a/b"))[0] == 404
