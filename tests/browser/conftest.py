"""One browser for all tests of pages: Debian's Chromium, without a window."""

import os
import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver

OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # it does not start as root otherwise, and sees pages of the tests alone
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP rebound.example 127.0.0.1",
)


def start_chromium() -> webdriver.Chrome | None:
    """Return a browser, or None when there is none on this machine."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in OPTIONS:
        options.add_argument(option)
    return webdriver.Chrome(options, webdriver.ChromeService(driver))


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    """Without Chromium the tests are skipped, which CI takes for a failure."""
    started = start_chromium()
    if started is None:
        missing = "chromium and chromedriver are not on the PATH: `make browser` installs them"
        if os.environ.get("CI"):
            pytest.fail(f"BROWSER TESTS CANNOT RUN: {missing}")
        pytest.skip(f"BROWSER TESTS SKIPPED: {missing}")
    yield started
    started.quit()
