"""`<md-value>`, `<md-table>` and `<md-sparkline>` in a real browser."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.live import LiveServer, live_server, post

DOCUMENT = Path(__file__).parents[2] / "docs" / "javascript.md"
WAIT_S = 60
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
POLICY = (
    "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
    'script-src http://127.0.0.1:8800; connect-src http://127.0.0.1:8800 ws://127.0.0.1:8800">'
)
SCRIPT = '<script type="module" src="http://127.0.0.1:8800/client/components.js"></script>'
HEAD = f'<!doctype html><meta name="viewport" content="width=device-width">{POLICY}{SCRIPT}'
SOCKETS = """
  window.sockets = 0;
  window.WebSocket = class extends WebSocket {
    constructor(...given) { super(...given); window.sockets += 1; }
  };
  window.flashes = [];
  addEventListener("DOMContentLoaded", () => new MutationObserver((changes) => {
    for (const { target } of changes) if (target.className) flashes.push(target.className);
  }).observe(document.body, { subtree: true, attributeFilter: ["class"] }));
"""

pytestmark = pytest.mark.slow


def serve(folder: Path, *settings: str) -> Any:
    given = ("AllowedOrigins=*", *settings)
    return live_server(folder, *(word for each in given for word in ("--set", each)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with serve(tmp_path, "Listen=127.0.0.1:0", "Entitlement=None") as running:
        yield running


@pytest.fixture
def page(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser, which counts the WebSockets of its pages and notes classes that elements get."""
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SOCKETS})
    yield browser
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get("about:blank")


def show(browser: webdriver.Chrome, page: str, port: int, folder: Path) -> None:
    """Open a page whose elements speak with the server at this port, from a file."""
    file = folder / "page.html"
    file.write_text(page.replace("127.0.0.1:8800", f"127.0.0.1:{port}"), encoding="utf-8")
    browser.get(file.as_uri())


def part(browser: webdriver.Chrome, element: str, name: str = "content") -> str:
    """Return the text of a part of the first such element."""
    root = browser.find_element(By.CSS_SELECTOR, element).shadow_root
    return root.find_element(By.CSS_SELECTOR, f"[part~={name}]").text


def wait_for(browser: webdriver.Chrome, element: str, text: str, name: str = "content") -> None:
    WebDriverWait(browser, WAIT_S).until(
        lambda _: text in part(browser, element, name), f"{text!r} is not shown in {element}"
    )


def wait_for_state(browser: webdriver.Chrome, element: str, state: str) -> None:
    found = browser.find_element(By.CSS_SELECTOR, element)
    WebDriverWait(browser, WAIT_S).until(
        lambda _: found.get_attribute("state") == state, f"{element} is not {state}"
    )


def publish(server: LiveServer, subject: str, content: str, **fields: str) -> None:
    command = [sys.executable, "-m", "mdserver.cli.main", "pub", "--stdin", "--server", server.url]
    line = json.dumps({"subject": subject, "content": content, "fields": fields})
    subprocess.run(command, input=line, text=True, check=True, timeout=WAIT_S)


