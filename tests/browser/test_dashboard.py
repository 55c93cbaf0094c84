"""The page that a monitor shows at `/`, in a real browser."""

import base64
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait
from websockets.sync.client import connect

from mdserver.bench.processes import free_ports
from tests.cluster.live_cluster import LiveCluster
from tests.live import LiveServer, live_server, post

WAIT_S = 60
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
LIGHT = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
TOO_WIDE = """
  const inside = [...document.querySelectorAll('body *')].filter(
    (one) => one.getBoundingClientRect().right > innerWidth + 1);
  const page = document.documentElement.scrollWidth > innerWidth ? ['page'] : [];
  return [...page, ...inside.map((one) => one.outerHTML.slice(0, 80))];
"""
INLINE = """
  const [done] = arguments, refused = [];
  document.addEventListener('securitypolicyviolation', ({ effectiveDirective }) => {
    refused.push(effectiveDirective);
    if (refused.length === 2) done(refused);
  });
  for (const [name, text] of [['script', 'document.title = 1'], ['style', 'body { color: red }']]) {
    const made = document.createElement(name);
    made.textContent = text;
    document.body.append(made);
  }
"""
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
MANY = 10_000  # sessions
FILES_LEFT = 1000  # of those that a process may open
AT_ONCE = 100  # of them wait to be accepted
ROWS_OF_A_PAGE = 50
ANSWER_BYTES_MAX = 32_768
LONG_TASK_MAX_MS = 1000  # of a busy machine; a page that shows all of them takes several seconds
OBSERVER = """
  window.longest = 0;
  new PerformanceObserver((list) => {
    window.longest = Math.max(window.longest, ...list.getEntries().map(({ duration }) => duration));
  }).observe({ type: "longtask" });
"""
BUSY_MS = 300
BUSY = f"""
  setTimeout(() => {{
    const end = performance.now() + {BUSY_MS};
    while (performance.now() < end);
  }});
"""
ASKED = """
  return performance.getEntriesByType("resource")
    .filter(({ name }) => name.endsWith(arguments[0])).length;
"""
LARGEST = """
  return Math.max(...performance.getEntriesByType("resource")
    .filter(({ name }) => name.includes(arguments[0]))
    .map(({ decodedBodySize }) => decodedBodySize));
"""

pytestmark = pytest.mark.slow


@frozen
class Watched:
    server: LiveServer
    monitor: str


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A server whose clients' listener lets the page of its monitor connect."""
    (port,) = free_ports(1)
    monitor = f"http://127.0.0.1:{port}"
    settings = {
        "Listen": "127.0.0.1:0",
        "Entitlement": "None",
        "AllowedOrigins": monitor,
        "MonitorHTTP.Listen": f"127.0.0.1:{port}",
        "MonitorPassword": "s3cret",
        "BufferLimit.Send": "200MB",
        "MonitorPush.Interval": "1s",
        "MaxConnectionsPerAddress": str(2 * MANY),
        "KeepAliveInterval": "10min",  # most clients here answer nothing
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with live_server(tmp_path_factory.mktemp("server"), *words) as server:
        yield Watched(server, monitor)


@pytest.fixture
def page(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser, of the size of a desk's, which gives user and password."""
    browser.execute_cdp_cmd("Network.enable", {})
    authorize(browser, "s3cret")
    browser.set_window_size(1280, 1000)
    yield browser
    browser.get("about:blank")
    browser.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {}})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def authorize(browser: webdriver.Chrome, password: str) -> None:
    pair = base64.b64encode(f"admin:{password}".encode()).decode()
    headers = {"headers": {"Authorization": f"Basic {pair}"}}
    browser.execute_cdp_cmd("Network.setExtraHTTPHeaders", headers)


def text_of(browser: webdriver.Chrome, element: str) -> str:
    # In one call of the browser, because rows are replaced all the time.
    text = browser.execute_script(f"return document.getElementById('{element}').innerText")
    return str(text)


def wait_for(browser: webdriver.Chrome, element: str, text: str) -> None:
    WebDriverWait(browser, WAIT_S).until(
        lambda _: text in text_of(browser, element),
        f"{text!r} is not shown in #{element}",
    )


