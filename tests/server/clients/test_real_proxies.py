"""nginx and HAProxy with the blocks of docs/operations.md in front of a real server."""

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio
from attrs import frozen

from mdserver.client import Client
from tests.live import live_server, wait_for_line
from tests.server.certificates import make_certificate

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
PATIENCE_S = 30
ELSEWHERE = "127.0.0.2"  # where a client comes from; the proxy is 127.0.0.1
NGINX = """
daemon off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        {block}
    }}
}}
"""


def block(begin: str) -> str:
    """Return the block of the page that begins so."""
    found = [text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if begin in text]
    assert len(found) == 1
    return str(found[0])


def program(name: str) -> str:
    """Return the path of a proxy; without it tests are skipped, which CI takes for a failure."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        missing = f"{name} is not on the PATH: `make proxies` installs it"
        if os.environ.get("CI"):
            pytest.fail(f"TESTS WITH PROXIES CANNOT RUN: {missing}")
        pytest.skip(f"TESTS WITH PROXIES SKIPPED: {missing}")
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextmanager
def running(folder: Path, port: int, *command: str) -> Iterator[None]:
    """Run a proxy until the end of the block, from when it takes connections at its port."""
    with (folder / "proxy.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                told = (folder / "proxy.log").read_text()
                assert process.poll() is None and time.monotonic() < deadline, told  # noqa: PT018
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@frozen
class Proxied:
    """Where clients connect to, whom they trust, and where operators ask."""

    url: str
    tls: ssl.SSLContext | None
    monitor: str


def arguments(settings: str, **more: object) -> list[str]:
    lines = [*settings.splitlines(), *(f"{n.replace('_', '.')} = {v}" for n, v in more.items())]
    return [word for line in lines for word in ("--set", line.replace(" = ", "=", 1))]


@pytest.fixture(params=["nginx", "haproxy"])
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxied]:
    """A proxy with the block of the page before a server with the settings of the page."""
    path = program(request.param)
    port = free_port()
    monitor = {"Entitlement": "None", "Monitor": "HTTP", "MonitorHTTP_Listen": "127.0.0.1:0"}
    if request.param == "nginx":
        settings = block("AllowedHosts = prices").replace(":8800", ":0")
        begin, tls = "proxy_pass", None
    else:
        pem = make_certificate(tmp_path / "cert.pem")
        settings = block("ProxyProtocol = v2").replace("10.1.0.7:443", "127.0.0.1:0")
        settings = settings.replace("10.1.0.2", "127.0.0.1")
        settings = re.sub(r"KeyStore = .*", f"KeyStore = {pem}\nListen =", settings)
        begin, tls = "send-proxy-v2", ssl.create_default_context(cafile=str(pem))
    with live_server(tmp_path, *arguments(settings, **monitor)) as server:
        text = block(begin)
        if request.param == "nginx":
            text = text.replace("127.0.0.1:8800", f"127.0.0.1:{server.port}")
            (tmp_path / "nginx.conf").write_text(NGINX.format(port=port, block=text))
            command = [path, "-p", str(tmp_path), "-c", "nginx.conf"]
        else:
            text = text.replace("10.1.0.7:443", f"127.0.0.1:{server.port}")
            text = text.replace("bind :443", f"bind 127.0.0.1:{port}")
            (tmp_path / "haproxy.cfg").write_text(text)
            command = [path, "-db", "-f", "haproxy.cfg"]
        ready = wait_for_line(server.log, '"ready"')
        scheme = "http" if tls is None else "https"
        with running(tmp_path, port, *command):
            where = str(ready["monitor"][0])  # type: ignore[index]
            yield Proxied(f"{scheme}://127.0.0.1:{port}", tls, where)
        log = server.log.read_text()
        assert "connection of a proxy refused" not in log
        told = (tmp_path / "proxy.log").read_text()
        assert "WARNING" not in told
        assert "DOWN" not in told


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_session_through_a_proxy(proxied: Proxied, transport: str) -> None:
    client = Client(
        [proxied.url],
        transport=transport,
        tls=proxied.tls,  # type: ignore[arg-type]
        encryption=proxied.tls is not None,
    )
    with trio.fail_after(PATIENCE_S):
        async with client, client.subscribe("/p/**") as subscription:
            await subscription.confirmed()
            for number in range(5):
                await client.publish("/p/x", str(number))
                assert (await anext(subscription)).content == str(number)


def test_events_of_the_server_through_a_proxy_with_the_address_of_the_client(
    proxied: Proxied,
) -> None:
    where = urlsplit(proxied.url).netloc
    options = {"timeout": PATIENCE_S, "source_address": (ELSEWHERE, 0)}
    connection = http.client.HTTPConnection(where, **options)  # type: ignore[arg-type]
    if proxied.tls is not None:
        connection = http.client.HTTPSConnection(where, context=proxied.tls, **options)  # type: ignore[arg-type]
    # HAProxy passes TCP on, so that the server sees the name that a client uses.
    name = "prices.example.com" if proxied.tls is None else "localhost"
    connection.request("GET", "/sse?subject=/p/x", headers={"Host": name})
    answer = connection.getresponse()
    assert answer.status == 200
    assert addresses(proxied.monitor) == [ELSEWHERE]
    if proxied.tls is None:
        poster = http.client.HTTPConnection(where, timeout=PATIENCE_S)
    else:
        poster = http.client.HTTPSConnection(where, timeout=PATIENCE_S, context=proxied.tls)
    poster.request("POST", "/rest/produce?subject=/p/x", body="one")
    assert poster.getresponse().status == 200
    poster.close()
    lines = []
    while not any("one" in line for line in lines):
        line = answer.readline().decode()
        assert line, lines
        lines.append(line)
    connection.close()


def addresses(monitor: str) -> list[str]:
    connection = http.client.HTTPConnection(urlsplit(monitor).netloc, timeout=PATIENCE_S)
    connection.request("GET", "/sessions")
    sessions = json.loads(connection.getresponse().read())
    connection.close()
    rows = sessions if isinstance(sessions, list) else sessions["sessions"]
    return [row["address"] for row in rows]
