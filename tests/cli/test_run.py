"""`mdserver run` as a process: the ready line, its end, and what keeps it from starting."""

import http.client
import json
import os
import pwd
import re
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import connect

from tests.live import LiveServer, live_server, post, wait_for_line
from tests.server.certificates import make_certificate

IPV6 = socket.has_ipv6


def failed_run(*arguments: str, under: tuple[str, ...] = ()) -> tuple[int, str]:
    done = subprocess.run(
        [*under, sys.executable, "-m", "mdserver.cli.main", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def events_in(log: Path) -> list[str]:
    """The events of a log, but for one that depends on the limit of open files."""
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    return [event for event in events if event != "fewer connections"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with live_server(tmp_path) as server:
        assert post(server.url, "/a/b")["status"] == "OK"
        server.process.send_signal(number)
        assert server.process.wait(20) == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""
    # What is to be seen to is that it allows everything to pages of all origins.
    assert events_in(server.log)[:3] == ["see to this", "ready", "ending"]


def test_the_ready_line_names_every_listener(tmp_path: Path) -> None:
    listen = "127.0.0.1:0, 127.0.0.2:0" + (", [::1]:0" if IPV6 else "")
    with live_server(tmp_path, "--set", f"Listen={listen}", "--set", "Entitlement=None") as server:
        hosts = [urlsplit(url).hostname for url in server.urls]
        assert hosts == ["127.0.0.1", "127.0.0.2", *(["::1"] if IPV6 else [])]
        for url in server.urls:
            assert post(url, "/a/b")["status"] == "OK"


def test_without_a_file_only_the_configured_token_publishes(tmp_path: Path) -> None:
    with live_server(tmp_path, "--set", "Listen=127.0.0.1:0") as server:
        refused = post(server.url, "/a/b")
        assert refused["status"] == "DENY"
        assert "EntitlementAllowToken" in refused["reason"]
    environment = {**os.environ, "MDSERVER_ENTITLEMENTALLOWTOKEN": "s3cret"}
    with live_server(tmp_path, "--set", "Listen=127.0.0.1:0", environment=environment) as server:
        assert post(server.url, "/a/b")["status"] == "DENY"
        assert post(server.url, "/a/b", "s3cret")["status"] == "OK"
    assert "s3cret" not in server.log.read_text()


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with live_server(tmp_path) as server:
        status, told = failed_run("--set", f"Listen=127.0.0.1:{server.port}")
    assert status == 1
    assert told.startswith(
        f"mdserver: Cannot listen on 127.0.0.1:{server.port}: Address already in"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--config", "no-such-file.conf"], 2, r"no-such-file\.conf: cannot be read: No such file"),
        (["--set", "Lisen=*"], 2, r"--set: Lisen: no such parameter; .* Listen$"),
        (["--set", "Listen=no.such.host.invalid:1"], 1, r"mdserver: Cannot listen on no\.such"),
        (["--set", "LogFolder=/dev/null/x"], 1, r"mdserver: LogFolder = /dev/null/x: "),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(
    arguments: list[str], status: int, told: str
) -> None:
    found, line = failed_run(*arguments)
    assert found == status
    assert re.match(told, line, re.MULTILINE)
    assert line.count("\n") == 1


def test_all_that_keeps_it_from_starting_is_named_at_once() -> None:
    sets = {
        "Extension.Presence": "true",
        "Extension.Presence.Class": "no_such_module:Hook",
        "ListenEncrypted": "127.0.0.1:0",
        "KeyStore": "/no/chain.pem, /no/key.pem",
        "Entitlement": "JWT",
        "EntitlementJWT.HmacSecretFile": "/no/secret",
    }
    settings = [f"{name}={value}" for name, value in sets.items()]
    status, told = failed_run(*(part for one in settings for part in ("--set", one)))
    assert status in (1, 2)
    assert sorted(
        about
        for line in told.splitlines()
        for about in ("/no/chain.pem", "/no/secret", "no_such_module:Hook")
        if about in line
    ) == ["/no/chain.pem", "/no/secret", "no_such_module:Hook"], told


def test_a_port_without_permission_is_one_line() -> None:
    under = ("setpriv", "--bounding-set=-net_bind_service") if os.geteuid() == 0 else ()
    status, told = failed_run("--set", "Listen=127.0.0.1:1", under=under)
    assert status == 1
    hint = "ports below 1024 are for root, who may start a server with RunAsUser"
    assert told == f"mdserver: Cannot listen on 127.0.0.1:1: Permission denied ({hint})\n"


def test_the_log_folder_gets_the_log(tmp_path: Path) -> None:
    with live_server(
        tmp_path, "--set", "Listen=127.0.0.1:0", "--set", f"LogFolder={tmp_path / 'logs'}"
    ) as server:
        pass
    assert server.log.read_text() == ""
    assert events_in(tmp_path / "logs" / "mdserver.log")[:2] == ["ready", "ending"]


def test_sighup_takes_what_can_change_and_names_what_cannot(tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text("Listen = 127.0.0.1:0\nEntitlementAllowToken = old\n")
    with live_server(tmp_path, "--config", str(file)) as server:
        assert post(server.url, "/a/b", "new")["status"] == "DENY"
        file.write_text(
            "Listen = 127.0.0.1:0\nEntitlementAllowToken = new\nMaxSubjects = 5\nLogLevel = debug\n"
        )
        server.process.send_signal(signal.SIGHUP)
        line = wait_for_line(server.log, "reloaded")
        assert line["taken"] == ["EntitlementAllowToken", "LogLevel"]
        assert line["needs_restart"] == ["MaxSubjects"]
        assert post(server.url, "/a/b", "new")["status"] == "OK"
        assert post(server.url, "/a/b", "old")["status"] == "DENY"
        file.write_text("Lisen = 127.0.0.1:0\n")
        server.process.send_signal(signal.SIGHUP)
        line = wait_for_line(server.log, "reload refused")
        assert line["reason"] == (
            f"{file}:1: Lisen: no such parameter; the nearest known name is Listen"
        )
        assert post(server.url, "/a/b", "new")["status"] == "OK"


def test_publishing_is_refused_from_addresses_that_are_not_listed(tmp_path: Path) -> None:
    settings = ("Listen=127.0.0.1:0", "Entitlement=None", "PublishAllowFromAddressList=10.0.0.0/8")
    arguments = [word for setting in settings for word in ("--set", setting)]
    with live_server(tmp_path, *arguments) as server:
        refused = post(server.url, "/a/b")
        assert refused["status"] == "DENY"
        assert "PublishAllowFromAddressList" in refused["reason"]


def test_audit_logs_say_what_sessions_did(tmp_path: Path) -> None:
    settings = (
        "Listen=127.0.0.1:0",
        "Entitlement=None",
        f"LogFolder={tmp_path / 'logs'}",
        "NodeName=n1",
        "Extension.Audit.Access=true",
        "Extension.Presence=true",
    )
    arguments = [word for setting in settings for word in ("--set", setting)]
    with live_server(tmp_path, *arguments) as server, connect(f"ws{server.url[4:]}/ws") as client:
        client.send(json.dumps({"op": "subscribe", "subjects": ["/a/*"]}))
        joined = wait_for_line(tmp_path / "logs" / "audit-presence.log", "join")
        assert joined["subject"] == "/a/*"
        assert joined["address"] == "127.0.0.1"
        assert joined["node"] == "n1"
    lines = (tmp_path / "logs" / "audit-access.log").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["connect", "subscribe", "disconnect"]


@pytest.mark.slow
def test_statistics_are_written_periodically(tmp_path: Path) -> None:
    settings = (
        "Listen=127.0.0.1:0",
        "Entitlement=None",
        f"LogFolder={tmp_path / 'logs'}",
        "Extension.Audit.Stats=true",
        "Stats.LogInterval=5",
    )
    arguments = [word for setting in settings for word in ("--set", setting)]
    with live_server(tmp_path, *arguments) as server, connect(f"ws{server.url[4:]}/ws") as client:
        client.send(json.dumps({"op": "subscribe", "subjects": ["/a/b", "/a/*"]}))
        assert post(server.url, "/a/b")["status"] == "OK"
        line = wait_for_line(tmp_path / "logs" / "audit-stats.log", '"stats"')
    assert (line["sessions"], line["subscriptions"], line["subjects"]) == (1, 2, 1)
    assert (line["cached_messages"], line["messages_out_total"]) == (1, 1)
    assert line["connections_total"] == 2
    assert line["bytes_in_total"] > 100
    assert line["bytes_out_total"] > 100


def common_name(server: LiveServer) -> str:
    """Whose certificate the server shows to a client that trusts it."""
    host, port = urlsplit(server.url).hostname, server.port
    context = ssl.create_default_context(cafile=str(server.log.parent / "cert.pem"))
    with (
        socket.create_connection((host, port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        certificate = encrypted.getpeercert()
    assert certificate
    return str(dict(part[0] for part in certificate["subject"])["commonName"])


def test_an_encrypted_listener_takes_a_new_certificate(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path / "cert.pem", "first")
    settings = ("Listen=", "ListenEncrypted=127.0.0.1:0", f"KeyStore={pem}")
    arguments = [word for setting in settings for word in ("--set", setting)]
    with live_server(tmp_path, *arguments) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert common_name(server) == "first"
        make_certificate(pem, "second")
        server.process.send_signal(signal.SIGHUP)
        wait_for_line(server.log, "reloaded")
        assert common_name(server) == "second"
        pem.write_text("nothing")
        server.process.send_signal(signal.SIGHUP)
        refused = wait_for_line(server.log, "reload refused")
        assert str(pem) in str(refused["reason"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_becomes_another_user_before_the_first_client(tmp_path: Path) -> None:
    settings = ("Listen=127.0.0.1:0", "Entitlement=None", "RunAsUser=nobody")
    arguments = [word for setting in settings for word in ("--set", setting)]
    with live_server(tmp_path, *arguments) as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        nobody = pwd.getpwnam("nobody")
        assert f"Uid:{4 * f'{chr(9)}{nobody.pw_uid}'}\n" in status
        assert f"Gid:{4 * f'{chr(9)}{nobody.pw_gid}'}\n" in status
        assert f"Groups:\t{nobody.pw_gid} \n" in status
        assert "NoNewPrivs:\t1\n" in status
        assert post(server.url, "/a/b")["status"] == "OK"


def test_a_user_that_does_not_exist_is_one_line() -> None:
    status, told = failed_run("--set", "Listen=127.0.0.1:0", "--set", "RunAsUser=no-such-user")
    assert status == 1
    assert "no-such-user" in told
    assert told.count("\n") == 1


def own_address() -> str:
    """A loopback address at which no other process of tests looks for a server.

    A client of another test that dials the port of a server which has ended reaches a new server
    there, and would be the only connection that is allowed.
    """
    high, low = divmod(os.getpid() % 64_000, 250)
    return f"127.64.{high}.{low + 1}"


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
def test_a_server_at_its_limit_of_connections_is_alive(tmp_path: Path, encrypted: bool) -> None:
    pem = make_certificate(tmp_path / "cert.pem")
    trusting = ssl.create_default_context(cafile=str(pem))
    trusting.check_hostname = False  # the certificate is not of this address
    host = own_address()
    listen: tuple[str, ...] = (f"Listen={host}:0",)
    if encrypted:
        listen = ("Listen=", f"ListenEncrypted={host}:0", f"KeyStore={pem}")
    settings = (*listen, "Entitlement=None", "MaxConnections=1")
    arguments = [word for setting in settings for word in ("--set", setting)]
    with (
        live_server(tmp_path, *arguments) as server,
        connect(f"ws{server.url[4:]}/ws", ssl=trusting if encrypted else None),
    ):
        strangers = [socket.create_connection((host, server.port)) for _ in range(200)]
        found = {}
        paths = ("/health/live", "/health/ready", "/snapshot?subject=/a/b", "/", "/health/none")
        for path in paths:
            where = urlsplit(server.url).netloc
            connection = http.client.HTTPConnection(where, timeout=30)
            if encrypted:
                connection = http.client.HTTPSConnection(where, timeout=30, context=trusting)
            connection.request("GET", path)
            answer = connection.getresponse()
            found[path] = answer.status
            if answer.status == 503:
                assert answer.headers["Retry-After"] == "5"
                assert b"which is all that is allowed" in answer.read()
            connection.close()
        assert list(found.values()) == [200, 200, 503, 503, 404]
        for stranger in strangers:
            stranger.close()


def test_fewer_connections_than_asked_for_are_told() -> None:
    under = ("prlimit", "--nofile=300:300")
    told = "MaxConnections = 5000: this process may open only 300 files, so it takes at most 172 "
    arguments = ("--set", "MaxConnections=5000", "--set", "Listen=no.such.host.invalid:1")
    status, found = failed_run(*arguments, under=under)
    assert status == 1
    assert told in found
    assert f"warning: {told}" in check_config(*arguments, under=under).stderr


def test_the_limit_of_open_files_stands_beside_the_default_of_connections(tmp_path: Path) -> None:
    """It is no warning: nobody asked for as many as the default allows."""
    under = ("prlimit", "--nofile=15000:15000")
    with live_server(tmp_path, "--set", "Listen=127.0.0.1:0", under=under) as server:
        line = wait_for_line(server.log, "fewer connections")
    assert (line["level"], line["connections"]) == ("info", 14872)
    assert "it takes at most 14872 connections" in str(line["reason"])
    done = check_config(under=under)
    assert done.stderr == ""
    line = next(line for line in done.stdout.splitlines() if line.startswith("MaxConnections ="))
    assert line.split("#")[1] == " default; at most 14872, for the limit of open files"
    shown = json.loads(check_config("--format", "json", under=under).stdout)
    assert shown["MaxConnections"]["effective"] == 14872


def check_config(*arguments: str, under: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*under, sys.executable, "-m", "mdserver.cli.main", "check-config", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
