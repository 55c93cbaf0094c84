"""Plain records of topics are what members with `ClusterEngine = kafka` take them for."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mdserver.cluster.kafka_records import (
    ID,
    OWN,
    KafkaRecord,
    Places,
    PoisonError,
    publication,
    record_of,
)
from mdserver.core.message import Publication, Qos
from mdserver.limits import SUBJECT_SEGMENTS_MAX
from mdserver.pipeline.common import plain, rows
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import KafkaSource
from mdserver.pipeline.derive import realtime, rules

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

TIME = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
TIME_NS = int(TIME.timestamp() * 1000) * 1_000_000
HISTORY = "A topic's id"
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp,"
    " headers array<struct<key:string,value:binary>>"
)
PLACES = Places({"vehicles": 3, "notifications": 3}, "murmur2_random", 16)
SPEED = PLACES.of("vehicles", b"car1/speed")
Raw = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def numbered() -> list[tuple[str, bytes]]:
    """The headers of a publication with all that a client can say."""
    place = PLACES.of("vehicles", b"car1/speed")
    said = Publication(
        "/vehicles/car1/speed",
        b"95",
        fields={"fuel": "2"},
        closure="here",
        retained=False,
        qos=Qos.STANDARD,
        compressed=True,
        reply_subject="/answers/me",
        publisher="some one",
        number=17,
    )
    return record_of(1, place, said).headers


RECORDS: list[Raw] = [
    (b"car1/speed", b"95", None),
    (b"car1/speed", b"95", [("fuel", b"2"), ("driver", "Jón".encode())]),
    (b"car1/speed", b"95", [("fuel", b"1"), ("fuel", b"2"), ("raw", b"\xff"), ("none", None)]),
    (b"car1/speed", b"95", [*numbered()]),
    (b"car2/speed", b"95", [*numbered()]),  # an `md-id` that was copied is nobody's
    (b"car1/speed", b"95", [(ID, b"x"), ("md-enc", b"binary")]),
    (b"car1/speed", None, None),
    (b"car1/speed", b"", []),
    (None, b"all stand", None),
    ("bíll/hraði".encode(), "hratt „‟".encode(), None),
    (b"car1/photo", b"\x89PNG\xff\x00", None),
    (b"", b"95", None),
    (b"a//b", b"95", None),
    (b"a/*", b"95", None),
    (b"a/**/b", b"95", None),
    (b"a/*b", b"95", None),
    (b"\xff/a", b"95", None),
    (b"x" * 5000, b"95", None),
    (b"car1/speed", b"95", [("md-qos", b"whatever")]),
    (b"car1/speed", b"95", [("md-qos", b"STANDARD")]),
    (b"car1/speed", b"95", [(ID, f"0 {SPEED.check} me".encode())]),
    (b"car1/speed", b"95", [(ID, f"1 {SPEED.check} me".encode())]),
    (b"/".join([b"x"] * (SUBJECT_SEGMENTS_MAX - 1)), b"95", None),
    (b"/".join([b"x"] * SUBJECT_SEGMENTS_MAX), b"95", None),
]


def frame(spark: Any, records: list[Raw], topic: str = "vehicles") -> Any:
    """The columns of Spark's source for these records, partition 2 from offset 40 on."""
    listed = [
        (key, value, topic, 2, 40 + at, TIME, headers)
        for at, (key, value, headers) in enumerate(records)
    ]
    return spark.createDataFrame(listed, COLUMNS)


def raw(spark: Any, records: list[Raw]) -> Any:
    return KafkaSource._raw(
        frame(spark, records), plain.lines(frame(spark, records), {"vehicles": HISTORY})
    )


def expected(at: int, record: Raw) -> Publication | None:
    """What a member makes of a record; None if it cannot be a message."""
    key, value, headers = record
    try:
        place = PLACES.of("vehicles", key)
        taken = KafkaRecord("vehicles", place.partition, 40 + at, TIME_NS, key, value, headers)
        return publication(taken, place, 1 << 20, stray=False)
    except PoisonError:
        return None


def test_the_names_are_those_of_the_members() -> None:
    assert plain.OWN == OWN


def test_records_become_what_members_make_of_them(spark: Any) -> None:
    parsed = rows.split(rows.parse(raw(spark, RECORDS), rows.MESSAGES), rows.MESSAGES)
    good = {row["src_pos"]: row for row in parsed.good.collect()}
    bad = {row["src_pos"] for row in parsed.bad.collect()}
    for at, record in enumerate(RECORDS):
        wanted = expected(at, record)
        if wanted is None:
            assert 40 + at in bad, record
            continue
        row = good[40 + at]
        got = Publication(
            row["subject"],
            bytes(row["content"]),
            row["text"],
            row["fields"],
            row["closure"],
            row["retained"],
            Qos(row["qos"]),
            row["compressed"],
            row["reply_subject"],
            row["publisher"] or "",
            row["number"],
            TIME_NS,
        )
        assert got == wanted, record
        assert (row["history"], row["epoch"], row["seq"]) == (HISTORY, 3, 41 + at)
    assert len(good) > 8
    assert len(bad) > 4


def load(folder: Path, to: str, watched: str = "/vehicles/*/speed") -> list[rules.Rule]:
    file = folder / "rules.yaml"
    file.write_text(
        f"rules: [{{name: fast, kind: threshold, above: 90, from: '{watched}', to: '{to}'}}]"
    )
    return rules.load(file)


def test_members_take_what_is_derived_for_numbered_messages(spark: Any, tmp_path: Path) -> None:
    loaded = load(tmp_path, "/notifications/{1}")
    target = realtime.TopicTarget("h:1", "notifications", {}, plain=True)
    (said,) = realtime.derived(raw(spark, RECORDS[:1]), loaded, target).collect()
    assert (said.topic, said.key, said.value) == ("notifications", "car1", "95")
    headers = [(header.key, bytes(header.value)) for header in said.headers]
    place = PLACES.of("notifications", b"car1")
    record = KafkaRecord(
        "notifications", place.partition, 7, TIME_NS, b"car1", said.value.encode(), headers
    )
    message = publication(record, place, 1 << 20, stray=False)
    assert message.fields == {"rule": "fast", "state": "above"}
    assert message.number == 41
    assert message.publisher.startswith("derive fast ")
    assert message.publisher.endswith(f" {HISTORY} 3")


def test_what_would_be_no_subject_is_set_aside(spark: Any, tmp_path: Path) -> None:
    target = realtime.TopicTarget("h:1", "notifications", {}, plain=True)
    loaded = load(tmp_path, "/notifications/{5}", "/vehicles/**")
    (said,) = realtime.derived(raw(spark, RECORDS[:1]), loaded, target).collect()
    assert said.topic == "notifications.quarantine"
    assert said.headers[0].value == b"rule fast: /notifications/ is no subject"


def test_rules_that_publish_elsewhere_are_refused(tmp_path: Path) -> None:
    target = realtime.TopicTarget("h:1", "notifications", {}, plain=True)
    with pytest.raises(PipelineError, match=r"^rule fast publishes to /alarms/\{1\}; with --plain"):
        realtime.check(load(tmp_path, "/alarms/{1}"), KafkaSource("h:1", ["vehicles"]), target)
