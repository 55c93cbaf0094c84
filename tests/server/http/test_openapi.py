"""The served OpenAPI document says what the server does; schemathesis holds it to that."""

import contextlib
import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mdserver.server.http import client_files
from mdserver.server.http.router import Router
from tests.live import LiveServer, live_server

# Their answers have no end, which a tool that waits for one cannot judge; the tests of the
# streaming paths hold them to the document's statuses and media types.
ENDLESS = ("/sse", "/stream")
ACCEPTANCE, REJECTION = "positive_data_acceptance", "negative_data_rejection"
NOT_PRODUCE = ("--exclude-path", "/rest/produce")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("openapi")) as running:
        yield running


def document(server: LiveServer) -> dict[str, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/openapi.json")
        answer = connection.getresponse()
        assert answer.headers["content-type"] == "application/json"
        loaded: dict[str, dict[str, object]] = json.load(answer)
        return loaded


def test_every_path_is_described(server: LiveServer) -> None:
    served = {
        (path, method.lower())
        for path, methods in Router().routes.items()
        for method in methods
        if path not in {"/openapi.json", *client_files.routes()}
    }
    described = {
        (path, method)
        for path, methods in document(server)["paths"].items()
        for method in methods  # type: ignore[attr-defined]
    }
    assert described == served


@pytest.mark.slow
@pytest.mark.parametrize(
    "checks",
    [
        ["--checks", "all", "--exclude-checks", f"{ACCEPTANCE},{REJECTION}"],
        # OpenAPI cannot say that /rest/consume takes `history` or a whole position, nor that a
        # body of JSON is content for /rest/produce when the subject is in the query.
        ["--checks", ACCEPTANCE, "--exclude-path", "/rest/consume", *NOT_PRODUCE],
        ["--checks", REJECTION, *NOT_PRODUCE],
    ],
    ids=["answers", "acceptance", "rejection"],
)
def test_schemathesis_finds_nothing(server: LiveServer, tmp_path: Path, checks: list[str]) -> None:
    excluded = [part for path in ENDLESS for part in ("--exclude-path", path)]
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
            *("--max-examples", "30", "--seed", "1", "--no-color", "--request-timeout", "10"),
            *("--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all"),
            *("--generation-database", "none", *checks, *excluded),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert not re.search(r"\b0 generated", run.stdout)
    assert " generated, " in run.stdout, run.stdout
