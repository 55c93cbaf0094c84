"""JMX over RMI, asked by a real JMX client as jconsole is one."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mdserver.server.monitor.jmx_bridge import SOURCE, line, told
from tests.live import LiveServer, lines_about, live_server, post, wait_for_line
from tests.server.certificates import make_certificate
from tests.server.monitor.test_statistics import arguments

PATIENCE_S = 240  # Java compiles the bridge first, and the client each time
CLIENT = Path(__file__).parent / "JmxClient.java"
SETTINGS = ("Monitor=HTTP,JMX", "MonitorJMX.Listen=127.0.0.1:0", "MonitorPassword=right")


def java(program: str) -> str:
    """The path of a program of the JDK; without it tests are skipped, and fail in CI."""
    path = shutil.which(program)
    if path is None:
        reason = f"{program} is not on the PATH (Debian: openjdk-17-jdk-headless)"
        if os.environ.get("CI"):
            pytest.fail(f"TESTS OF JMX CANNOT RUN: {reason}")
        pytest.skip(f"TESTS OF JMX SKIPPED: {reason}")
    return path


def asked(url: str, *words: str, options: tuple[str, ...] = ()) -> list[list[str]]:
    """What the client prints, in parts."""
    done = subprocess.run(
        [java("java"), *options, str(CLIENT), url, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [each.split("\t") for each in done.stdout.splitlines()]


def url_of(server: LiveServer) -> str:
    """Where JMX clients connect, once the program in Java serves them."""
    deadline = time.monotonic() + PATIENCE_S
    while not (lines := lines_about(server.log, '"jmx"')):
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.1)
    return str(lines[0]["url"])


@pytest.mark.slow
def test_a_client_with_the_password_reads_and_can_do_nothing_else(tmp_path: Path) -> None:
    java("java")
    with live_server(tmp_path, *arguments(*SETTINGS)) as server:
        post(server.url, "/a/b")
        url = url_of(server)
        assert asked(url, "plain", "admin", "wrong")[0][0] == "denied"
        assert asked(url, "plain")[0][0] == "denied"
        counted = ["mdserver:type=Total", "MessagesIn", "1"]
        deadline = time.monotonic() + PATIENCE_S
        while counted not in (found := asked(url, "plain", "admin", "right")):
            assert time.monotonic() < deadline, found
        assert ["mdserver:type=Server", "Node", "mdserver"] in found
        assert ["mdserver:type=Server", "Ready", "true"] in found
        # Neither an MBean of its own, nor another object in place of the server.
        assert found[-2] == ["refused", "The statistics can only be read."]
        assert found[-1] == ["not bound"]


@pytest.mark.slow
def test_a_client_over_tls(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path / "server.pem")
    pem.chmod(0o600)
    trusted = tmp_path / "trusted.p12"
    subprocess.run(
        [
            *(java("keytool"), "-importcert", "-noprompt", "-alias", "server", "-file", str(pem)),
            *("-keystore", str(trusted), "-storetype", "PKCS12", "-storepass", "changeit"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    options = (
        f"-Djavax.net.ssl.trustStore={trusted}",
        "-Djavax.net.ssl.trustStorePassword=changeit",
    )
    settings = (*SETTINGS, "MonitorJMX.Encryption=true", f"KeyStore={pem}")
    with live_server(tmp_path, *arguments(*settings)) as server:
        url = url_of(server)
        found = asked(url, "tls", "admin", "right", options=options)
        assert found[-2][0] == "refused"


@pytest.mark.slow
def test_without_java_one_line_says_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mdserver.cli.main", "run", *arguments(*SETTINGS)],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "needs Java 17 or later" in done.stderr
    assert "Traceback" not in done.stderr


def starting(folder: Path, java: bytes) -> dict[str, str]:
    """The environment of a server that finds this program as `java`."""
    program = folder / "java"
    program.write_bytes(java)
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "JAVA_TOOL_OPTIONS": "-Xint"}


@pytest.mark.slow
def test_java_that_cannot_be_started_does_not_end_the_server(tmp_path: Path) -> None:
    environment = starting(tmp_path, b"#!/nowhere/sh\n")
    with live_server(tmp_path, *arguments(*SETTINGS), environment=environment) as server:
        told = wait_for_line(server.log, "jmx bridge ended")
        assert str(told["reason"]).startswith(f"{tmp_path / 'java'} cannot be started: ")
        post(server.url, "/a/b")


@pytest.mark.slow
def test_java_gets_nothing_of_the_server_but_its_input_and_may_warn(tmp_path: Path) -> None:
    script = f"""#!/bin/sh
        {{ env; pwd; echo "$@"; }} > {tmp_path}/given
        echo "OpenJDK 64-Bit Server VM warning: an example"
        printf 'ready\\t4002\\n'
        exec cat > /dev/null
    """
    environment = starting(tmp_path, script.encode())
    with live_server(tmp_path, *arguments(*SETTINGS), environment=environment) as server:
        assert ":4002/" in str(wait_for_line(server.log, '"jmx"')["url"])
        given = (tmp_path / "given").read_text()
        names = {each.partition("=")[0] for each in given.splitlines() if "=" in each.split(" ")[0]}
        assert names <= {"PATH", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}
        assert "\n/\n" in given
        assert f"-cp {SOURCE.parent} " in given
        assert list(SOURCE.parent.glob("**/*.class")) == []


def test_lines_cannot_be_broken_by_what_stands_in_them() -> None:
    assert line("a\tb", "c\nd\re") == "a b\tc d e\n"
    lines = told({"mdserver:type=Server": {"Node": "a\nend", "Ready": True, "Time": 5}})
    assert lines.decode().splitlines() == [
        "bean\tmdserver:type=Server",
        "attr\tNode\tjava.lang.String\ta end",
        "attr\tReady\tboolean\ttrue",
        "attr\tTime\tlong\t5",
        "end",
    ]