def test_the_page_of_the_document(
    tmp_path: Path, page: webdriver.Chrome, server: LiveServer
) -> None:
    blocks = re.findall(r"^```html\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    publish(server, "/stocks/IBM", "190", bid="189.5", ask="190.5")
    show(page, blocks[1].replace('<meta charset="utf-8" />', POLICY), server.port, tmp_path)
    wait_for(page, "md-value", "189.50")
    wait_for(page, "md-table", "/stocks/IBM 190 189.5 190.5")
    publish(server, "/stocks/IBM", "191", bid="191.25")
    publish(server, "/stocks/AAPL", "231.5", bid="231")
    wait_for(page, "md-value", "191.25")
    wait_for(page, "md-table", "/stocks/IBM 191 191.25 190.5")
    wait_for(page, "md-table", "/stocks/AAPL 231.5 231")
    lines = part(page, "md-table").splitlines()
    assert lines[:2] == ["Stocks", "subject content bid ask"]
    assert [line.split()[0] for line in lines[2:4]] == ["/stocks/AAPL", "/stocks/IBM"]
    svg = page.find_element(By.CSS_SELECTOR, "md-sparkline").shadow_root.find_element(
        By.CSS_SELECTOR, "svg"
    )
    said = "bid of /stocks/IBM: 2 values from 189.5 to 191.25, now 191.25"
    WebDriverWait(page, WAIT_S).until(lambda _: svg.get_attribute("aria-label") == said)
    assert page.execute_script("return sockets") == 1
    assert page.execute_script("return flashes") == ["up"]
    for element in ("md-value", "md-table", "md-sparkline"):
        wait_for_state(page, element, "live")
        assert part(page, element, "trouble") == ""


def test_the_page_with_a_client_of_its_own(
    tmp_path: Path, page: webdriver.Chrome, server: LiveServer
) -> None:
    blocks = re.findall(r"^```html\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    post(server.url, "/stocks/IBM", content="190")
    block = re.sub(r"const token = .*", 'const token = "any";', blocks[2])
    show(page, f"<!doctype html><body>{block}</body>", server.port, tmp_path)
    WebDriverWait(page, WAIT_S).until(lambda _: page.find_elements(By.CSS_SELECTOR, "md-value"))
    wait_for(page, "md-value", "190")


@pytest.mark.parametrize(
    ("element", "sentence"),
    [
        ('<md-value subject="stocks/IBM">', "Subject 'stocks/IBM' does not start with '/'"),
        ("<md-value>", '<md-value> needs a subject, such as subject="/stocks/IBM".'),
        (
            '<md-sparkline subject="/a/*">',
            "'/a/*' is a pattern: <md-sparkline> shows one subject, <md-table> many.",
        ),
        (
            '<md-table subject="/a/x" rows="ten">',
            'rows="ten" is no whole number such as rows="100".',
        ),
        ('<md-value subject="/a/x" server="x://y">', "the scheme is one of http, ws, https, wss"),
    ],
)
def test_a_mistake_stands_in_the_element(
    tmp_path: Path, page: webdriver.Chrome, server: LiveServer, element: str, sentence: str
) -> None:
    show(page, HEAD + element, server.port, tmp_path)
    name = element[1:].split(" ", maxsplit=1)[0].rstrip(">")
    wait_for_state(page, name, "error")
    wait_for(page, name, sentence, "trouble")
    assert len(part(page, name, "trouble").splitlines()) == 1
    # An attribute that is put right is enough.
    page.execute_script(
        "const [element] = document.querySelectorAll(arguments[0]);"
        "for (const name of ['rows', 'server']) element.removeAttribute(name);"
        "element.setAttribute('subject', '/a/x');",
        name,
    )
    wait_for_state(page, name, "live")


def test_no_server_and_one_that_comes_back(tmp_path: Path, page: webdriver.Chrome) -> None:
    settings = ("Listen=127.0.0.1:0", "Entitlement=None")
    body = '<md-value id="a" subject="/a/x"></md-value><md-value id="b" subject="/b/x" server="{}">'
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        with serve(tmp_path, *settings) as server:
            post(server.url, "/a/x", content="before")
            show(page, HEAD.replace(POLICY, "") + body.format(nobody), server.port, tmp_path)
            wait_for(page, "#a", "before")
            wait_for(page, "#b", f"No connection: {nobody}: ", "trouble")
            wait_for_state(page, "#b", "connecting")
            port = server.port
            server.process.kill()
            server.process.wait()
            wait_for_state(page, "#a", "reconnecting")
            wait_for(page, "#a", "Trying again.", "trouble")
            assert part(page, "#a") == "before"
        with serve(tmp_path, f"Listen=127.0.0.1:{port}", "Entitlement=None") as second:
            wait_for_state(page, "#a", "live")
            assert part(page, "#a", "trouble") == ""
            post(second.url, "/a/x", content="after")
            wait_for(page, "#a", "after")


def test_what_is_not_permitted(tmp_path: Path, page: webdriver.Chrome) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef", encoding="utf-8")
    secret.chmod(0o600)
    command = [sys.executable, "-m", "mdserver.cli.main", "token", "--sub", "/a/**"]
    made = subprocess.run(
        [*command, "--expires", "1h", "--secret-file", secret],
        check=True,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    jwt = ("Entitlement=JWT", f"EntitlementJWT.HmacSecretFile={secret}")
    with serve(tmp_path, "Listen=127.0.0.1:0", *jwt) as server:
        show(page, HEAD + '<md-value subject="/a/b"></md-value>', server.port, tmp_path)
        wait_for(page, "md-value", "The server refuses this page: ", "trouble")
        wait_for_state(page, "md-value", "error")
        script = f"""<script type="module">
          import {{ Client }} from "http://127.0.0.1:8800/client/mdserver.js";
          import {{ useClient }} from "http://127.0.0.1:8800/client/components.js";
          useClient(new Client("127.0.0.1:8800", {{ token: "{made.stdout.strip()}" }}));
          for (const subject of ["/a/b", "/c/d"]) {{
            const element = document.createElement("md-value");
            element.id = subject.slice(1, 2);
            element.setAttribute("subject", subject);
            document.body.append(element);
          }}
        </script>"""
        show(page, f"<!doctype html><body>{script}</body>", server.port, tmp_path)
        WebDriverWait(page, WAIT_S).until(lambda _: page.find_elements(By.ID, "c"))
        wait_for_state(page, "#a", "live")
        wait_for_state(page, "#c", "error")
        wait_for(page, "#c", "/c/d: ", "trouble")


def test_elements_that_come_and_go_share_a_connection(
    tmp_path: Path, page: webdriver.Chrome, server: LiveServer
) -> None:
    post(server.url, "/a/x", content="1")
    show(page, f"{HEAD}<body>", server.port, tmp_path)
    page.execute_script(
        "for (let each = 0; each < 500; each += 1) {"
        "  const element = document.createElement('md-value');"
        "  element.setAttribute('subject', '/a/x');"
        "  document.body.append(element);"
        "}"
    )
    shown = (
        "return [...document.querySelectorAll('md-value')].filter("
        "({shadowRoot}) => shadowRoot.querySelector('[part=content]').textContent === arguments[0]"
        ").length"
    )
    WebDriverWait(page, WAIT_S).until(lambda _: page.execute_script(shown, "1") == 500)
    page.execute_script(
        "[...document.querySelectorAll('md-value')].slice(1).map((e) => e.remove())"
    )
    post(server.url, "/a/x", content="2")
    WebDriverWait(page, WAIT_S).until(lambda _: page.execute_script(shown, "2") == 1)
    assert page.execute_script("return sockets") == 1


def test_a_wide_table_fits_a_phone(
    tmp_path: Path, page: webdriver.Chrome, server: LiveServer
) -> None:
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    post(server.url, "/a/subject/of/some/length", content="W" * 300)
    table = '<md-table subject="/**" rows="2" fields="content,one,two,three"></md-table>'
    show(page, HEAD + table, server.port, tmp_path)
    wait_for(page, "md-table", "WWW")
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    for name in ("b", "c", "d"):
        post(server.url, f"/{name}/x", content=name)
    wait_for(page, "md-table", "and 2 more")
