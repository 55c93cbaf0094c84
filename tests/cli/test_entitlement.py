"""`Entitlement = JWT` and `Custom` in a server as it is run, over WebSocket and HTTP."""

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.live import LiveServer, live_server, wait_for_line


def options(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def token(secret: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "mdserver.cli.main", "token", "--secret-file", str(secret)]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def websocket(server: LiveServer) -> ClientConnection:
    return connect(f"ws://{urlsplit(server.url).netloc}/ws")


def ask(client: ClientConnection, **command: Any) -> None:
    client.send(json.dumps(command))


def events(client: ClientConnection, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        payload = json.loads(client.recv(10))
        found += payload if isinstance(payload, list) else [payload]
    return found


def produce(server: LiveServer, subject: str, given: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    try:
        connection.request("POST", f"/rest/produce?subject={subject}&token={given}", body="x")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["status"]
    finally:
        connection.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("first secret of 32 bytes or more\n")
    return file


def test_a_token_says_what_a_client_may_do(tmp_path: Path, secret: Path) -> None:
    settings = ("Listen=127.0.0.1:0", "Entitlement=JWT", f"EntitlementJWT.HmacSecretFile={secret}")
    with live_server(tmp_path, *options(*settings)) as server:
        reader = token(secret, "--sub", "/a/**")
        writer = token(secret, "--pub", "/a/*")
        assert produce(server, "/a/b", writer) == (200, "OK")
        assert produce(server, "/a/b", reader) == (403, "DENY")
        assert produce(server, "/a/b", "") == (403, "DENY")
        with websocket(server) as client:
            ask(client, op="connect", token=reader)
            ask(client, op="subscribe", subjects=["/a/b", "/c/d"])
            found = {event.get("subject"): event for event in events(client, 4)}
            assert found["/a/b"]["content"] == "x"
            assert found["/c/d"]["status"] == "SUBSCRIBE_DENY"
        with websocket(server) as client:
            ask(client, op="connect", token="nonsense")
            assert events(client, 1)[0]["status"] == "CONNECT_DENY"
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4101


def test_keys_rotate_while_the_server_runs(tmp_path: Path, secret: Path) -> None:
    settings = ("Listen=127.0.0.1:0", "Entitlement=JWT", f"EntitlementJWT.HmacSecretFile={secret}")
    with live_server(tmp_path, *options(*settings)) as server:
        old = token(secret, "--pub", "/a/*")
        assert produce(server, "/a/b", old) == (200, "OK")
        secret.write_text("another secret of 32 bytes or more")
        server.process.send_signal(signal.SIGHUP)
        wait_for_line(server.log, "reloaded")
        assert produce(server, "/a/b", old) == (403, "DENY")
        assert produce(server, "/a/b", token(secret, "--pub", "/a/*")) == (200, "OK")
        secret.write_text("short")
        server.process.send_signal(signal.SIGHUP)
        refused = wait_for_line(server.log, "reload refused")
        assert "an HMAC secret needs 32 bytes" in str(refused["reason"])


CLASS = """
import trio
from mdserver.core.inputs import Denied, Grants

class Rights:
    async def connect(self, client, token):
        return Denied("Who are you?") if not token else True
    async def update_token(self, client, token):
        return True
    async def subscribe(self, client, subject):
        if subject == "/slow/one":
            await trio.sleep_forever()
        return subject.startswith("/open/")
    async def publish(self, client, subject):
        if subject == "/broken/one":
            raise RuntimeError("no database")
        return subject.startswith("/open/")
    async def disconnect(self, client):
        pass
"""


def test_a_class_of_the_operator_decides(tmp_path: Path) -> None:
    (tmp_path / "operators_rights.py").write_text(CLASS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    settings = (
        "Listen=127.0.0.1:0",
        "Entitlement=Custom",
        "EntitlementCustom.Deadline=100ms",
        "EntitlementCustom.Class=operators_rights:Rights",
    )
    with live_server(tmp_path, *options(*settings), environment=environment) as server:
        assert produce(server, "/open/one", "t") == (200, "OK")
        assert produce(server, "/closed/one", "t") == (403, "DENY")
        assert produce(server, "/broken/one", "t") == (403, "DENY")
        assert produce(server, "/open/one", "") == (403, "DENY")
        with websocket(server) as client:
            ask(client, op="connect", token="t")
            ask(client, op="subscribe", subjects=["/slow/one", "/closed/one", "/open/one"])
            statuses = [event for event in events(client, 5) if event["op"] == "status"]
            assert {event["subject"]: event["status"] for event in statuses} == {
                "/slow/one": "SUBSCRIBE_DENY",
                "/closed/one": "SUBSCRIBE_DENY",
                "/open/one": "SUBSCRIBE_ALLOW",
            }
    assert "RuntimeError: no database" in server.log.read_text()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["Entitlement=JWT"], "Entitlement = JWT: it needs EntitlementJWT.HmacSecretFile or"),
        (["Entitlement=Custom"], "Entitlement = Custom: it needs EntitlementCustom.Class"),
        (
            ["Entitlement=JWT", "EntitlementJWT.JwksFile=no-such-file"],
            "no-such-file: cannot be read: No such file",
        ),
        (
            ["Entitlement=Custom", "EntitlementCustom.Class=no_such_module:X"],
            "EntitlementCustom.Class = no_such_module:X: ModuleNotFoundError",
        ),
    ],
)
def test_what_is_missing_is_told_at_the_start(settings: list[str], told: str) -> None:
    command = [sys.executable, "-m", "mdserver.cli.main", "run", *options(*settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
