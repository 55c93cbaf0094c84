"""The page that a monitor shows at `/`, in a real browser."""

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
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
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
MANY = 120  # sessions: more than two pages
ROWS_OF_A_PAGE = 50

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


def test_many_sessions_come_in_pages(page: webdriver.Chrome, watched: Watched) -> None:
    with ExitStack() as sockets:
        url = watched.server.url.replace("http", "ws") + "/ws"
        for _ in range(MANY):
            sockets.enter_context(connect(url))
        page.get(watched.monitor)
        rows = "return document.querySelectorAll('#session-rows tr').length"
        wait_for(page, "source", "Live")
        every = MANY + 1  # with the page itself
        for shown in (f"1 to 50 of {every}", f"51 to 100 of {every}", f"101 to 121 of {every}"):
            wait_for(page, "page", shown)
            assert page.execute_script(rows) <= ROWS_OF_A_PAGE
            click(page, "#next")
        assert not page.find_element(By.ID, "next").is_enabled()
        Select(page.find_element(By.ID, "sort")).select_by_value("silent_ms")
        wait_for(page, "page", f"1 to 50 of {every}")


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
    assert page.execute_script("return innerWidth") == 390
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in colour[4:-1].split(", ")) < 64
    screenshot(page, "dashboard-phone")


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
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
        server.stop()
        wait_for(page, "state", "No connection")
