"""What an object store refuses is one line that says what to look at."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from attrs import define
from click.testing import CliRunner
from deltalake import DeltaTable

from mdserver.cli.main import mdserver
from mdserver.pipeline.common.object_store import RemoteStore
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.spark_errors import reason_of
from mdserver.pipeline.common.store_errors import is_of_store, store_reason
from tests.live_store import environment

pytestmark = pytest.mark.pipeline

SECRET = "hunter2"
EMPTY = "<html><body>Forbidden</body></html>"


@define
class Refusal:
    """What a store answers to every request."""

    status: int = 403
    body: str = EMPTY

    def says(self, code: str, message: str, status: int = 403) -> None:
        """Let it answer as S3 does."""
        self.status = status
        self.body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


@pytest.fixture
def refusal() -> Iterator[Refusal]:
    """A store that refuses; the environment has its address until the end of the test."""
    told = Refusal()

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(told.status)
            self.end_headers()
            self.wfile.write(told.body.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with environment(**addressed(f"http://127.0.0.1:{server.server_port}")):
            yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def addressed(address: str, allow: str = "true") -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ALLOW_HTTP": allow,
        "AWS_REGION": "us-east-1",
    }


def refused() -> str:
    with pytest.raises(PipelineError) as raised:
        RemoteStore("s3://fleet/x", request_s=1.0, retry_s=0.1).check()
    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("NoSuchBucket", 404, "make it, or look at its name and at AWS_ENDPOINT_URL"),
        ("InvalidAccessKeyId", 403, "look at AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", 403, "look at AWS_SECRET_ACCESS_KEY"),
        ("ExpiredToken", 400, "get new credentials, with AWS_SESSION_TOKEN"),
        ("AccessDenied", 403, "these credentials lack a right"),
        ("AuthorizationHeaderMalformed", 400, "look at AWS_REGION"),
    ],
)
def test_what_a_store_answers(refusal: Refusal, code: str, status: int, told: str) -> None:
    refusal.says(code, "It says why.", status)
    assert refused().startswith(f"s3://fleet/x: {code}: It says why: {told}")


def test_what_something_else_answers(refusal: Refusal) -> None:
    told = refused()
    assert told.startswith("s3://fleet/x: GET http://127.0.0.1:")
    assert "/fleet: 403 Forbidden" in told
    assert "these credentials lack a right" in told


@pytest.mark.parametrize(
    ("address", "allow", "told"),
    [
        ("http://127.0.0.1:1", "true", "GET http://127.0.0.1:1/fleet: Connection refused: look at"),
        ("http://127.0.0.1:1", "false", "an address of http:// needs AWS_ALLOW_HTTP=true"),
    ],
)
def test_an_address_without_a_store(address: str, allow: str, told: str) -> None:
    with environment(**addressed(address, allow)):
        assert told in refused()


def test_a_store_that_refuses_while_tables_are_read(refusal: Refusal) -> None:
    """The library that reads them has an error of its own, in many lines."""
    refusal.says("ExpiredToken", "It has expired.", 400)
    with pytest.raises(OSError, match="ExpiredToken") as raised:
        DeltaTable("s3://fleet/tables/messages")
    assert reason_of(raised.value) == (
        "ExpiredToken: It has expired: get new credentials, with AWS_SESSION_TOKEN"
    )


def test_what_is_no_error_of_a_store() -> None:
    assert not is_of_store("Generic LocalFileSystem error: Unable to open file")
    assert not is_of_store("Generic delta kernel error: No files in log segment")
    assert store_reason("Missing SecretAccessKey").endswith("AWS_ACCESS_KEY_ID and its secret")


@pytest.mark.parametrize(
    "words",
    [
        lambda journal: ["archive", "--shipped", "s3://fleet/x", "--tables", str(journal)],
        lambda _: ["audit", "--tables", "s3://fleet/x"],
        lambda _: ["rollup", "--tables", "s3://fleet/x"],
        lambda _: ["replay", "--tables", "s3://fleet/x", "--subject", "/**"],
    ],
)
def test_a_store_is_asked_before_spark_or_a_server(
    refusal: Refusal, tmp_path: Path, words: Callable[[Path], list[str]]
) -> None:
    refusal.says("SignatureDoesNotMatch", "It differs.")
    result = CliRunner().invoke(mdserver, ["pipeline", *words(tmp_path)])
    assert str(result.exception).startswith("s3://fleet/x: SignatureDoesNotMatch: It differs: ")
