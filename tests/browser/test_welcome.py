"""The page that a server shows at `/`, in a real browser: its protocol, and how it looks."""

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from mdserver.codec.websocket import WebSocketMessage
from mdserver.core.events import Move
from mdserver.server.clients.outbox import Outbox
from mdserver.server.clients.session import NodeSessions
from mdserver.server.clients.sessions import Sessions
from mdserver.server.http.router import Router
from tests.live import LiveServer, live_server, post
from tests.server.serving import serving

WAIT_S = 30
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
LIGHT = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
TIMERS = """
  window.timers = new Set();
  for (const kind of ["Timeout", "Interval"]) {
    const set = window["set" + kind], clear = window["clear" + kind];
    window["set" + kind] = (call, delay) => {
      const id = set(() => { if (kind === "Timeout") timers.delete(id); call(); }, delay);
      timers.add(id);
      return id;
    };
    window["clear" + kind] = (id) => { timers.delete(id); clear(id); };
  }
"""

pytestmark = pytest.mark.slow

in_thread = functools.partial(trio.to_thread.run_sync, abandon_on_cancel=True)


class Closing(NodeSessions):
    """A server that ends each session with a code after its first command."""

    def __init__(self, sessions: Sessions, code: int, reason: str, delay_ms: int) -> None:
        super().__init__(sessions)
        self._code = code
        self._reason = reason
        self._delay_ms = delay_ms
        self.began: list[float] = []
        self._another = trio.Event()

    async def messages(self, outbox: Outbox, messages: Sequence[WebSocketMessage]) -> int:
        """Say goodbye to whoever comes."""
        self.began.append(trio.current_time())
        self._another.set()
        self._another = trio.Event()
        if self._delay_ms:
            outbox.put(Move(delay_ms=self._delay_ms, reason="drain", servers=["other:8800"]))
        outbox.owner.close(self._code, self._reason)
        return len(messages)

    async def comes(self, times: int) -> None:
        """Until so many sessions have begun."""
        while len(self.began) < times:
            await self._another.wait()