def click(browser: webdriver.Chrome, selector: str) -> None:
    browser.execute_script(f"document.querySelector({json.dumps(selector)}).click()")


def screenshot(browser: webdriver.Chrome, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    assert browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


def test_one_sees_ones_own_messages_in_plots(page: webdriver.Chrome, watched: Watched) -> None:
    page.get(watched.monitor)
    wait_for(page, "health", "ready")
    wait_for(page, "node", "mdserver")
    assert page.find_element(By.ID, "server").get_attribute("value") == watched.server.url
    click(page, "#subscribe button")
    wait_for(page, "outcome", "Connected to")
    click(page, "#publish button")
    wait_for(page, "console-rows", "/greetings/hello")
    wait_for(page, "subject-rows", "/greetings/hello")
    wait_for(page, "session-rows", "mdserver-js/")
    wait_for(page, "members", "coordinates 128 groups")
    drawn = """
      const canvas = document.getElementById(arguments[0]), pen = canvas.getContext("2d");
      const points = pen.getImageData(0, 0, canvas.width, canvas.height).data;
      return points.some((value) => value) && canvas.getAttribute("aria-label");
    """
    for plot in ("messages", "bytes", "connected", "latency", "windows"):
        WebDriverWait(page, WAIT_S).until(
            lambda _, plot=plot: page.execute_script(drawn, plot) not in (False, None), plot
        )
    WebDriverWait(page, WAIT_S).until(
        lambda _: "connected 2" in str(page.execute_script(drawn, "connected")),
        "the page and its console are sessions",
    )
    wait_for(page, "source", "Live: this member publishes its figures every 1.0 s.")
    wait_for(page, "members", "nothing behind")
    for number in range(100):
        post(watched.server.url, f"/prices/{number % 7}", content=str(number))
    wait_for(page, "subject-rows", "/prices/")
    screenshot(page, "dashboard")


def test_a_slow_session_stands_first_and_says_why(page: webdriver.Chrome, watched: Watched) -> None:
    with ExitStack() as sockets:
        url = watched.server.url.replace("http", "ws") + "/ws"
        quick = sockets.enter_context(connect(url, max_size=None))
        quick.send(json.dumps({"op": "subscribe", "subjects": ["/quick/one"]}))
        # A client that reads nothing: the kernel's buffers fill, and then the server's.
        slow = sockets.enter_context(socket.socket())
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", watched.server.port))
        reader = sockets.enter_context(connect(url, sock=slow, max_queue=1))
        reader.send(json.dumps({"op": "subscribe", "subjects": ["/slow/one"]}))
        page.get(watched.monitor)
        wait_for(page, "page", "of 3")  # with the page itself
        for _ in range(250):
            assert post(watched.server.url, "/slow/one", content="x" * 50_000)["status"] == "OK"
        wait_for(page, "session-rows", "its socket has taken nothing for")
        first = page.execute_script("return document.querySelector('#session-rows tr').innerText")
        assert "bytes wait for it" in first
        click(page, "#slow")
        wait_for(page, "page", "of 1")
        slow.shutdown(socket.SHUT_RDWR)


@contextmanager
def crowd(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open so many WebSocket sessions, which say nothing."""
    handshake = (
        b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with ExitStack() as sockets:
        every: list[socket.socket] = []
        while len(every) < count:
            batch = [
                sockets.enter_context(socket.create_connection(("127.0.0.1", port), WAIT_S))
                for _ in range(min(AT_ONCE, count - len(every)))
            ]
            for one in batch:
                one.sendall(handshake)
            for one in batch:
                assert one.recv(1024).startswith(b"HTTP/1.1 101"), "it is a session"
            every += batch
        yield every


def test_ten_thousand_sessions_do_not_freeze_it(page: webdriver.Chrome, watched: Watched) -> None:
    script = page.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": OBSERVER})
    try:
        page.get(watched.monitor)
        wait_for(page, "page", "1 to 1 of 1")
        nodes = "return document.querySelectorAll('*').length"
        few = page.execute_script(nodes)
        many = min(MANY, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_LEFT)
        with crowd(watched.server.port, many):
            every = f"{many + 1:,}"  # with the page itself
            wait_for(page, "page", f"1 to 50 of {every}")
            page.execute_script(BUSY)
            WebDriverWait(page, WAIT_S).until(
                lambda _: page.execute_script("return window.longest") >= BUSY_MS / 2,
                "tasks that take long are seen",
            )
            page.execute_script("window.longest = 0")
            for first in (51, 101, 151):
                click(page, "#next")
                wait_for(page, "page", f"{first} to {first + 49} of {every}")
            Select(page.find_element(By.ID, "sort")).select_by_value("silent_ms")
            wait_for(page, "page", f"1 to 50 of {every}")
            looks = page.execute_script(ASKED, "statistics")
            WebDriverWait(page, WAIT_S).until(
                lambda _: page.execute_script(ASKED, "statistics") > looks
            )
            # What the page holds and asks for is a page of them, however many there are.
            cells = 5 * (ROWS_OF_A_PAGE + 1)
            assert page.execute_script(nodes) <= few + cells + ROWS_OF_A_PAGE
            assert page.execute_script(LARGEST, "sessions?") < ANSWER_BYTES_MAX
            longest = page.execute_script("return window.longest")
            assert longest < LONG_TASK_MAX_MS
    finally:
        page.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_a_session_is_found_by_its_name_and_its_address(
    page: webdriver.Chrome, watched: Watched
) -> None:
    with crowd(watched.server.port, 3):
        page.get(watched.monitor)
        wait_for(page, "page", "1 to 4 of 4")
        name = page.execute_script(
            "return document.querySelectorAll('#session-rows td')[5].textContent.split(' ')[0]"
        )
        wanted = page.find_element(By.ID, "wanted")
        wanted.send_keys(name, Keys.ENTER)
        wait_for(page, "page", "1 found")
        assert name in text_of(page, "session-rows")
        for text, found in (("127.0.0.1", "4 found"), ("mdserver-999999", "none"), ("", "of 4")):
            wanted.clear()
            wanted.send_keys(text, Keys.ENTER)
            wait_for(page, "page", found)


def test_names_from_outside_are_shown_as_they_are(page: webdriver.Chrome, watched: Watched) -> None:
    evil = "/evil/<img src=x onerror=document.title='run'>"
    assert post(watched.server.url, evil)["status"] == "OK"
    page.get(watched.monitor)
    wait_for(page, "subject-rows", evil)
    assert page.title == "mdserver · mdserver"


def test_it_connects_to_no_other_host(page: webdriver.Chrome, watched: Watched) -> None:
    page.get(watched.monitor)
    wait_for(page, "source", "Live")
    with socket.create_server(("127.0.0.2", 0)) as stranger:
        stranger.settimeout(1)
        address = f"http://127.0.0.2:{stranger.getsockname()[1]}"
        page.execute_script(f"document.getElementById('server').value = '{address}'")
        click(page, "#connect button")
        wait_for(
            page, "outcome", "This page may connect to the hosts of this server's clients only"
        )
        with pytest.raises(TimeoutError):
            stranger.accept()


def test_it_fits_a_phone_and_is_dark_where_the_user_wants_that(
    page: webdriver.Chrome, watched: Watched
) -> None:
    post(watched.server.url, "/a/subject/with/many/segments/of/some/length/" + "W" * 100)
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", DARK)
    page.get(watched.monitor)
    wait_for(page, "subject-rows", "WWW")
    click(page, "#subscribe button")
    click(page, "#publish button")
    wait_for(page, "console-rows", "/greetings/hello")
    assert page.execute_script("return innerWidth") == PHONE["width"]
    assert page.execute_script(TOO_WIDE) == []
    ground = "return getComputedStyle(document.body).backgroundColor"
    colour = page.execute_script(ground)
    assert max(int(part) for part in colour[4:-1].split(", ")) < 64
    screenshot(page, "dashboard-phone")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", LIGHT)
    colour = page.execute_script(ground)
    assert min(int(part) for part in colour[4:-1].split(", ")) > 192


def test_no_script_and_no_style_in_the_page_runs(page: webdriver.Chrome, watched: Watched) -> None:
    for address in (watched.monitor, f"{watched.server.url}/overview/"):
        page.get(address)
        assert page.execute_async_script(INLINE) == ["script-src-elem", "style-src-elem"]
        assert page.title.startswith("mdserver"), "the script did not run"


def test_the_console_says_what_is_wrong(page: webdriver.Chrome, watched: Watched) -> None:
    page.get(watched.monitor)
    wait_for(page, "source", "Live")
    for field, form, text in (("pattern", "subscribe", "a/b"), ("subject", "publish", "/a//b")):
        element = page.find_element(By.ID, field)
        element.clear()
        element.send_keys(text, Keys.ENTER)
        wait_for(page, "outcome", f"'{text}'")
        assert page.find_element(By.ID, "outcome").get_attribute("class") == "warning", form
    page.find_element(By.ID, "subject").clear()
    page.find_element(By.ID, "subject").send_keys("/a/b", Keys.ENTER)
    wait_for(page, "outcome", "Published /a/b at ")
    assert page.find_element(By.ID, "outcome").get_attribute("class") == ""


def test_it_is_used_with_the_keyboard_alone(page: webdriver.Chrome, watched: Watched) -> None:
    page.get(watched.monitor)
    wait_for(page, "page", "1 to 1 of 1")  # so both buttons of pages are disabled, and skipped
    reached: list[Any] = []
    while "content" not in reached:
        page.switch_to.active_element.send_keys(Keys.TAB)
        at = page.switch_to.active_element
        reached.append(at.get_attribute("id") or at.text)
        assert at.value_of_css_property("outline-style") == "solid", reached
        assert len(reached) < 40, reached
    for name in ("Rates", "Console", "messages", "windows", "indicator", "sort", "slow", "server"):
        assert name in reached
    page.execute_script("document.getElementById('windows').focus()")
    page.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    label = page.find_element(By.ID, "windows").get_attribute("aria-label")
    assert label is not None
    assert label.startswith("up to")


def test_a_member_that_goes_is_told_and_asked_again(page: webdriver.Chrome, tmp_path: Path) -> None:
    authorize(page, "of the monitor")
    with LiveCluster(tmp_path, 3) as cluster:
        page.get(f"http://{cluster.monitors[0]}")
        wait_for(page, "members", "member-3 NORMAL")
        wait_for(page, "cluster-state", "a majority of seeds is in sight")
        cluster.kill(2)
        wait_for(page, "event-rows", "member-3: NORMAL → unreachable")
        wait_for(page, "event-rows", "election: ")
        page.execute_script("document.getElementById('cluster').scrollIntoView()")
        screenshot(page, "dashboard-cluster")
        cluster.kill(0)
        wait_for(page, "health", "No answer from this member")
        wait_for(page, "event-rows", "this member does not answer")
        cluster.start(0)
        wait_for(page, "event-rows", "this member answers again")


def test_every_server_has_an_overview_for_those_with_the_right(
    page: webdriver.Chrome, tmp_path: Path
) -> None:
    settings = ("Listen=127.0.0.1:0", "Entitlement=Basic", "EntitlementAllowToken=t0ken")
    words = [word for one in (*settings, "MonitorPush.Interval=1s") for word in ("--set", one)]
    with live_server(tmp_path, *words) as server:
        page.get(server.url)
        page.find_element(By.LINK_TEXT, "Overview").click()
        wait_for(page, "state", "needs a right that names '/__mdserver__")
        page.find_element(By.ID, "token").send_keys("t0ken", Keys.ENTER)
        wait_for(page, "state", "Live: 1 member publishes figures")
        wait_for(page, "member-rows", "mdserver")
        wait_for(page, "member-rows", "ready")
        screenshot(page, "overview")
        label = "return document.getElementById('connected').getAttribute('aria-label') || ''"
        WebDriverWait(page, WAIT_S).until(lambda _: "connected 1" in page.execute_script(label))
        asked = page.execute_script(
            "return performance.getEntriesByType('resource').map(({ name }) => name)"
        )
        assert asked
        assert all(name.startswith(server.url) for name in asked), "no monitor is asked"
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        assert page.execute_script(TOO_WIDE) == []
        server.stop()
        wait_for(page, "state", "No connection")
