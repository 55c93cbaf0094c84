"""The pages that the server and the documents give work in a real browser."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.live import LiveServer, live_server, post

TOP = Path(__file__).parents[2]
PAGE = re.compile(r"^```html\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT_S = 30

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def wait_for_text(browser: webdriver.Chrome, element: str, text: str) -> list[str]:
    """Wait until the element with this id shows the text; return its lines."""

    def shown(_: webdriver.Chrome) -> bool:
        return text in browser.find_element(By.ID, element).text

    WebDriverWait(browser, WAIT_S).until(shown, f"{text!r} is not shown in #{element}")
    return browser.find_element(By.ID, element).text.splitlines()


def publish(url: str, subject: str, content: str) -> None:
    assert post(url, subject, content=content)["status"] == "OK"


def page_of(document: str, port: int, folder: Path, number: int = 0) -> str:
    """The address of a file with a page that a document shows."""
    page = PAGE.findall((TOP / document).read_text(encoding="utf-8"))[number]
    file = folder / "page.html"
    file.write_text(page.replace("127.0.0.1:8800", f"127.0.0.1:{port}"), encoding="utf-8")
    return file.as_uri()


def test_the_page_of_the_server_subscribes_and_publishes(
    browser: webdriver.Chrome, server: LiveServer
) -> None:
    browser.get(server.url)
    wait_for_text(browser, "state", "Connected to")
    browser.find_element(By.CSS_SELECTOR, "#publish button").click()
    wait_for_text(browser, "messages", "/greetings/hello Hello, world")
    publish(server.url, "/other/subject", "from elsewhere")
    shown = wait_for_text(browser, "messages", "/other/subject from elsewhere")
    assert sum("Hello, world" in line for line in shown) == 1


def test_the_page_of_the_server_says_what_is_wrong_with_a_subject(
    browser: webdriver.Chrome, server: LiveServer
) -> None:
    browser.get(server.url)
    wait_for_text(browser, "state", "Connected to")
    subject = browser.find_element(By.ID, "subject")
    subject.clear()
    subject.send_keys("no slash")
    browser.find_element(By.CSS_SELECTOR, "#publish button").click()
    shown = wait_for_text(browser, "outcome", "Subject 'no slash'")
    assert len(shown) == 1
    assert "no slash" not in browser.find_element(By.ID, "messages").text


def test_a_file_with_the_page_of_the_readme(
    browser: webdriver.Chrome, server: LiveServer, tmp_path: Path
) -> None:
    publish(server.url, "/stocks/NYSE/IBM", "203.10")
    browser.get(page_of("README.md", server.port, tmp_path))
    wait_for_text(browser, "out", "/stocks/NYSE/IBM 203.10")
    publish(server.url, "/stocks/NYSE/IBM", "203.25")
    shown = wait_for_text(browser, "out", "/stocks/NYSE/IBM 203.25")
    assert shown == ["/stocks/NYSE/IBM 203.10", "/stocks/NYSE/IBM 203.25"]


def test_the_pages_of_the_tutorial_show_a_price_as_it_changes(
    browser: webdriver.Chrome, server: LiveServer, tmp_path: Path
) -> None:
    publish(server.url, "/tutorial/IBM", "193")
    browser.get(page_of("docs/tutorials/web-page.md", server.port, tmp_path))
    wait_for_text(browser, "price", "193")
    publish(server.url, "/tutorial/IBM", "194")
    wait_for_text(browser, "price", "194")
    browser.get(page_of("docs/tutorials/web-page.md", server.port, tmp_path, 1))

    def shown(_: webdriver.Chrome) -> bool:
        return "IBM: 194" in browser.find_element(By.TAG_NAME, "p").text

    WebDriverWait(browser, WAIT_S).until(shown)


class Relay:
    """Connections that can be cut, between a client and a server."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[trio.CancelScope] = []
        self.accepting = trio.Event()

    async def carry(self, client: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._open.append(scope)
            await self.accepting.wait()
            server = await trio.open_tcp_stream("127.0.0.1", self._target)
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, client, server)
                await self._copy(server, client)

    async def _copy(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            async for part in source:
                await sink.send_all(part)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.cut()

    def cut(self) -> None:
        """End all connections; new ones wait until `accepting` is set."""
        for scope in self._open:
            scope.cancel()
        self._open.clear()


async def test_an_event_source_gets_what_it_missed_while_it_was_cut_off(
    browser: webdriver.Chrome, server: LiveServer, tmp_path: Path
) -> None:
    relay = Relay(server.port)
    relay.accepting.set()
    in_thread = functools.partial(trio.to_thread.run_sync, abandon_on_cancel=True)
    with trio.fail_after(4 * WAIT_S):
        async with trio.open_nursery() as nursery:
            serve = functools.partial(trio.serve_tcp, relay.carry, 0, host="127.0.0.1")
            (listener,) = await nursery.start(serve)
            port = listener.socket.getsockname()[1]
            await in_thread(browser.get, page_of("docs/http.md", port, tmp_path))
            await in_thread(publish, server.url, "/http/cut", "0")
            await in_thread(wait_for_text, browser, "out", "/http/cut 0")
            relay.accepting = trio.Event()
            relay.cut()
            for number in range(1, 6):
                await in_thread(publish, server.url, "/http/cut", str(number))
            relay.accepting.set()
            shown = await in_thread(wait_for_text, browser, "out", "/http/cut 5")
            nursery.cancel_scope.cancel()
    assert shown == [f"/http/cut {number}" for number in range(6)]
