"""Tabs of a browser that share one connection, counted at the monitors of a cluster."""

import base64
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver

from tests.cluster.live_cluster import LiveCluster

WAIT_S = 60
ADMIN = base64.b64encode(b"admin:of the monitor").decode()
# The page comes from one member, and its policy lets it connect there alone; a worker to all.
FOLLOWING = """
  const { connect } = await import("/client/mdserver.js");
  const told = (window.told = { contents: [], types: [], seen: {}, wrong: 0, statuses: [] });
  const client = (window.client = await connect(SERVERS, { shared: true, reconnect: "service" }));
  client.addEventListener("status", ({ detail }) => told.statuses.push(detail.status));
  window.subscription = client.subscribe(PATTERN, ({ subject, content, type, position }) => {
    const before = told.seen[subject];
    if (before !== undefined && position.seq !== before + 1) told.wrong += 1;
    told.seen[subject] = position.seq;
    told.contents.push(content);
    told.types.push(type);
  });
  await subscription.caughtUp();
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(three: LiveCluster) -> LiveCluster:
    """A cluster of which all members run."""
    if 0 not in three.processes:
        three.start(0)
        three.wait_ready(0)
    return three


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("cluster"), 3) as running:
        yield running


class Tab:
    """A tab of the browser; it is looked at by going there."""

    def __init__(self, browser: webdriver.Chrome, name: str) -> None:
        self.browser = browser
        self.name = name

    def run(self, script: str) -> Any:
        """Return what a script in the page returns, once it is there."""
        self.browser.switch_to.window(self.name)
        done = f"const done = arguments[0]; (async () => {{ {script} }})().then("
        told = self.browser.execute_async_script(
            f"{done} (value) => done([value]), (error) => done(String(error)));"
        )
        assert isinstance(told, list), told
        return told[0]

    def wait_for(self, script: str, wanted: object) -> None:
        """Wait until a script returns this."""
        deadline = time.monotonic() + WAIT_S
        while (found := self.run(script)) != wanted:
            assert time.monotonic() < deadline, f"{found} instead of {wanted}"
            time.sleep(0.05)

    def close(self) -> None:
        """Close the tab, of which the page gets to know nothing that it could tell."""
        self.browser.switch_to.window(self.name)
        self.browser.close()


@contextmanager
def tabs(
    browser: webdriver.Chrome, url: str, servers: list[str], pattern: str, count: int
) -> Iterator[list[Tab]]:
    """Open tabs that follow a pattern over one connection; those that are left are closed."""
    first = browser.current_window_handle
    browser.set_script_timeout(WAIT_S)
    opened = []
    try:
        for _ in range(count):
            browser.switch_to.new_window("tab")
            browser.get(f"{url}/demo/")
            tab = Tab(browser, browser.current_window_handle)
            opened.append(tab)
            script = FOLLOWING.replace("SERVERS", json.dumps(servers))
            tab.run(script.replace("PATTERN", json.dumps(pattern)))
        yield opened
    finally:
        for tab in opened:
            if tab.name in browser.window_handles:
                tab.close()
        browser.switch_to.window(first)


def sessions(cluster: LiveCluster) -> list[list[str]]:
    """What each session of browsers at any running member subscribes to."""
    found = []
    for index, process in cluster.processes.items():
        if process.poll() is None:
            monitor = http.client.HTTPConnection(cluster.monitors[index], timeout=WAIT_S)
            try:
                headers = {"authorization": f"Basic {ADMIN}"}
                monitor.request("GET", "/sessions?subscriptions=true", headers=headers)
                rows = json.loads(monitor.getresponse().read())
            finally:
                monitor.close()
            found += [row["names"] for row in rows if row["client"].startswith("mdserver-js")]
    return found


def wait_for_sessions(cluster: LiveCluster, wanted: list[list[str]]) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := sessions(cluster)) != wanted:
        assert time.monotonic() < deadline, f"{found} instead of {wanted}"
        time.sleep(0.05)


def test_tabs_share_a_connection_and_leave_it_without_a_word(
    browser: webdriver.Chrome, cluster: LiveCluster
) -> None:
    url = f"http://{cluster.clients[0]}"
    assert cluster.produce(0, "/tabs/a", "before")
    with tabs(browser, url, cluster.clients, "/tabs/*", 3) as (one, two, three):
        assert sessions(cluster) == [["/tabs/*"]]
        for tab in (one, two, three):
            assert tab.run("return told.types") == ["SNAPSHOT"]
            assert tab.run("return client.shared")
        result = "return (await client.publish('/tabs/a', 'live', { closure: 'mine' })).status"
        assert two.run(result) == "PUBLISH_OK"
        for tab in (one, two, three):
            tab.wait_for("return told.contents", ["before", "live"])
            results = [] if tab is not two else ["PUBLISH_OK"]
            script = "return told.statuses.filter((status) => status.startsWith('PUBLISH'))"
            assert tab.run(script) == results
        two.run("const alone = client.subscribe('/alone/x'); await alone.confirmed()")
        wait_for_sessions(cluster, [["/tabs/*", "/alone/x"]])
        two.close()
        wait_for_sessions(cluster, [["/tabs/*"]])
        # The tab that started the worker goes as well, and the connection stays that of the last.
        one.close()
        assert cluster.produce(1, "/tabs/a", "after")
        three.wait_for("return told.contents", ["before", "live", "after"])
        assert sessions(cluster) == [["/tabs/*"]]
        # What a closed client waited for is waited for no more, though its page stays.
        three.run("await client.close()")
        three.wait_for("return (await navigator.locks.query()).pending.length", 0)
    wait_for_sessions(cluster, [])


def test_all_tabs_go_on_at_another_member(browser: webdriver.Chrome, cluster: LiveCluster) -> None:
    """Under load: each message once and in order in each tab, though their member is killed."""
    url = f"http://{cluster.clients[0]}"
    servers = [cluster.clients[0], f"0 {cluster.clients[1]}"]
    with tabs(browser, url, servers, "/load/*", 2) as both:
        pub = [sys.executable, "-m", "mdserver.cli.main", "pub", "/load/x", "--stdin"]
        with subprocess.Popen(
            [*pub, "--rate", "500", "--server", cluster.clients[2]],
            stdin=subprocess.PIPE,
            text=True,
        ) as publisher:
            try:
                assert publisher.stdin is not None
                publisher.stdin.write("".join(f"{number}\n" for number in range(1000)))
                publisher.stdin.flush()
                both[0].wait_for("return told.contents.length > 0", wanted=True)
                cluster.kill(0)
                publisher.stdin.write("".join(f"{number}\n" for number in range(1000, 2000)))
                publisher.stdin.close()
                assert publisher.wait(WAIT_S) == 0
            finally:
                publisher.kill()
        for tab in both:
            tab.wait_for("return told.contents.length >= 2000", wanted=True)
            assert tab.run("return told.contents") == [str(number) for number in range(2000)]
            assert tab.run("return told.wrong") == 0
            assert "DATA_RESYNC" not in tab.run("return told.statuses")
        assert sessions(cluster) == [["/load/*"]]
