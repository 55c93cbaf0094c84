"""The mistakes that people make first: each gets one line that leads on, and nothing hangs."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from attrs import frozen

from tests.disk.conftest import FailingDisk, disk, library  # noqa: F401 - fixtures
from tests.live import LiveServer, live_server, wait_for_line
from tests.server.certificates import make_certificate

TIMEOUT_S = 60  # for a busy machine; a command that hangs is ended, and the test fails
SECRET = "0123456789abcdef0123456789abcdef"
HOUR_S = 3600


@frozen
class Ran:
    """How a command ended; `told` are the lines of stderr."""

    status: int
    out: str
    told: list[str]


def mdserver(*words: str, **variables: str) -> Ran:
    """Run the command with variables of its own and none of those of the tests' environment."""
    clean = {name: value for name, value in os.environ.items() if "MDSERVER" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "mdserver.cli.main", *words],
        env={**clean, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return Ran(done.returncode, done.stdout, done.stderr.splitlines())


def settings(**values: object) -> list[str]:
    """Options of `mdserver run`: `_` in a name stands for a dot."""
    named = {"Listen": "127.0.0.1:0", **{n.replace("_", "."): v for n, v in values.items()}}
    return [word for name, value in named.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server where tokens decide; its log has everything."""
    folder = tmp_path_factory.mktemp("tokens")
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    arguments = settings(
        Entitlement="JWT", EntitlementJWT_HmacSecretFile=secret, LogLevel="debug", LogFormat="json"
    )
    with live_server(folder, *arguments) as server:
        yield server


def token(secret: str = SECRET, begins_s: int = 0, ends_s: int = 600, **permissions: Any) -> str:
    """Return a token whose times are that far from now."""
    now = int(time.time())
    claims = {"exp": now + ends_s, "nbf": now + begins_s, "permissions": permissions}
    return jwt.encode(claims, secret, "HS256")


def test_a_wrong_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    for words in (["pub", "/a/b", "x"], ["sub", "/a/b"], ["snapshot", "/a/b"]):
        ran = mdserver(*words, "-s", address)
        hint = "is a server running there? --server or MDSERVER_SERVER names another one"
        assert ran == Ran(
            1, "", [f"mdserver: cannot connect to {address}: Connection refused ({hint})"]
        )


def test_a_wrong_port_of_a_monitor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        monitor = f"http://127.0.0.1:{sock.getsockname()[1]}"
    hint = "does a member's monitor listen there? --monitor URL names another one"
    for words in (["status"], ["drain", "member-1"], ["add-seed", "member-4"], ["cold-start"]):
        ran = mdserver("cluster", *words, "--monitor", monitor)
        assert ran == Ran(1, "", [f"mdserver: cannot ask {monitor}: Connection refused ({hint})"])


def test_a_monitor_that_is_none(with_tokens: LiveServer) -> None:
    ran = mdserver("cluster", "status", "--monitor", with_tokens.url)
    hint = "does a member's monitor listen there? --monitor URL names another one"
    assert ran == Ran(1, "", [f"mdserver: {with_tokens.url} has no /cluster/status ({hint})"])


def test_a_monitor_without_its_password(tmp_path: Path) -> None:
    arguments = settings(
        Entitlement="None",
        Monitor="HTTP",
        MonitorHTTP_Listen="127.0.0.1:0",
        MonitorPassword="s3cret",
        LogFormat="json",
    )
    with live_server(tmp_path, *arguments) as server:
        ready = wait_for_line(server.log, '"ready"')
        monitor = str(ready["monitor"][0])  # type: ignore[index]
        told = (
            f"mdserver: {monitor}: The monitor asks for its user and password. "
            "(MDSERVER_MONITORUSERNAME and MDSERVER_MONITORPASSWORD, or --credentials FILE, give "
            "them)"
        )
        user = {"MDSERVER_MONITORUSERNAME": "admin"}
        assert mdserver("cluster", "status", "--monitor", monitor) == Ran(1, "", [told])
        wrong = {**user, "MDSERVER_MONITORPASSWORD": "other"}
        ran = mdserver("cluster", "status", "--monitor", monitor, **wrong)
        assert (ran.status, len(ran.told)) == (1, 1)
        assert ran.told[0].startswith(f"mdserver: {monitor}: user or password is wrong, as the")
        right = {**user, "MDSERVER_MONITORPASSWORD": "s3cret"}
        assert mdserver("cluster", "status", "--monitor", monitor, **right).status == 0


def test_files_that_are_not_there(tmp_path: Path) -> None:
    arguments = settings(
        ListenEncrypted="127.0.0.1:0",
        KeyStore=tmp_path / "no.pem",
        Entitlement="JWT",
        EntitlementJWT_HmacSecretFile=tmp_path / "secret",
    )
    missing = "No such file or directory"
    key_store = f"Cannot read the KeyStore {tmp_path}/no.pem: {missing}"
    secret = f"EntitlementJWT.HmacSecretFile = {tmp_path}/secret: cannot be read: {missing}"
    ran = mdserver("check-config", *arguments)
    assert (ran.status, ran.told) == (2, [key_store, secret])


def test_a_host_that_nobody_knows() -> None:
    ran = mdserver("pub", "/a/b", "x", "-s", "nobody.invalid")
    assert ran.status == 1
    assert len(ran.told) == 1
    assert "cannot connect to nobody.invalid:80: " in ran.told[0]
    assert "Errno" not in ran.told[0]


def test_a_port_where_something_else_listens(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path / "cert.pem")
    arguments = settings(
        Entitlement="None",
        ListenEncrypted="127.0.0.1:0",
        KeyStore=pem,
        Monitor="HTTP",
        MonitorHTTP_Listen="127.0.0.1:0",
    )
    with live_server(tmp_path, *arguments) as server:
        ready = wait_for_line(server.log, '"ready"')
        monitor = str(ready["monitor"][0])  # type: ignore[index]
        ran = mdserver("pub", "/a/b", "x", "-s", monitor)
        assert ran.status == 1
        assert len(ran.told) == 1
        assert "the server answered HTTP 404" in ran.told[0]
        ran = mdserver("pub", "/a/b", "x", "-s", server.urls[1].replace("https", "http"))
        assert ran.status == 1
        assert len(ran.told) == 1
        assert "cannot connect to" in ran.told[0]


def test_a_certificate_of_an_own_authority(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path / "cert.pem")
    arguments = settings(
        Entitlement="None", Listen="", ListenEncrypted="127.0.0.1:0", KeyStore=pem, LogLevel="debug"
    )
    with live_server(tmp_path, *arguments) as server:
        ran = mdserver("pub", "/a/b", "x", "-s", server.url)
        assert ran.status == 1
        assert len(ran.told) == 1
        assert "certificate" in ran.told[0]
        assert "(--ca FILE names the authority of its certificate)" in ran.told[0]
        refused = wait_for_line(server.log, "client refused")
        assert (refused["address"], refused["status"]) == ("127.0.0.1", "no TLS connection")
        assert mdserver("pub", "/a/b", "x", "-s", server.url, "--ca", str(pem)) == Ran(0, "", [])
        bare = server.url.removeprefix("https://")
        assert mdserver("snapshot", "/a/b", "-s", bare, "--ca", str(pem)).out == "x\n"
        ran = mdserver("pub", "/a/b", "x", "-s", f"http://{bare}", "--ca", str(pem))
        assert ran.status == 2
        assert f"--ca is for servers with https://, not for http://{bare}" in ran.told[-1]
        (tmp_path / "no.pem").write_text("nothing")
        ran = mdserver("pub", "/a/b", "x", "-s", bare, "--ca", str(tmp_path / "no.pem"))
        assert ran.status == 2
        assert "expected certificates of authorities in PEM form" in ran.told[-1]


def test_no_token(with_tokens: LiveServer, tmp_path: Path) -> None:
    for words in (["pub", "/a/b", "x"], ["sub", "/a/b"], ["snapshot", "/a/b"]):
        ran = mdserver(*words, "-s", with_tokens.url)
        assert (ran.status, ran.out, len(ran.told)) == (1, "", 1)
        assert "Connect with a token (a JWT)." in ran.told[0]
        assert "(none was given: --token or, better, MDSERVER_TOKEN gives one)" in ran.told[0]
    with live_server(tmp_path, *settings(EntitlementAllowToken="s3cret")) as server:
        ran = mdserver("pub", "/a/b", "x", "-s", server.url)
        assert (ran.status, len(ran.told)) == (1, 1)
        assert "Only clients that connect with the token `EntitlementAllowToken`" in ran.told[0]
        assert "(none was given: --token or, better, MDSERVER_TOKEN gives one)" in ran.told[0]
        assert mdserver("pub", "/a/b", "x", "-s", server.url, "-t", "s3cret") == Ran(0, "", [])


def test_a_wrong_token_and_what_the_server_log_says(with_tokens: LiveServer) -> None:
    wrong = token(secret=SECRET[::-1], all=["/**"])
    no_token = "That is no JSON Web Token that can be used here: "
    for given, told in (
        (wrong, "The token's signature is not valid."),
        ("s3cret", f"{no_token}it has 1 part, not three with dots between them."),
        (
            "nonsense.of.mine",
            f"{no_token}a part of it cannot be read, as if it was not copied whole.",
        ),
        (wrong[3:], f"{no_token}a part of it cannot be read, as if it was not copied whole."),
    ):
        ran = mdserver("sub", "/a/b", "-s", with_tokens.url, MDSERVER_TOKEN=given)
        assert (ran.status, ran.out, len(ran.told)) == (1, "", 1)
        # Whether the server's word comes before the end of the connection decides how it begins.
        assert re.fullmatch(
            rf"mdserver: (cannot connect to \S+: )?{re.escape(told)}( \(close code 4101\))?"
            r" \(the token is what --token or MDSERVER_TOKEN gave\)",
            ran.told[0],
        ), ran.told[0]
    ran = mdserver("pub", "/a/b", "x", "-s", with_tokens.url, MDSERVER_TOKEN=wrong)
    assert (ran.status, len(ran.told)) == (1, 1)
    assert "The token's signature is not valid. (the token is what" in ran.told[0]
    line = wait_for_line(with_tokens.log, "The token's signature is not valid.")
    assert (line["level"], line["event"], line["address"]) == (
        "debug",
        "client refused",
        "127.0.0.1",
    )
    assert line["status"] == "CONNECT_DENY"
    log = with_tokens.log.read_text()
    assert wrong not in log
    assert "nonsense.of.mine" not in log


def test_a_misspelt_option() -> None:
    ran = mdserver("sub", "/a/b", "--fromat", "json")
    assert ran.status == 2
    assert "No such option '--fromat'" in ran.told[-1]
    assert "--format" in ran.told[-1]
    ran = mdserver("run", "--set", "Lisen=*:8800")
    assert ran == Ran(2, "", ["--set: Lisen: no such parameter; the nearest known name is Listen"])
    ran = mdserver("check-config", MDSERVER_SERVR="x")
    assert ran.status == 2
    assert "MDSERVER_SERVR: no such parameter" in ran.told[0]


def test_a_subject_without_a_slash(tmp_path: Path) -> None:
    with live_server(tmp_path, *settings(Entitlement="None")) as server:
        for words in (["pub", "a/b", "x"], ["sub", "a/b"], ["snapshot", "a/b"]):
            ran = mdserver(*words, "-s", server.url)
            assert (ran.status, ran.out, len(ran.told)) == (1, "", 1)
            assert "does not start with '/': subjects look like '/a/b'." in ran.told[0]
        for path in ("/snapshot", "/rest/consume"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
            connection.request("GET", f"{path}?subject=/a/**")
            answer = connection.getresponse()
            assert answer.status == 400
            assert b"subscribe to patterns, but read single subjects only" in answer.read()
            connection.close()


@pytest.mark.usefixtures("library")
def test_a_full_disk(tmp_path: Path, disk: FailingDisk) -> None:  # noqa: F811 - the fixture
    arguments = settings(
        Entitlement="None", Journal="on", JournalFolder=tmp_path / "journal", JournalFsync="commit"
    )
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        assert mdserver("pub", "/a/b", "before", "-s", server.url) == Ran(0, "", [])
        disk.fails("write ENOSPC -1 */journal/*")
        for _ in range(5):
            # What is committed when the disk is full may be taken still.
            ran = mdserver("pub", "/a/b", "x", "-s", server.url)
            if ran.status:
                break
        assert (ran.status, ran.out, len(ran.told)) == (1, "", 1)
        assert "PUBLISH_FAILED" in ran.told[0]
        assert "No space left on device" in ran.told[0]
        assert mdserver("snapshot", "/a/b", "-s", server.url).status == 0
        disk.works()


def test_no_permission(with_tokens: LiveServer) -> None:
    reader, writer = token(sub=["/a/**"]), token(pub=["/a/**"])
    ran = mdserver("pub", "/a/b", "x", "-s", with_tokens.url, "-t", reader)
    assert (ran.status, len(ran.told)) == (1, 1)
    assert "PUBLISH_DENIED: The token does not allow publishing to '/a/b'." in ran.told[0]
    line = wait_for_line(with_tokens.log, '"PUBLISH_DENIED"')
    assert (line["event"], line["subject"]) == ("client refused", "/a/b")
    for words in (["sub", "/a/b"], ["snapshot", "/a/b"], ["snapshot", "/a/**"]):
        ran = mdserver(*words, "-s", with_tokens.url, "-t", writer)
        assert (ran.status, len(ran.told)) == (1, 1)
        assert "The token does not allow subscribing to '/a/" in ran.told[0]


def test_a_port_in_use(tmp_path: Path) -> None:
    with live_server(tmp_path, *settings(Entitlement="None")) as server:
        ran = mdserver("run", "--set", f"Listen=127.0.0.1:{server.port}")
    where = f"127.0.0.1:{server.port}"
    hint = "another program listens there: stop it, or configure another port"
    assert ran == Ran(
        1, "", [f"mdserver: Cannot listen on {where}: Address already in use ({hint})"]
    )


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("127.0.0.1:70000", "a port is a number up to 65535"),
        ("127.0.0.1:0, 127.0.0.1:70000", "127.0.0.1:70000: a port is a number up to 65535"),
        ("127.0.0.1:http", "expected `host:port`, `*:port` or `[IPv6]:port`"),
    ],
)
def test_a_port_that_is_none(listen: str, told: str) -> None:
    ran = mdserver("run", "--set", f"Listen={listen}")
    assert ran == Ran(2, "", [f"--set: Listen = {listen}: {told}"])


def test_two_servers_with_one_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    arguments = settings(Entitlement="Basic", Journal="on", JournalFolder=journal)
    with live_server(tmp_path, *arguments) as server:
        told = (
            f"mdserver: {journal / 'messages'}: another process writes this journal: stop that "
            "server, or give each one a JournalFolder of its own"
        )
        assert mdserver("run", *arguments) == Ran(1, "", [told])
        assert server.process.poll() is None


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({"ends_s": -HOUR_S}, "The token expired 1 h 0 min ago by the server's clock (20"),
        (
            {"begins_s": HOUR_S, "ends_s": 2 * HOUR_S},
            "The token is not valid yet (`nbf`): it will be in ",
        ),
    ],
)
def test_a_clock_that_is_an_hour_off(
    with_tokens: LiveServer, times: dict[str, int], told: str
) -> None:
    given = token(all=["/**"], **times)
    for words in (["pub", "/a/b", "x"], ["sub", "/a/b"]):
        ran = mdserver(*words, "-s", with_tokens.url, "-t", given)
        assert (ran.status, ran.out, len(ran.told)) == (1, "", 1)
        assert told in ran.told[0]
        assert "by the server's clock (20" in ran.told[0]


def test_refusals_are_logged_from_sighup_on(tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text("Listen = 127.0.0.1:0\nLogFormat = json\n")
    with live_server(tmp_path, "--config", str(file)) as server:
        assert mdserver("pub", "/a/b", "x", "-s", server.url).status == 1
        assert "client refused" not in server.log.read_text()
        file.write_text("Listen = 127.0.0.1:0\nLogFormat = json\nLogLevel = debug\n")
        server.process.send_signal(signal.SIGHUP)
        wait_for_line(server.log, "reloaded")
        assert mdserver("pub", "/a/b", "x", "-s", server.url).status == 1
        line = wait_for_line(server.log, "client refused")
        assert (line["status"], line["subject"]) == ("PUBLISH_DENIED", "/a/b")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
        connection.request("POST", "/rest/produce?subject=/a/b&token=s3cret&x=1", body="x")
        assert connection.getresponse().status == 400
        connection.close()
        line = wait_for_line(server.log, '"status":400')
        assert line["address"] == "127.0.0.1"
        assert "s3cret" not in server.log.read_text()
        assert json.loads(server.log.read_text().splitlines()[-1])
