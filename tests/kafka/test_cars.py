"""docs/tutorials/kafka.md: its commands, a real broker, Spark, and its page in a real browser."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from mdserver.bench.processes import free_ports
from tests.browser.conftest import start_chromium
from tests.live import live_server, wait_for_line
from tests.live_kafka import JARS, SILENT, LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs/tutorials/kafka.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CARS = TOP / "docs/examples/vehicles_kafka.py"
TOPICS = ("vehicles", "notifications", "averages", "commands")
PATIENCE_S = 300  # two times Spark and a browser start beside each other
STALE = (StaleElementReferenceException,)
PHONE = {"width": 360, "height": 780, "deviceScaleFactor": 1, "mobile": True}
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    started = start_chromium()
    if started is None:
        if os.environ.get("CI"):
            pytest.fail("THE PAGE CANNOT BE TESTED: no chromium and chromedriver on the PATH")
        pytest.skip("no chromium and chromedriver on the PATH")
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture
def topics(kafka: LiveKafka) -> Iterator[LiveKafka]:
    """A broker that has the topics of the tutorial, empty; other tests have some of these names."""
    for topic in TOPICS:
        with contextlib.suppress(KafkaException):
            kafka.delete(topic)
        kafka.create(topic)
    yield kafka
    for topic in TOPICS:
        kafka.delete(topic)


def block(word: str) -> str:
    """Return the block of the page that has this word."""
    (found,) = [each for each in BLOCKS if word in each]
    return found


class Shell:
    """Runs blocks of the page, with the places of a test instead of those that it names."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.folder = folder
        self._places = {
            "127.0.0.1:9092": servers,
            "127.0.0.1:8800": "127.0.0.1:0",
            ".venv/bin": str(Path(sys.executable).parent),
            "build/cars": str(folder),
            "build/jvm": str(JARS),
        }

    def words(self, text: str) -> list[str]:
        for named, here in self._places.items():
            text = text.replace(named, here)
        return ["bash", "-euo", "pipefail", "-c", text]

    def run(self, text: str) -> None:
        subprocess.run(self.words(text), cwd=TOP, check=True, timeout=60, capture_output=True)

    @contextlib.contextmanager
    def running(self, text: str, name: str) -> Iterator[Path]:
        """Run a block until the end of the `with` block; yield the file of what it prints."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.words(text), cwd=TOP, stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield log
            assert process.poll() is None, log.read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(page: webdriver.Chrome, selector: str, text: str, *logs: Path) -> None:
    """Wait until an element of the page shows what fits a regular expression."""

    def is_shown(_: object) -> bool:
        shown = page.find_elements(By.CSS_SELECTOR, selector)
        return any(re.search(text, each.text) for each in shown)

    try:
        # A row or a line may be replaced while it is looked at.
        WebDriverWait(page, PATIENCE_S, ignored_exceptions=STALE).until(is_shown)
    except TimeoutException:
        said = "\n".join(log.read_text() for log in logs)
        pytest.fail(f"{text!r} is not shown in {selector}: {said}")


def commands(kafka: LiveKafka) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values of the records in the topic `commands`, until nothing comes."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.servers, "group.id": "t", "auto.offset.reset": "earliest"},
        logger=SILENT,
    )
    consumer.subscribe(["commands"])
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            record = consumer.poll(1)
            if record is not None and record.error() is None:
                yield record.key(), record.value()
    finally:
        consumer.close()


@pytest.mark.soak
def test_the_tutorial(topics: LiveKafka, browser: webdriver.Chrome, tmp_path: Path) -> None:
    shell = Shell(topics.servers, tmp_path)
    shell.run(block("check-config"))
    assert "mdserver run --config build/cars/mdserver.conf" in block("mdserver run")
    with contextlib.ExitStack() as stack:
        # Java takes longest to start, so it begins.
        deriving = stack.enter_context(shell.running(block("pipeline derive"), "derive"))
        averaging = stack.enter_context(shell.running(block("spark-submit"), "averages"))
        configured = ("--config", f"{tmp_path}/mdserver.conf")
        member = stack.enter_context(live_server(tmp_path, *configured))
        wait_for_line(member.log, "joined")
        browser.get(f"{member.url}/demo/cars.html")
        wait_for(browser, "#state", "No cars come")
        driving = stack.enter_context(shell.running(block("vehicles_kafka.py"), "cars"))
        wait_for(browser, "#state", "Live", driving, member.log)
        wait_for(browser, "#car-car66 td", "stop", driving)
        wait_for(browser, "#notifications [data-rule=speeding]", "km/h", deriving, driving)
        wait_for(browser, "#cars td:nth-child(3)", r"^\d+$", averaging, driving)
        browser.find_element(By.CSS_SELECTOR, "#car-car66 button").click()
        assert next(commands(topics)) == (b"car66", b"stop")
        wait_for(browser, "#notifications [data-rule=stopped]", r"^car66 stands at 64\.", deriving)
        wait_for(browser, "#car-car66 td", "go", driving)
        assert driving.read_text().splitlines()[-1] == "car66: stop"
        # A phone shows the whole width, and the page is dark if that is wanted.
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", DARK)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert max(map(int, colour[4:-1].split(", "))) < 64
        said = [each for each in browser.get_log("browser") if each["level"] == "SEVERE"]
        assert [each for each in said if "favicon" not in each["message"]] == []


def said_by_cars(servers: str) -> str:
    words = [sys.executable, str(CARS), servers]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    return ended.stderr


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    (line,) = said_by_cars(servers).splitlines()
    assert line.startswith(f"vehicles_kafka.py: no Kafka answers at {servers}")
    assert "vehicles_kafka.py: no Kafka answers at 127.0.0.1:9092" in PAGE


def test_a_topic_that_is_missing_is_one_sentence(kafka: LiveKafka) -> None:
    for topic in TOPICS:
        with contextlib.suppress(KafkaException):
            kafka.delete(topic)
    deadline = time.monotonic() + PATIENCE_S
    while set(TOPICS) & set(kafka.admin.list_topics(timeout=PATIENCE_S).topics):
        assert time.monotonic() < deadline  # brokers learn of a deletion a moment later
        time.sleep(0.1)
    (line,) = said_by_cars(kafka.servers).splitlines()
    assert line.endswith(f"Kafka at {kafka.servers} has no topic vehicles: create it first")
