"""What the pages and the JavaScript client promise above all, in Firefox."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.firefox import Firefox, firefox
from tests.browser.proxies import no_websockets
from tests.browser.test_hard_times import page_by
from tests.browser.test_javascript import CACHE, COUNTING, follow_a_dying_member
from tests.cluster.live_cluster import LiveCluster
from tests.live import LiveServer, live_server, post

TOP = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    """Without Firefox the tests are skipped, which CI takes for a failure."""
    program = shutil.which("firefox-esr")
    if program is None:
        missing = "firefox-esr is not on the PATH: `make browser` installs it"
        if os.environ.get("CI"):
            pytest.fail(f"FIREFOX TESTS CANNOT RUN: {missing}")
        pytest.skip(f"FIREFOX TESTS SKIPPED: {missing}")
    with firefox(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def serve(folder: Path, listen: str = "127.0.0.1:0"):  # type: ignore[no-untyped-def]
    settings = (f"Listen={listen}", "Entitlement=None", "AllowedOrigins=*", CACHE)
    return live_server(folder, *(word for each in settings for word in ("--set", each)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with serve(tmp_path) as running:
        yield running


def show(page: Firefox, text: str, server: LiveServer, folder: Path) -> None:
    """Open a page that speaks with this server, from a file."""
    file = folder / "page.html"
    file.write_text(text.replace("127.0.0.1:8800", f"127.0.0.1:{server.port}"), encoding="utf-8")
    page.get(file.as_uri())


def shown(element: str) -> str:
    return f"document.getElementById('{element}').innerText"


def in_element(name: str, part: str = "content") -> str:
    """The text of a part of an element, as an expression."""
    return f"document.querySelector('{name}').shadowRoot.querySelector('[part={part}]').innerText"


def blocks() -> list[str]:
    text = (TOP / "docs" / "javascript.md").read_text(encoding="utf-8")
    return re.findall(r"^```html\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_welcome_page_subscribes_and_publishes(page: Firefox, server: LiveServer) -> None:
    page.get(server.url)
    page.wait_for(shown("state"), "Connected to")
    page.evaluate("document.querySelector('#publish button').click()")
    page.wait_for(shown("messages"), "Hello, world")
    post(server.url, "/other/subject", content="from elsewhere")
    page.wait_for(shown("messages"), "from elsewhere")


def test_the_pages_of_the_document(page: Firefox, server: LiveServer, tmp_path: Path) -> None:
    post(server.url, "/stocks/IBM", content="191")
    show(page, blocks()[0], server, tmp_path)
    page.wait_for(shown("bid"), "191")
    show(page, blocks()[1].replace(' field="bid"', ""), server, tmp_path)
    page.wait_for(in_element("md-value"), "191.00")
    page.wait_for(in_element("md-table"), "/stocks/IBM")
    post(server.url, "/stocks/IBM", content="192")
    page.wait_for(in_element("md-value"), "192.00")
    svg = "document.querySelector('md-sparkline').shadowRoot.querySelector('svg')"
    page.wait_for(f"{svg}.getAttribute('aria-label')", "2 values from 191 to 192, now 192")


def test_elements_see_a_server_go_and_come_back(page: Firefox, tmp_path: Path) -> None:
    state = "document.querySelector('md-value').getAttribute('state')"
    with serve(tmp_path) as server:
        post(server.url, "/stocks/IBM", content="1")
        show(page, blocks()[1].replace(' field="bid"', ""), server, tmp_path)
        page.wait_for(in_element("md-value"), "1.00")
        listen = f"127.0.0.1:{server.port}"
        server.process.kill()
        server.process.wait()
        page.wait_for(state, "reconnecting")
    with serve(tmp_path, listen) as second:
        page.wait_for(state, "live")
        post(second.url, "/stocks/IBM", content="2")
        page.wait_for(in_element("md-value"), "2.00")


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_tens_of_thousands_of_messages_into_a_page(
    page: Firefox, server: LiveServer, tmp_path: Path, transport: str
) -> None:
    old = 'new Client("127.0.0.1:8800")'
    assert old in COUNTING
    text = COUNTING.replace(old, old.replace(")", f", {{ transport: '{transport}' }})"))
    show(page, text, server, tmp_path)
    page.wait_for(shown("state"), "ready")
    lines = "".join(f"{number}\n" for number in range(50_000))
    pub = [sys.executable, "-m", "mdserver.cli.main", "pub", "/many/x", "--stdin"]
    subprocess.run([*pub, "--server", server.url], input=lines, text=True, check=True)
    page.wait_for(shown("state"), "50000 seen, 0 wrong")


def test_http_when_no_websocket_gets_through(
    page: Firefox, server: LiveServer, tmp_path: Path
) -> None:
    with no_websockets(server.port) as proxy:
        page.get(page_by(proxy.port, tmp_path, "3"))
        page.wait_for(shown("state"), "ready")
        for number in range(3):
            post(server.url, "/many/x", content=str(number))
        page.wait_for(shown("state"), "3 seen, 0 wrong")
        assert proxy.refused == 1


def test_a_page_goes_on_after_its_socket_is_lost(
    page: Firefox, server: LiveServer, tmp_path: Path
) -> None:
    """As for the back button: put aside and taken up again, it recovers what came meanwhile."""
    page.get(page_by(server.port, tmp_path, "3"))
    page.wait_for(shown("state"), "ready")
    post(server.url, "/many/x", content="1")
    page.wait_for("document.title", "1")
    event = "dispatchEvent(new PageTransitionEvent('{}', {{ persisted: true }}))"
    page.evaluate(event.format("pagehide"))
    post(server.url, "/many/x", content="2")
    page.evaluate(event.format("pageshow"))
    post(server.url, "/many/x", content="3")
    page.wait_for(shown("state"), "3 seen, 0 wrong")


def test_a_page_goes_on_at_another_member(page: Firefox, tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3, settings={"AllowedOrigins": "*"}) as cluster:
        follow_a_dying_member(
            cluster, tmp_path, page.get, lambda text: page.wait_for(shown("state"), text)
        )


def test_a_hidden_page_takes_messages(page: Firefox, server: LiveServer, tmp_path: Path) -> None:
    page.get(page_by(server.port, tmp_path, "3"))
    page.wait_for(shown("state"), "ready")
    with page.hidden():
        assert page.evaluate("document.visibilityState") == "hidden"
        for number in range(3):
            post(server.url, "/many/x", content=str(number))
        page.wait_for(shown("state"), "3 seen, 0 wrong")
    page.wait_for("document.visibilityState", "visible")


def test_a_token_is_renewed_in_band(page: Firefox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef", encoding="utf-8")
    secret.chmod(0o600)
    settings = (
        "Listen=127.0.0.1:0",
        "Entitlement=JWT",
        f"EntitlementJWT.HmacSecretFile={secret}",
        "EntitlementJWT.RenewTokenBeforeSeconds=118",
    )
    command = [sys.executable, "-m", "mdserver.cli.main", "token", "--all", "/a/**"]
    tokens = [
        subprocess.run(
            [*command, "--expires", lasting, "--secret-file", secret],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for lasting in ("120s", "1h")
    ]
    arguments = [word for setting in settings for word in ("--set", setting)]
    with live_server(tmp_path, *arguments) as server:
        page.get(f"{server.url}/demo/")
        page.evaluate(
            "(async () => {"
            " const { Client } = await import('/client/mdserver.js');"
            f" const tokens = {json.dumps(tokens)};"
            " window.told = [];"
            " window.client = new Client(undefined, { token: () => tokens.shift() });"
            " client.addEventListener('status', ({ detail }) => told.push(detail.status));"
            " await client.connected();"
            "})()"
        )
        page.wait_for("told.join()", "SERVER_UP,TOKEN_TO_EXPIRE,TOKEN_UPDATED")
        assert page.evaluate("client.publish('/a/b', '1').then(({ status }) => status)") == (
            "PUBLISH_OK"
        )
        assert "SERVER_DOWN" not in page.evaluate("told.join()")
        page.evaluate("client.close()")


def test_a_connection_in_a_worker(page: Firefox, server: LiveServer) -> None:
    page.get(f"{server.url}/demo/")
    shared = (
        "(async () => {"
        " const { connect } = await import('/client/mdserver.js');"
        " const client = await connect(undefined, { shared: true });"
        " window.told = [];"
        " await client.subscribe('/a/b', ({ content }) => told.push(content)).confirmed();"
        " return client.shared;"
        "})()"
    )
    assert page.evaluate(shared) is True
    post(server.url, "/a/b", content="in the worker")
    page.wait_for("told.join()", "in the worker")
