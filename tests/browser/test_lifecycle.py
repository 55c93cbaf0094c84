"""A page that is hidden, frozen, or put aside for the back button: it misses nothing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.live import LiveServer, live_server

WAIT_S = 60
COUNTING = """
  const { Client } = await import("/client/mdserver.js");
  window.told = { seen: 0, wrong: 0, statuses: [], lifecycle: [] };
  for (const type of ["pagehide", "pageshow"]) {
    addEventListener(type, ({ persisted }) => told.lifecycle.push(`${type} ${persisted}`));
  }
  const kind = (type) => `${type} ${document.visibilityState}`;
  for (const type of ["freeze", "resume", "visibilitychange"]) {
    document.addEventListener(type, () => told.lifecycle.push(kind(type)));
  }
  window.client = new Client(undefined, { reconnect: "service" });
  client.addEventListener("status", ({ detail }) => told.statuses.push(detail.status));
  await client.subscribe("/many/x", ({ position }) => {
    told.seen += 1;
    if (position.seq !== told.seen) told.wrong += 1;
  }).confirmed();
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ("Listen=127.0.0.1:0", "Entitlement=None")
    with live_server(tmp_path, *(word for each in settings for word in ("--set", each))) as running:
        yield running


@pytest.fixture
def page(browser: webdriver.Chrome, server: LiveServer) -> Iterator[webdriver.Chrome]:
    """A page in a tab of its own that counts the messages of `/many/x`."""
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.get(f"{server.url}/demo/")
    browser.set_script_timeout(WAIT_S)
    script = f"const done = arguments[0]; (async () => {{ {COUNTING} done(null); }})().catch(done);"
    assert browser.execute_async_script(script) is None
    yield browser
    browser.close()
    browser.switch_to.window(first)


def pub(server: LiveServer, messages: int) -> None:
    lines = "".join(f"{number}\n" for number in range(messages))
    command = [sys.executable, "-m", "mdserver.cli.main", "pub", "/many/x", "--stdin"]
    subprocess.run([*command, "--server", server.url], input=lines, text=True, check=True)


def told(page: webdriver.Chrome) -> dict[str, Any]:
    return page.execute_script("return window.told")  # type: ignore[no-any-return]


def until_seen(page: webdriver.Chrome, messages: int) -> None:
    WebDriverWait(page, WAIT_S).until(
        lambda _: told(page)["seen"] >= messages, "messages are missing"
    )
    assert (told(page)["seen"], told(page)["wrong"]) == (messages, 0)


def test_a_frozen_page_goes_on_where_it_was(page: webdriver.Chrome, server: LiveServer) -> None:
    pub(server, 100)
    until_seen(page, 100)
    page.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "frozen"})
    pub(server, 100)
    page.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "active"})
    until_seen(page, 200)
    assert {"freeze hidden", "resume hidden"} <= set(told(page)["lifecycle"])


def test_a_hidden_page_takes_messages(page: webdriver.Chrome, server: LiveServer) -> None:
    first = page.current_window_handle
    page.switch_to.new_window("tab")
    pub(server, 100)
    page.close()
    page.switch_to.window(first)
    until_seen(page, 100)
    assert told(page)["lifecycle"] == ["visibilitychange hidden", "visibilitychange visible"]


def test_a_page_comes_back_by_the_back_button(page: webdriver.Chrome, server: LiveServer) -> None:
    pub(server, 100)
    until_seen(page, 100)
    page.get(f"{server.url}/demo/chat.html")
    pub(server, 100)
    page.back()
    until_seen(page, 200)
    assert {"pagehide true", "pageshow true"} <= set(told(page)["lifecycle"])
    assert "DATA_SYNC" in told(page)["statuses"], "it was not connected meanwhile"
