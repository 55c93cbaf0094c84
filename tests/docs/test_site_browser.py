"""The site in a real browser: on a telephone, in the dark, its versions, its search, its viewer."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from simulation.chaos import releases
from tests.browser.conftest import browser
from tests.docs.test_site import VERSION, built, pytestmark

__all__ = ["browser", "built", "pytestmark"]
PATIENCE_S = 60
TELEPHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
WIDTHS = "return [document.documentElement.scrollWidth, innerWidth]"
LOADED = """
const loaded = (frame) => frame.performance.getEntriesByType("resource").map((each) => each.name);
const within = [...document.querySelectorAll("iframe")].map((each) => each.contentWindow);
return [window, ...within].flatMap(loaded).map((name) => new URL(name).origin);
"""
COLOURS = """
const box = document.querySelector(".diagram .part > path");
const text = document.querySelector(".diagram text");
return [getComputedStyle(box).fill, getComputedStyle(text).fill];
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture(scope="module")
def url(built: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = functools.partial(Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


@pytest.fixture
def telephone(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser with a screen of 360 pixels."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", TELEPHONE)
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def soon(browser: webdriver.Chrome, script: str) -> object:
    """Return what a script answers, once that is neither empty nor false."""
    return WebDriverWait(browser, PATIENCE_S).until(lambda _: browser.execute_script(script))


PAGES = ("index", "design", "cluster", "pipeline", "configuration", "openapi-viewer", "metrics")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_a_telephone_and_loads_nothing_from_elsewhere(
    telephone: webdriver.Chrome, url: str, page: str
) -> None:
    telephone.get(f"{url}/{VERSION}/{page}.html")
    soon(telephone, "return document.readyState == 'complete'")
    width, room = telephone.execute_script(WIDTHS)
    assert width <= room
    if page == "openapi-viewer":
        shown = "return frames.length && frames[0].document.querySelectorAll('.opblock').length"
        assert soon(telephone, shown)
    origins = telephone.execute_script(LOADED)
    assert origins
    assert set(origins) == {url}


def test_a_diagram_has_the_colours_that_its_reader_chose(
    browser: webdriver.Chrome, url: str
) -> None:
    browser.get(f"{url}/{VERSION}/cluster.html")
    light = browser.execute_script(COLOURS)
    browser.execute_script("document.body.setAttribute('data-md-color-scheme', 'slate')")
    dark = browser.execute_script(COLOURS)
    assert light != dark
    assert all(before != after for before, after in zip(light, dark, strict=True))


@pytest.mark.skipif(releases.missing() is not None, reason=f"one version: {releases.missing()}")
def test_the_selector_leads_to_the_release_before_and_back(
    browser: webdriver.Chrome, url: str
) -> None:
    browser.get(f"{url}/")
    WebDriverWait(browser, PATIENCE_S).until(lambda _: f"/{VERSION}/" in browser.current_url)
    choices = "return [...document.querySelectorAll('.md-version__link')].map((each) => each.href)"
    links = soon(browser, choices)
    assert isinstance(links, list)
    assert [link.removeprefix(url).split("/")[1] for link in links] == [VERSION, releases.RELEASE]
    browser.get(links[1])
    assert soon(browser, choices)
    current = browser.find_element(By.CSS_SELECTOR, ".md-version__current")
    assert current.get_attribute("textContent").strip().startswith(releases.RELEASE)


def test_a_word_is_found(browser: webdriver.Chrome, url: str) -> None:
    browser.get(f"{url}/{VERSION}/index.html?q=conflation")
    found = "return document.querySelector('.md-search-result__link')?.href"
    assert str(soon(browser, found)).startswith(f"{url}/{VERSION}/")
