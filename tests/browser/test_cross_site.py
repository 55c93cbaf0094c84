"""What a web page of somebody else can do to a server on the same machine, in a real browser."""

import http.client
import http.server
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.live import LiveServer, lines_about, live_server, wait_for_line

WAIT_S = 30
PAGE = """<!doctype html><meta charset="utf-8"><title>a page of somebody else</title>
<pre id="out"></pre>
<form id="form" method="post" enctype="text/plain" target="frame"><input name="a" value="b"></form>
<iframe name="frame" id="frame"></iframe>
<script>
  const say = (text) => { document.getElementById("out").textContent += text + "\\n"; };
  const attempt = (name, promise) => promise.then(
    (answer) => say(`${name}: got${answer}`), (error) => say(`${name}: failed`));
</script>
"""
ATTEMPTS = """
  const client = %r, monitor = %r;
  const plain = {method: "POST", mode: "no-cors", body: "bad"};
  const drain = "/cluster/drain?force=true&member=%s";
  const text = (answer) => answer.text();
  const subject = "/rest/produce?subject=/cross/site";
  (async () => {
    await attempt("simple post", fetch(client + subject, plain).then(() => ""));
    await attempt("readable", fetch(client + "/snapshot?subject=/cross/kept").then(text));
    await attempt("monitor post", fetch(monitor + drain, plain).then(() => ""));
    await attempt("monitor read", fetch(monitor + "/cluster/status").then(text));
    await attempt("websocket", new Promise((got, failed) => {
      const socket = new WebSocket(client.replace("http", "ws") + "/ws");
      socket.onopen = () => got(" open");
      socket.onerror = failed;
    }));
    await attempt("events", new Promise((got, failed) => {
      const source = new EventSource(client + "/sse?subject=/cross/kept");
      source.onopen = () => got(" open");
      source.onerror = () => { source.close(); failed(); };
    }));
    const form = document.getElementById("form");
    form.action = client + subject;
    document.getElementById("frame").onload = () => say("done");
    form.submit();
  })();
"""

pytestmark = pytest.mark.slow


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGE.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def site() -> Iterator[int]:
    """The port of a web server of somebody else."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextmanager
def member(folder: Path, port: int, origins: str) -> Iterator[LiveServer]:
    """A cluster of one that allows everything to everybody, with a listener for operators."""
    peer = f"127.0.0.1:{free_port()}"
    settings = (
        f"Listen=127.0.0.1:{port}",
        "Entitlement=None",
        "MonitorHTTP.Listen=127.0.0.1:0",
        f"AllowedOrigins={origins}",
        f"ClusterMembers={peer}",
        f"ClusterMemberListen={peer}",
        f"ClusterMemberCoordinationFolder={folder}",
        "ClusterPassword=a long enough password",
    )
    with live_server(folder, *(word for each in settings for word in ("--set", each))) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """As the shipped configurations have it: for its own pages alone."""
    port = free_port()
    origins = f"http://127.0.0.1:{port}, http://localhost:{port}"
    with member(tmp_path_factory.mktemp("server"), port, origins) as running:
        yield running


def members_of(monitor: str) -> list[dict[str, object]]:
    members: list[dict[str, object]] = json.loads(get(monitor, "/cluster/status"))["members"]
    return members


def monitor_of(server: LiveServer) -> str:
    (url,) = wait_for_line(server.log, '"monitor"')["monitor"]  # type: ignore[misc]
    return str(url)


def get(url: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=WAIT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def shown(browser: webdriver.Chrome, text: str) -> list[str]:
    """The lines of the page, once one holds this text."""

    def there(_: webdriver.Chrome) -> bool:
        return text in browser.find_element(By.ID, "out").text

    WebDriverWait(browser, WAIT_S).until(there)
    return browser.find_element(By.ID, "out").text.splitlines()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_foreign_page_neither_reads_nor_publishes_nor_gives_orders(
    browser: webdriver.Chrome, server: LiveServer, host: str
) -> None:
    monitor = monitor_of(server)
    before = members_of(monitor)
    with site() as port:
        browser.get(f"http://{host}:{port}/")
        browser.execute_script(ATTEMPTS % (server.url, monitor, before[0]["address"]))
        lines = shown(browser, "done")
    # A page sees nothing of what comes of a simple POST, neither that it was refused.
    assert lines == [
        "simple post: got",
        "readable: failed",
        "monitor post: got",
        "monitor read: failed",
        "websocket: failed",
        "events: failed",
        "done",
    ]
    assert get(server.url, "/snapshot?subject=/cross/site") == b""
    assert members_of(monitor) == before


def test_where_every_page_may_publish_none_gives_orders(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    with member(tmp_path, free_port(), "*") as server, site() as port:
        monitor = monitor_of(server)
        before = members_of(monitor)
        browser.get(f"http://127.0.0.1:{port}/")
        browser.execute_script(ATTEMPTS % (server.url, monitor, before[0]["address"]))
        lines = shown(browser, "done")
        assert "monitor read: failed" in lines
        assert "websocket: got open" in lines
        assert members_of(monitor) == before
        (concern,) = lines_about(server.log, "see to this")
        assert "AllowedOrigins" in str(concern["reason"])


def test_a_page_cannot_have_its_own_name_point_to_the_server(
    browser: webdriver.Chrome, server: LiveServer
) -> None:
    for url in (server.url, monitor_of(server)):
        port = url.rpartition(":")[2]
        browser.get(f"http://rebound.example:{port}/health/live")
        assert "AllowedHosts" in browser.find_element(By.TAG_NAME, "body").text


def test_the_page_of_the_server_is_its_own(browser: webdriver.Chrome, server: LiveServer) -> None:
    browser.get(server.url.replace("127.0.0.1", "localhost"))
    state = browser.find_element(By.ID, "state")
    WebDriverWait(browser, WAIT_S).until(lambda _: "Connected to" in state.text)
    assert state.text.startswith("Connected to ")


def test_no_page_shows_the_server_in_a_frame(browser: webdriver.Chrome, server: LiveServer) -> None:
    with site() as port:
        browser.get(f"http://127.0.0.1:{port}/")
        browser.execute_script(
            "const frame = document.getElementById('frame');"
            "frame.onload = () => say('done'); frame.src = arguments[0];",
            server.url,
        )
        shown(browser, "done")
        browser.switch_to.frame("frame")
        assert not browser.find_elements(By.ID, "publish")
        browser.switch_to.default_content()


def test_the_policy_of_the_page_lets_no_other_script_run(
    browser: webdriver.Chrome, server: LiveServer
) -> None:
    browser.get(server.url)
    ran = browser.execute_script(
        "const added = document.createElement('script');"
        "added.textContent = 'window.injected = true';"
        "document.body.append(added);"
        "return window.injected === true;"
    )
    assert ran is False
    with urllib.request.urlopen(server.url, timeout=30) as answer:  # noqa: S310
        policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self';" in policy


def test_the_shipped_configurations_name_their_origins() -> None:
    top = Path(__file__).parents[2] / "conf"
    files = [file for file in top.rglob("*.conf") if "Entitlement = None" in file.read_text()]
    assert len(files) == 9
    for file in files:
        assert "\nAllowedOrigins = http://" in file.read_text(), file