@pytest.fixture
def page(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser, which counts the timers of its pages."""
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": TIMERS})
    yield browser
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.get("about:blank")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def text_of(browser: webdriver.Chrome, element: str) -> str:
    return browser.find_element(By.ID, element).text


def wait_for(browser: webdriver.Chrome, element: str, text: str) -> None:
    WebDriverWait(browser, WAIT_S).until(
        lambda _: text in text_of(browser, element),
        f"{text!r} is not shown in #{element}",
    )


async def closed_with(
    page: webdriver.Chrome, code: int, then: Callable[[Closing, str], Any], delay_ms: int = 0
) -> None:
    """Show the page of a server that closes with a code, and have `then` look at both."""
    made: list[Closing] = []

    def handler(sessions: Sessions) -> Closing:
        made.append(Closing(sessions, code, "That is why.", delay_ms))
        return made[0]

    with trio.fail_after(4 * WAIT_S):
        async with serving(handler=Router(), session_handler=handler) as running:
            await in_thread(page.get, running.urls[0])
            await then(made[0], running.urls[0])
            await in_thread(page.get, "about:blank")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (4100, "for good (4100): That is why."),
        (4101, "refuses this client: That is why."),
        (4199, "for good (4199): That is why."),
    ],
)
async def test_the_page_does_not_come_back_where_it_should_not(
    page: webdriver.Chrome, code: int, sentence: str
) -> None:
    async def then(closing: Closing, _: str) -> None:
        await in_thread(wait_for, page, "state", sentence)
        assert await in_thread(page.execute_script, "return timers.size") == 0
        assert len(closing.began) == 1
        button = page.find_element(By.CSS_SELECTOR, "#access button")
        await in_thread(button.click)
        await closing.comes(2)

    await closed_with(page, code, then)


@pytest.mark.parametrize(
    "code", [1002, 1007, 1009, 1011, 1013, 4001, 4002, 4003, 4004, 4005, 4006, 4099, 4200]
)
async def test_the_page_comes_back_after_other_ends_later_each_time(
    page: webdriver.Chrome, code: int
) -> None:
    async def then(closing: Closing, _: str) -> None:
        await in_thread(wait_for, page, "state", "That is why. Connecting again.")
        await closing.comes(4 if code == 4001 else 2)
        if code == 4001:
            assert closing.began[3] - closing.began[1] >= 2.9  # 1 to 2 s, then 2 to 3

    await closed_with(page, code, then)


async def test_the_page_comes_back_when_it_cannot_go_where_it_is_sent(
    page: webdriver.Chrome,
) -> None:
    """It may connect to the server that it came from only, by its policy."""

    async def then(closing: Closing, _: str) -> None:
        await closing.comes(2)
        await in_thread(wait_for, page, "state", "Connecting again.")

    await closed_with(page, 4000, then, delay_ms=100)


def test_a_token_that_is_needed_can_be_given(page: webdriver.Chrome, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of 32 bytes or even more\n")
    command = [sys.executable, "-m", "mdserver.cli.main", "token", "--all", "/**"]

    def token(lasting: str) -> str:
        made = subprocess.run(
            [*command, "--expires", lasting, "--secret-file", str(secret)],
            check=True,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        return made.stdout.strip()

    settings = ("Listen=127.0.0.1:0", "Entitlement=JWT", f"EntitlementJWT.HmacSecretFile={secret}")
    with live_server(tmp_path, *(word for each in settings for word in ("--set", each))) as server:
        page.get(server.url)
        wait_for(page, "state", "refuses this client")
        assert page.execute_script("return timers.size") == 0
        field = page.switch_to.active_element
        assert field.get_attribute("id") == "token"
        field.send_keys(token("10s"), Keys.ENTER)
        wait_for(page, "state", "Connected to")
        wait_for(page, "state", "The token has expired")
        assert page.execute_script("return timers.size") == 0
        field = page.switch_to.active_element
        assert field.get_attribute("id") == "token"
        field.clear()
        field.send_keys(token("1h"), Keys.ENTER)
        wait_for(page, "state", "Connected to")
        page.find_element(By.ID, "content").send_keys(Keys.ENTER)
        wait_for(page, "messages", "/greetings/hello")
        kept = "return [localStorage.length, sessionStorage.length, document.cookie, location.href]"
        assert page.execute_script(kept) == [0, 0, "", server.url + "/"]


def test_the_page_fits_a_phone(page: webdriver.Chrome, server: LiveServer) -> None:
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page.get(server.url)
    wait_for(page, "state", "Connected to")
    post(server.url, "/a/subject/with/many/segments/of/some/length", content="W" * 300)
    wait_for(page, "messages", "WWW")
    assert page.execute_script("return innerWidth") == 390
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    # No word is broken that would fit.
    heights = "return [...document.querySelectorAll('button')].map((each) => each.offsetHeight)"
    assert max(page.execute_script(heights)) < 48


def test_the_page_is_dark_where_the_user_wants_that(
    page: webdriver.Chrome, server: LiveServer
) -> None:
    page.get(server.url)
    colour = "return getComputedStyle(document.body).backgroundColor"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", LIGHT)
    assert page.execute_script(colour) == "rgb(255, 255, 255)"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", DARK)
    red, green, blue = page.execute_script(colour)[4:-1].split(", ")
    assert max(int(red), int(green), int(blue)) < 64


def test_the_page_is_used_with_the_keyboard_alone(
    page: webdriver.Chrome, server: LiveServer
) -> None:
    page.get(server.url)
    wait_for(page, "state", "Connected to")
    reached = []
    for _ in range(8):
        page.switch_to.active_element.send_keys(Keys.TAB)
        at = page.switch_to.active_element
        reached.append(at.get_attribute("id") or at.text)
        outline = at.value_of_css_property("outline-style")
        assert outline == "solid", reached
    fields = ["token", "Connect", "pattern", "Subscribe", "subject", "content", "Publish"]
    assert reached == ["Overview", *fields]


def test_the_page_gets_what_it_missed_once_and_says_what_is_lost(
    page: webdriver.Chrome, tmp_path: Path
) -> None:
    settings = ("Listen=127.0.0.1:0", "Entitlement=None", "MaxCachedMessagesPerSubject=3")
    with live_server(tmp_path, *(word for each in settings for word in ("--set", each))) as server:
        page.get(server.url)
        wait_for(page, "state", "Connected to")
        for subject in ("/kept/a", "/lost/b"):
            post(server.url, subject, content="before")
        wait_for(page, "messages", "/lost/b before")
        # As a browser does when it keeps a page for its back button: the page ends its connection.
        page.execute_script("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
        post(server.url, "/kept/a", content="missed")
        for number in range(5):
            post(server.url, "/lost/b", content=f"missed {number}")
        page.execute_script("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
        wait_for(page, "messages", "/kept/a missed")
        wait_for(page, "messages", "missed 4")
        rows = text_of(page, "messages").splitlines()
        assert sum("/kept/a before" in row for row in rows) == 1
        assert sum("/kept/a missed" in row and "RECOVERED" in row for row in rows) == 1
        assert sum("/lost/b" in row and "DATA_RESYNC" in row for row in rows) == 1
