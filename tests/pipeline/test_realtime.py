"""Stateless rules from Kafka to Kafka: the same messages as the operators give, in milliseconds."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from mdserver.core.message import Publication
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import KafkaSource
from mdserver.pipeline.derive import realtime, rules
from mdserver.pipeline.derive.operators import step
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.watched_rows import event_of
from tests.live_kafka import JARS, SILENT, LiveKafka

from .conftest import message_lines

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

PATIENCE_S = 300
RULES = """\
rules:
  - {name: fast, kind: threshold, above: 90, from: /vehicles/*/speed, to: "/notifications/{1}",
     message: "{1} drives {value} km/h, {state} {nothing}{9}"}
  - {name: level, kind: threshold, above: 1, value: fuel, from: /vehicles/car1/speed, to: /fuel/x}
  - {name: last, kind: last, from: "/vehicles/**", to: "/last/{1}"}
"""
PUBLICATIONS = [
    Publication(subject, content, fields={"fuel": fuel})
    for subject in ("/vehicles/car1/speed", "/vehicles/car2/speed", "/other/car1/speed")
    for content in (b"95", b"90", b" 91", b"1e2", b"nan", b"1e999", b"95d", b"fast", b"+.5E3")
    for fuel in ("2", "0.5")
]


def load(folder: Path, text: str = RULES) -> list[Rule]:
    (folder / "rules.yaml").write_text(text)
    return rules.load(folder / "rules.yaml")


def expected(loaded: list[Rule], lines: list[bytes]) -> list[tuple[str, str]]:
    """What the operators make of the messages: subject and content."""
    said = []
    for line in lines:
        row = {"content_base64": None, "compressed": False} | json.loads(line)
        event = event_of(row | {"ts": row["ts_server"]})
        for rule in loaded:
            if rule.watches(event.subject):
                said += [(each.subject, each.content) for each in step(rule, None, event)[1]]
    return sorted(said)


def test_expressions_say_what_the_operators_say(spark: Any, tmp_path: Path) -> None:
    loaded, lines = load(tmp_path), message_lines(PUBLICATIONS)
    raw = spark.createDataFrame([(line.decode(),) for line in [*lines, b"{"]], "value string")
    records = realtime.derived(raw, loaded, realtime.TopicTarget("h:1", "out", {})).collect()
    said = [(row.key, row.value) for row in records if row.topic == "out"]
    assert sorted(said) == expected(loaded, lines)
    assert len(said) > 40
    (bad,) = [row for row in records if row.topic == "out.quarantine"]
    assert (bad.key, bad.value) == (None, "{")
    assert bad.headers[0].value == b"not a JSON object of this stream"
    identifiers = [row.headers[0].value for row in records]
    assert len(set(identifiers)) == len(records)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("kind: threshold, above: 90, clear: 80", r"\(threshold with clear\)"),
        ("kind: stale, seconds: 5", r"\(stale\)"),
    ],
)
def test_a_rule_with_a_memory_is_refused(tmp_path: Path, rule: str, reason: str) -> None:
    loaded = load(tmp_path, f'rules: [{{name: r, {rule}, from: /a/*, to: "/b/{{1}}"}}]')
    source, target = KafkaSource("h:1", ["x.messages"]), realtime.TopicTarget("h:1", "out", {})
    with pytest.raises(PipelineError, match=reason):
        realtime.check(loaded, source, target)


def test_the_target_is_no_source(tmp_path: Path) -> None:
    target = realtime.TopicTarget("h:1", "x.messages", {})
    with pytest.raises(PipelineError, match=r"x\.messages is read from"):
        realtime.check(load(tmp_path), KafkaSource("h:1", ["x.messages"]), target)


@pytest.fixture
def job(kafka: LiveKafka, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command, from one topic to another."""
    load(tmp_path)
    for topic in ("live.messages", "live.derived", "live.derived.quarantine"):
        kafka.create(topic, partitions=1)
    command = [sys.executable, "-m", "mdserver.cli.main", "pipeline", "derive"]
    command += ["--rules", "rules.yaml", "--tables", "tables", "--real-time", "live.derived"]
    command += ["--kafka", kafka.servers, "--topics", "live.messages"]
    with (tmp_path / "derive.log").open("wb") as log:
        environment = {"MDSERVER_SPARK_JARS": str(JARS / "spark")}
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=log, stderr=log, env={**os.environ, **environment}
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command(kafka: LiveKafka, job: subprocess.Popen[bytes], tmp_path: Path) -> None:
    lines = message_lines(PUBLICATIONS)
    kafka.produce("live.messages", [("key", line) for line in [*lines, b"{"]])
    wanted = expected(load(tmp_path), lines)
    consumer = Consumer(
        {"bootstrap.servers": kafka.servers, "group.id": "t", "auto.offset.reset": "earliest"},
        logger=SILENT,
    )
    try:
        consumer.subscribe(["live.derived", "live.derived.quarantine"])
        got, bad = [], []
        deadline = time.monotonic() + PATIENCE_S
        while len(got) < len(wanted) or not bad:
            assert time.monotonic() < deadline, (tmp_path / "derive.log").read_text()
            assert job.poll() is None, (tmp_path / "derive.log").read_text()
            for record in consumer.consume(100, 0.5):
                (got if record.topic() == "live.derived" else bad).append(record)
    finally:
        consumer.close()
    assert sorted((r.key().decode(), r.value().decode()) for r in got) == wanted
    assert [r.value() for r in bad] == [b"{"]
    assert dict(got[0].headers())["md-fields"].startswith(b'{"rule":')
