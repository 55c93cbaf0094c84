"""The JavaScript client in Node, against servers in processes of their own."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.live_cluster import LiveCluster
from tests.live import live_server, post
from tests.web.programs import CLIENT, SOCKETS, program

Node = Callable[..., str]
DOCUMENT = Path(__file__).parents[2] / "docs" / "javascript.md"
TOKEN = (sys.executable, "-m", "mdserver.cli.main", "token")

pytestmark = pytest.mark.slow


def test_what_the_client_promises(tmp_path: Path, node: Node) -> None:
    with live_server(tmp_path) as server:
        environment = {"MDSERVER": f"127.0.0.1:{server.port}"}
        told = node(
            SOCKETS, "--test", "--test-reporter=tap", "live.test.mjs", environment=environment
        )
    assert "# fail 0" in told


def test_tabs_that_share_a_connection(tmp_path: Path, node: Node) -> None:
    with live_server(tmp_path) as server:
        environment = {"MDSERVER": f"127.0.0.1:{server.port}"}
        told = node(
            SOCKETS, "--test", "--test-reporter=tap", "shared.test.mjs", environment=environment
        )
    assert "# fail 0" in told


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_member_dies_under_load(tmp_path: Path, node: Node, transport: str) -> None:
    with (
        LiveCluster(tmp_path, 3) as cluster,
        program("follower.mjs", transport, *cluster.clients) as follower,
    ):
        for _ in range(3):
            before = follower.until("progress")["seen"]
            member = cluster.clients.index(follower.latest["connected"]["server"])
            cluster.processes[member].send_signal(signal.SIGKILL)
            cluster.processes[member].wait()
            while follower.until("progress")["seen"] < before + 500:
                pass
            cluster.start(member)
            cluster.wait_ready(member)
        follower.tell("end")
        end = follower.until("end")
    assert end["published"] == end["seen"] > 1500
    assert end["failed"] == end["missing"] == end["repeated"] == end["outOfOrder"] == 0


def test_a_token_is_renewed_in_band_and_after_its_end(tmp_path: Path, node: Node) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef", encoding="utf-8")
    secret.chmod(0o600)
    settings = (
        "Listen=127.0.0.1:0",
        "Entitlement=JWT",
        f"EntitlementJWT.HmacSecretFile={secret}",
        "EntitlementJWT.RenewTokenBeforeSeconds=18",
    )
    arguments = [word for setting in settings for word in ("--set", setting)]

    def token(lasting: str) -> str:
        made = subprocess.run(
            [*TOKEN, "--all", "/a/**", "--expires", lasting, "--secret-file", secret],
            check=True,
            capture_output=True,
            text=True,
        )
        return made.stdout.strip()

    with (
        live_server(tmp_path, *arguments) as server,
        program("renewing.mjs", f"127.0.0.1:{server.port}") as client,
    ):
        assert client.told() == {"kind": "token wanted"}
        client.tell(token("20s"))
        assert client.until("connected")
        assert client.until("token wanted")
        client.tell(token("10s"))
        assert client.until("status")["status"] == "TOKEN_UPDATED"
        assert client.until("token wanted")
        client.tell("none")
        assert client.until("status")["status"] == "TOKEN_INVALID"
        while client.until("status")["status"] != "SERVER_DOWN":
            pass
        client.tell(token("1h"))
        assert client.until("published")["status"] == "PUBLISH_OK"
        assert client.until("denied")["reason"].startswith("/b/c: ")


def test_a_server_without_a_journal_begins_anew(tmp_path: Path, node: Node) -> None:
    with live_server(tmp_path) as server:
        port = server.port
        with program("watching.mjs", f"127.0.0.1:{port}") as client:
            assert client.until("subscribed")
            post(server.url, "/a/b", content="1")
            assert client.until("message")["content"] == "1"
            server.process.kill()
            server.process.wait()
            again = ("--set", f"Listen=127.0.0.1:{port}", "--set", "Entitlement=None")
            with live_server(tmp_path, *again) as second:
                told = client.until("status")
                while told["status"] != "DATA_RESYNC":
                    told = client.until("status")
                assert told["subject"] == "/a/b"
                post(second.url, "/a/b", content="2")
                assert client.until("message")["content"] == "2"


def test_the_blocks_of_the_page_run(tmp_path: Path, node: Node) -> None:
    blocks = re.findall(r"^```js\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    package = tmp_path / "node_modules" / "mdserver-client"
    package.parent.mkdir()
    package.symlink_to(CLIENT)
    with live_server(tmp_path) as server:
        text = "\n".join([*blocks, "await client.close();"])
        text = text.replace("127.0.0.1:8800", f"127.0.0.1:{server.port}")
        (tmp_path / "blocks.mjs").write_text(text, encoding="utf-8")
        told = node("--experimental-websocket", "blocks.mjs", folder=tmp_path)
    assert told.splitlines() == ["/stocks/IBM 191 { bid: '190' }", "1 2", "a long text", "12:00"]
