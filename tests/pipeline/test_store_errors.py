"""What an object store refuses is one line that says what to look at."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
PATIENCE_S = 60.0
SOON_S = 1.0
"""How long a request may take that gets no answer."""
AZURE_BODY = (
    '<?xml version="1.0" encoding="utf-8"?><Error><Code>{}</Code><Message>It says why.\n'
    "RequestId:19cf4a2b-001e\nTime:2026-11-23T16:00:00.0Z</Message></Error>"
)
EMPTY = "<html><body>Forbidden</body></html>"


@define
class Refusal:
    """What a store answers to every request."""

    address: str
    status: int = 403
    body: str = EMPTY
    silent: bool = False

    def says(self, code: str, message: str, status: int = 403) -> None:
        """Let it answer as S3 does."""
        self.status = status
        self.body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


@pytest.fixture
def refusal() -> Iterator[Refusal]:
    """A store that refuses; the environment has its address until the end of the test."""
    told = Refusal("")
    over = threading.Event()

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if told.silent:
                over.wait(PATIENCE_S)
            self.send_response(told.status)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client has gone
                self.wfile.write(told.body.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        told.address = f"http://127.0.0.1:{server.server_port}"
        with environment(**addressed(told.address)):
            yield told
    finally:
        over.set()
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


def azure(address: str, **credentials: str) -> dict[str, str]:
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": "fleet",
        "AZURE_STORAGE_ENDPOINT": address,
        "AZURE_ALLOW_HTTP": "true",
        **(credentials or {"AZURE_STORAGE_ACCOUNT_KEY": "aHVudGVyMg=="}),
    }


def refused(uri: str = "s3://fleet/x", request_s: float = PATIENCE_S) -> str:
    with pytest.raises(PipelineError) as raised:
        RemoteStore(uri, request_s=request_s, retry_s=0.1).check()
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
        ("http://127.0.0.1:1", "true", "Connection refused: look at AWS_ENDPOINT_URL, and whether"),
        ("http://127.0.0.1:1", "false", "an address of http:// needs AWS_ALLOW_HTTP=true"),
        (f"http://admin:{SECRET}@127.0.0.1:1", "true", "Connection refused: look at AWS_ENDPOINT"),
    ],
)
def test_an_address_without_a_store(address: str, allow: str, told: str) -> None:
    with environment(**addressed(address, allow)):
        assert told in refused()
        assert told in refused_table()


def refused_table(uri: str = "s3://fleet/tables/messages", request_s: float = PATIENCE_S) -> str:
    """What the library that reads tables fails with, in one sentence."""
    options = {"timeout": f"{request_s:.0f}s", "max_retries": "1", "retry_timeout": "1s"}
    with pytest.raises(OSError, match="\n") as raised:
        DeltaTable(uri, storage_options=options)
    told = reason_of(raised.value)
    assert SECRET not in told
    assert "\n" not in told
    return told


def test_a_store_that_refuses_while_tables_are_read(refusal: Refusal) -> None:
    """The library that reads them has an error of its own, in many lines."""
    refusal.says("ExpiredToken", "It has expired.", 400)
    assert refused_table() == (
        "ExpiredToken: It has expired: get new credentials, with AWS_SESSION_TOKEN"
    )


@pytest.mark.parametrize("body", ["", EMPTY])
def test_a_proxy_without_a_store(refusal: Refusal, body: str) -> None:
    refusal.status, refusal.body = 502, body
    assert refused().endswith("/fleet: 502 Bad Gateway")
    assert refused_table().endswith("/_delta_log/_last_checkpoint: 502 Bad Gateway")


def test_a_store_that_does_not_answer(refusal: Refusal) -> None:
    refusal.silent = True
    told = "/fleet: timed out: AWS_TIMEOUT gives it more time"
    assert refused(request_s=SOON_S).endswith(told)
    assert refused_table(request_s=SOON_S).endswith(": timed out: AWS_TIMEOUT gives it more time")


def test_a_name_that_is_unknown() -> None:
    told = "failed to lookup address information: "
    with environment(**addressed("http://store.invalid"), no_proxy="*"):
        assert f"GET http://store.invalid/fleet: {told}" in refused()
        assert f"/_delta_log/_last_checkpoint: {told}" in refused_table()


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("AuthenticationFailed", 403, "look at AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY"),
        ("ContainerNotFound", 404, "make it, or look at its name and at AZURE_STORAGE_ACCOUNT_"),
        ("AuthorizationPermissionMismatch", 403, "these credentials lack a right there"),
    ],
)
def test_what_azure_answers(refusal: Refusal, code: str, status: int, told: str) -> None:
    refusal.status, refusal.body = status, AZURE_BODY.format(code)
    with environment(**azure(refusal.address)):
        assert refused("az://fleet/x").startswith(f"az://fleet/x: {code}: It says why: {told}")
        assert "AWS" not in (table := refused_table("az://fleet/tables"))
        assert table.startswith(f"{code}: It says why: ")


def test_the_signature_of_an_address_is_not_repeated(refusal: Refusal) -> None:
    with environment(**azure(refusal.address, AZURE_STORAGE_SAS_KEY=f"sv=2022-11-02&sig={SECRET}")):
        assert "403 Forbidden: these credentials lack" in refused("az://fleet/x")
        assert "403 Forbidden: these credentials lack" in refused_table("az://fleet/tables")
    text = f"Generic HTTP error: https://a:{SECRET}@host/path?sig={SECRET} is odd"
    assert store_reason(text) == "Generic HTTP error: https://host/path is odd"


def test_an_unknown_provider_is_given_no_variable() -> None:
    text = "Error performing GET http://x/y in 1s - HTTP error: error sending request"
    told = "GET http://x/y: error sending request: look at its address, and whether it is http"
    assert store_reason(text).startswith(told)
    assert "look at AZURE_STORAGE_ACCOUNT_NAME" in store_reason(text, "abfss")


def test_what_is_no_error_of_a_store() -> None:
    assert not is_of_store("Generic LocalFileSystem error: Unable to open file")
    assert not is_of_store("Generic delta kernel error: No files in log segment")
    assert not is_of_store("Generic DeltaTable error: Version 401 is gone")
    assert not is_of_store("<Code>7</Code>")
    assert store_reason("Version 401 is gone") == "Version 401 is gone"
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
