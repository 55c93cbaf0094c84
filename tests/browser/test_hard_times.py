"""A page when a proxy lets no WebSocket through, and under load."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.proxies import no_websockets
from tests.browser.soak import soak
from tests.browser.test_javascript import CACHE, COUNTING
from tests.live import LiveServer, live_server

WAIT_S = 60
GROWTH_BYTES_MAX = 3_000_000

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ("Listen=127.0.0.1:0", "Entitlement=None", "AllowedOrigins=*", CACHE)
    with live_server(tmp_path, *(word for each in settings for word in ("--set", each))) as running:
        yield running


def page_by(port: int, folder: Path, messages: str) -> str:
    """The address of a page that counts so many messages from the server at a port."""
    file = folder / "page.html"
    text = COUNTING.replace("50_000", messages).replace("127.0.0.1:8800", f"127.0.0.1:{port}")
    text = text.replace(f'Client("127.0.0.1:{port}")', f'Client("127.0.0.1:{port}", OPTIONS)')
    options = 'const OPTIONS = { reconnect: "service" };'
    text = text.replace("seen += 1;", "document.title = seen += 1;")
    file.write_text(text.replace("const client", f"{options}\n  const client"), encoding="utf-8")
    return file.as_uri()


def shown(browser: webdriver.Chrome, text: str) -> None:
    WebDriverWait(browser, WAIT_S).until(
        lambda _: text in browser.find_element(By.ID, "state").text, f"{text!r} is not shown"
    )


def pub(server: LiveServer, messages: int) -> None:
    lines = "".join(f"{number}\n" for number in range(messages))
    command = [sys.executable, "-m", "mdserver.cli.main", "pub", "/many/x", "--stdin"]
    subprocess.run([*command, "--server", server.url], input=lines, text=True, check=True)


def test_http_when_no_websocket_gets_through(
    browser: webdriver.Chrome, server: LiveServer, tmp_path: Path
) -> None:
    with no_websockets(server.port) as proxy:
        browser.get(page_by(proxy.port, tmp_path, "200"))
        shown(browser, "ready")
        assert proxy.refused == 1
        pub(server, 100)
        # What got through once is tried first: no WebSocket any more.
        proxy.cut()
        pub(server, 100)
        shown(browser, "200 seen, 0 wrong")
        assert proxy.refused == 1
        browser.get("about:blank")


def test_server_sent_events_when_no_stream_gets_through(
    browser: webdriver.Chrome, server: LiveServer, tmp_path: Path
) -> None:
    with no_websockets(server.port, keeps=True) as proxy:
        browser.get(page_by(proxy.port, tmp_path, "200"))
        shown(browser, "ready")
        assert (proxy.refused, proxy.kept) == (1, 1)
        pub(server, 100)
        proxy.cut()
        pub(server, 100)
        shown(browser, "200 seen, 0 wrong")
        assert (proxy.refused, proxy.kept) == (1, 1)
        browser.get("about:blank")


def test_the_memory_of_a_page_is_flat(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The short form of `make soak-web`."""
    taken = soak(browser, tmp_path, messages=60_000, rate=10_000, looks=4)
    browser.get("about:blank")
    assert taken[-1].seen == 60_000
    assert taken[-1].wrong == 0
    assert taken[-1].heap_bytes < taken[0].heap_bytes + GROWTH_BYTES_MAX
    assert taken[-1].nodes <= taken[0].nodes + 100
