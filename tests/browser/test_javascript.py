"""The JavaScript client in a real browser."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.cluster.live_cluster import LiveCluster
from tests.live import LiveServer, live_server, post

DOCUMENT = Path(__file__).parents[2] / "docs" / "javascript.md"
WAIT_S = 60
# A page that is too slow for a while is disconnected, and finds here all that it missed.
CACHE = "MaxCachedMessagesPerSubject=100000"
COUNTING = """<!doctype html><meta charset="utf-8"><output id="state">not begun</output>
<script type="module">
  import { Client } from "http://127.0.0.1:8800/client/mdserver.js";
  const client = new Client("127.0.0.1:8800");
  const say = (text) => (document.getElementById("state").textContent = text);
  let [seen, wrong] = [0, 0];
  const subscription = client.subscribe("/many/x", ({ position }) => {
    seen += 1;
    if (position.seq !== seen) wrong += 1;
    if (seen === 50_000) say(`${seen} seen, ${wrong} wrong`);
  });
  await subscription.confirmed();
  say("ready");
</script>"""

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ("Listen=127.0.0.1:0", "Entitlement=None", "AllowedOrigins=*", CACHE)
    with live_server(tmp_path, *(w for s in settings for w in ("--set", s))) as running:
        yield running


def shown(browser: webdriver.Chrome, element: str, text: str) -> None:
    """Wait until an element shows a text."""
    WebDriverWait(browser, WAIT_S).until(
        lambda _: text in browser.find_element(By.ID, element).text,
        f"{text!r} is not shown in #{element}",
    )


def show(browser: webdriver.Chrome, page: str, server: LiveServer, folder: Path) -> None:
    """Open a page that speaks with this server, from a file."""
    file = folder / "page.html"
    file.write_text(page.replace("127.0.0.1:8800", f"127.0.0.1:{server.port}"), encoding="utf-8")
    browser.get(file.as_uri())


def test_the_page(tmp_path: Path, browser: webdriver.Chrome, server: LiveServer) -> None:
    page, *_ = re.findall(r"^```html\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    post(server.url, "/stocks/IBM", content="191")
    show(browser, page, server, tmp_path)
    shown(browser, "bid", "191")
    post(server.url, "/stocks/IBM", content="192")
    shown(browser, "bid", "192")


def test_tens_of_thousands_of_messages_into_a_page(
    tmp_path: Path, browser: webdriver.Chrome, server: LiveServer
) -> None:
    show(browser, COUNTING, server, tmp_path)
    shown(browser, "state", "ready")
    lines = "".join(f"{number}\n" for number in range(50_000))
    pub = [sys.executable, "-m", "mdserver.cli.main", "pub", "/many/x", "--stdin"]
    subprocess.run([*pub, "--server", server.url], input=lines, text=True, check=True)
    shown(browser, "state", "50000 seen, 0 wrong")


def follow_a_dying_member(
    cluster: LiveCluster, folder: Path, opened: Callable[[str], None], shown: Callable[[str], None]
) -> None:
    """Kill the member of a page under load; it has to get each message once and in order."""
    page = COUNTING.replace("http://127.0.0.1:8800/client", f"http://{cluster.clients[0]}/client")
    servers = json.dumps([f"0 {cluster.clients[1]}", cluster.clients[0]])
    page = page.replace('"127.0.0.1:8800"', servers)
    page = page.replace("50_000", "3000").replace("]);", '], { reconnect: "service" });')
    (folder / "page.html").write_text(page, encoding="utf-8")
    opened((folder / "page.html").as_uri())
    shown("ready")
    pub = [sys.executable, "-m", "mdserver.cli.main", "pub", "/many/x", "--stdin", "--rate", "500"]
    with subprocess.Popen(
        [*pub, "--server", cluster.clients[2]], stdin=subprocess.PIPE, text=True
    ) as publisher:
        assert publisher.stdin is not None
        publisher.stdin.write("".join(f"{number}\n" for number in range(1000)))
        publisher.stdin.flush()
        cluster.processes[0].kill()
        publisher.stdin.write("".join(f"{number}\n" for number in range(2000)))
        publisher.stdin.close()
        assert publisher.wait(WAIT_S) == 0
    shown("3000 seen, 0 wrong")


def test_a_page_goes_on_at_another_member(tmp_path: Path, browser: webdriver.Chrome) -> None:
    with LiveCluster(tmp_path, 3, settings={"AllowedOrigins": "*"}) as cluster:
        follow_a_dying_member(
            cluster, tmp_path, browser.get, lambda text: shown(browser, "state", text)
        )
