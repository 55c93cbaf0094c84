"""What docs/kafka.md says how to do is done, with a real broker in place of the one it names."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mdserver.cluster.kafka_records import HEADERS
from tests.live import live_server, wait_for_line
from tests.live_kafka import LiveKafka

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")
FILES = ("addons/kafka/consumer.properties", "addons/kafka/producer.properties", "mdserver.conf")
NAMED = "127.0.0.1:9092"


def command(line: str, *more: str) -> list[str]:
    """Return a command line of the page, which has to be there."""
    assert line in PAGE.splitlines()
    return [sys.executable, "-m", "mdserver.cli.main", *line.split()[1:], *more]


@contextmanager
def running(words: list[str], folder: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(words, cwd=folder, text=True, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_five_minutes(kafka: LiveKafka, tmp_path: Path) -> None:
    section = PAGE.partition("## In five minutes")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    for name, text in zip(FILES, blocks, strict=True):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(NAMED, kafka.servers).replace("127.0.0.1:8800", "127.0.0.1:0"))
    kafka.create("vehicles", 4)
    checked = command("mdserver check-config --config mdserver.conf")
    subprocess.run(checked, cwd=tmp_path, check=True, timeout=60, capture_output=True)
    with live_server(tmp_path, "--config", f"{tmp_path}/mdserver.conf") as member:
        wait_for_line(member.log, "joined")
        here = "--server", member.url
        publish = command("mdserver pub /vehicles/truck/7 moving --field speed=80", *here)
        subscribe = command("mdserver sub /vehicles/truck/7 --count 1", *here)
        with running([*subscribe, "--timeout", "60", "--format", "json"], tmp_path) as subscriber:
            subprocess.run(publish, check=True, timeout=60, capture_output=True)
            assert subscriber.wait(60) == 0
            assert subscriber.stdout is not None
            assert '"speed":"80"' in subscriber.stdout.read().replace(" ", "")


def test_the_page_has_all_headers() -> None:
    rows = dict(re.findall(r"^\| `(md-[a-z]+)` \| (.*) \|$", PAGE, re.MULTILINE))
    assert rows == {**HEADERS, "md-enc": rows["md-enc"], "md-qos": rows["md-qos"]}
