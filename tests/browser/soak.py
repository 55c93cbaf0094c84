"""`python -m tests.browser.soak`: very many messages into one page, none lost, its memory flat.

A page counts the messages of a subject by their positions, and shows them in elements. Its heap is
measured after the browser collected garbage.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen
from selenium import webdriver

from tests.browser.conftest import start_chromium
from tests.live import LiveServer, live_server

LOOK_AGAIN_S = 0.2
LATE_S = 120
# A page that is too slow for a while is disconnected, and finds here all that it missed.
CACHE = "MaxCachedMessagesPerSubject=100000"
PAGE = """<!doctype html><meta charset="utf-8">
<script type="module" src="http://127.0.0.1:8800/client/components.js"></script>
<md-value subject="/many/x"></md-value>
<md-sparkline subject="/many/x" history="0"></md-sparkline>
<script type="module">
  import { Client } from "http://127.0.0.1:8800/client/mdserver.js";
  window.told = { ready: false, seen: 0, wrong: 0 };
  const client = new Client("127.0.0.1:8800");
  const subscription = client.subscribe("/many/x", ({ position }) => {
    told.seen += 1;
    if (position.seq !== told.seen) told.wrong += 1;
  });
  await subscription.confirmed();
  told.ready = true;
</script>"""


@frozen
class Look:
    """What the page had taken when it was looked at, and what it held then."""

    seen: int
    wrong: int
    heap_bytes: int
    nodes: int


def look(browser: webdriver.Chrome) -> Look:
    """Look at the page."""
    browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    browser.execute_cdp_cmd("Performance.enable", {})
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    figures = {metric["name"]: int(metric["value"]) for metric in metrics}
    told = browser.execute_script("return told")
    return Look(told["seen"], told["wrong"], figures["JSHeapUsedSize"], figures["Nodes"])


@contextmanager
def publishing(server: LiveServer, messages: int, rate: int) -> Iterator[subprocess.Popen[Any]]:
    """Publish numbers to `/many/x`, so many a second."""
    pub = [sys.executable, "-m", "mdserver.cli.main", "pub", "/many/x", "--stdin"]
    with subprocess.Popen(
        [*pub, "--rate", str(rate), "--server", server.url], stdin=subprocess.PIPE, text=True
    ) as publisher:
        stdin = publisher.stdin
        assert stdin is not None

        def write() -> None:
            try:
                stdin.writelines(f"{number}\n" for number in range(messages))
                stdin.close()
            except OSError:
                pass  # the publisher was ended

        threading.Thread(target=write, daemon=True).start()
        try:
            yield publisher
        finally:
            publisher.kill()


def soak(
    browser: webdriver.Chrome, folder: Path, *, messages: int, rate: int, looks: int
) -> list[Look]:
    """Publish messages while a page takes them, and look at it so many times in between."""
    settings = ("Listen=127.0.0.1:0", "Entitlement=None", "AllowedOrigins=*", CACHE)
    with live_server(folder, *(word for each in settings for word in ("--set", each))) as server:
        file = folder / "page.html"
        file.write_text(PAGE.replace("127.0.0.1:8800", f"127.0.0.1:{server.port}"), "utf-8")
        browser.get(file.as_uri())
        _until(browser, "told.ready")
        with publishing(server, messages, rate) as publisher:
            taken = []
            for each in range(1, looks + 1):
                _until(browser, f"told.seen >= {messages * each // looks}", messages / rate)
                taken.append(look(browser))
            assert publisher.wait(LATE_S) == 0
        return taken


def _until(browser: webdriver.Chrome, condition: str, patience_s: float = 0) -> None:
    deadline = time.monotonic() + LATE_S + 10 * patience_s
    while not browser.execute_script(f"return window.told !== undefined && {condition}"):
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition}: {browser.execute_script('return told')}")
        time.sleep(LOOK_AGAIN_S)


def main() -> int:
    """Print what the page held after each tenth; return 1 if a message was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.soak", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--rate", type=int, default=10_000, help="messages a second")
    given = parser.parse_args()
    browser = start_chromium()
    if browser is None:
        print("There is no Chromium: `make browser` installs it.", file=sys.stderr)
        return 1
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            taken = soak(
                browser,
                Path(folder),
                messages=given.seconds * given.rate,
                rate=given.rate,
                looks=10,
            )
    finally:
        browser.quit()
    took_s = time.monotonic() - began
    for each in taken:
        print(f"{each.seen} messages, {each.wrong} wrong, {each.heap_bytes / 1e6:.2f} MB of heap")
    print(f"{taken[-1].seen / took_s:.0f} messages a second on average")
    return 1 if taken[-1].wrong else 0


if __name__ == "__main__":
    sys.exit(main())
