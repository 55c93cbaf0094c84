"""The pages of `make demo` in a real browser."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.live import post

DEMO = Path(__file__).parents[2] / "docs" / "examples" / "demo.py"
WAIT_S = 60
CROWD = 100
BEAT_PAUSE_S = 1
PHONE = {"width": 360, "height": 780, "deviceScaleFactor": 1, "mobile": True}
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of the demos of a running `make demo`."""
    with subprocess.Popen([sys.executable, DEMO], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            # What it prints is read, so that nothing of it waits for a reader.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield f"{address}/demo/"
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()


@pytest.fixture
def page(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    browser.get_log("browser")
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    said = [each["message"] for each in browser.get_log("browser") if each["level"] == "SEVERE"]
    assert not [each for each in said if "favicon" not in each]
    browser.get("about:blank")


def wait_for(page: webdriver.Chrome, selector: str, text: str) -> None:
    WebDriverWait(page, WAIT_S).until(
        lambda _: text in page.find_element(By.CSS_SELECTOR, selector).text,
        f"{text!r} is not shown in {selector}",
    )


def fits(page: webdriver.Chrome) -> None:
    """Assert that a phone shows the whole width, and that the page is dark if that is wanted."""
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", DARK)
    assert page.execute_script("return innerWidth") == 360
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360
    colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert max(map(int, colour[4:-1].split(", "))) < 64


def test_the_way_from_the_first_page(page: webdriver.Chrome, url: str) -> None:
    page.get(url)
    fits(page)
    for name, title in (("Market", "Market"), ("Vehicles", "Buses"), ("Chat", "Chat")):
        page.find_element(By.LINK_TEXT, name).click()
        wait_for(page, "h1", title)
        page.back()
        wait_for(page, "h1", "Demos")


def test_the_market_changes_many_cells_a_second(page: webdriver.Chrome, url: str) -> None:
    page.get(f"{url}market.html")
    wait_for(page, "#state", "Live")
    WebDriverWait(page, WAIT_S).until(
        lambda _: page.execute_script("return document.querySelectorAll('tbody tr').length") == 200
    )
    figures = "return document.getElementById('figures').textContent.match(/\\d+/g)?.map(Number)"
    WebDriverWait(page, WAIT_S).until(
        lambda _: (page.execute_script(figures) or [0, 0])[1] > 500, "few cells change"
    )
    # What a cell shows changes the width of no column, and so the place of nothing else.
    assert page.execute_script(
        "return [...document.querySelectorAll('#market table')].every((table) =>"
        " getComputedStyle(table).tableLayout === 'fixed')"
    )
    assert page.execute_script(
        "return [...document.querySelectorAll('#market td')].every((cell) =>"
        " cell.scrollWidth <= cell.clientWidth)"
    )
    # Fewer messages come when each cell changes once a second at most.
    select = page.find_element(By.ID, "conflation")
    select.send_keys("once a second")
    WebDriverWait(page, WAIT_S).until(
        lambda _: 0 < page.execute_script(figures)[0] <= 400, "messages are not conflated"
    )
    fits(page)


def test_buses_move(page: webdriver.Chrome, url: str) -> None:
    page.get(f"{url}vehicles.html")
    wait_for(page, "#state", "Live")
    wait_for(page, "#figures", "routes")
    label = "return document.getElementById('map').getAttribute('aria-label')"
    WebDriverWait(page, WAIT_S).until(
        lambda _: int(page.execute_script(label).split()[1]) > 10, "few buses are there"
    )
    drawn = "return document.getElementById('map').toDataURL()"
    before = page.execute_script(drawn)
    WebDriverWait(page, WAIT_S).until(lambda _: page.execute_script(drawn) != before)
    fits(page)


def test_what_is_no_route_does_not_stop_the_buses(page: webdriver.Chrome, url: str) -> None:
    for name, content in (("a", "{}"), ("b", "null"), ("c", "[1]"), ("d", "no JSON")):
        post(url.removesuffix("/demo/"), f"/routes/{name}", content=content)
    page.get(f"{url}vehicles.html")
    wait_for(page, "#figures", "routes")
    drawn = "return document.getElementById('map').toDataURL()"
    before = page.execute_script(drawn)
    WebDriverWait(page, WAIT_S).until(lambda _: page.execute_script(drawn) != before)


def test_very_many_people_at_once_are_answered_together(page: webdriver.Chrome, url: str) -> None:
    page.get(f"{url}chat.html")
    wait_for(page, "#state", "Connected")
    page.execute_script(
        "window.beats = 0;"
        "const send = WebSocket.prototype.send;"
        "WebSocket.prototype.send = function (payload) {"
        "  beats += payload.split('\"/presence/lobby/').length - 1;"
        "  return send.call(this, payload);"
        "};"
    )
    began = time.monotonic()
    for number in range(CROWD):
        post(url.removesuffix("/demo/"), f"/presence/lobby/crowd{number}", content="Somebody")
    WebDriverWait(page, WAIT_S).until(
        lambda _: len(page.find_elements(By.CSS_SELECTOR, "#people li")) > CROWD // 2, "nobody came"
    )
    WebDriverWait(page, WAIT_S).until(lambda _: page.execute_script("return beats"), "no answer")
    beats = page.execute_script("return beats")
    took_s = time.monotonic() - began
    assert 1 <= beats <= took_s / BEAT_PAUSE_S + 2


def test_two_people_chat(page: webdriver.Chrome, url: str) -> None:
    def enter(name: str) -> None:
        page.get(f"{url}chat.html")
        wait_for(page, "#state", "Connected")
        field = page.find_element(By.ID, "name")
        field.clear()
        field.send_keys(name, Keys.ENTER)
        wait_for(page, "#people", name)

    enter("Ann")
    page.find_element(By.ID, "text").send_keys("Is anybody <b>there</b>?", Keys.ENTER)
    wait_for(page, "#talk", "Ann Is anybody <b>there</b>?")
    first = page.current_window_handle
    page.switch_to.new_window("tab")
    enter("Bob")
    wait_for(page, "#talk", "Ann Is anybody <b>there</b>?")
    wait_for(page, "#people", "Ann")
    page.find_element(By.ID, "text").send_keys("Yes", Keys.ENTER)
    wait_for(page, "#talk", "Bob Yes")
    fits(page)
    page.close()
    page.switch_to.window(first)
    wait_for(page, "#talk", "Bob Yes")
    WebDriverWait(page, WAIT_S).until(
        lambda _: page.find_element(By.ID, "people").text == "Ann", "Bob is still there"
    )
    assert page.find_element(By.ID, "talk").text.splitlines() == [
        "Ann Is anybody <b>there</b>?",
        "Bob Yes",
    ]
