"""The job `derive` against a real server: what rules say arrives there, each message once."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from deltalake import DeltaTable

from mdserver import limits
from mdserver.client import Client, Message
from mdserver.core.message import Publication
from mdserver.pipeline.common import delta
from mdserver.pipeline.common.places import RemoteTables, Tables
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource, KafkaSource, Source
from mdserver.pipeline.derive import job as deriving
from mdserver.pipeline.derive.publisher import PublishServer, StepPublisher
from mdserver.pipeline.derive.step_log import StepLog
from tests.live import LiveServer, live_server
from tests.live_kafka import LiveKafka

from .conftest import message_lines, write_lines, write_messages

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

PATIENCE_S = 120
RULES = """\
rules:
  - name: speeding
    kind: threshold
    from: /vehicles/*/speed
    to: /notifications/{1}
    above: 90
    clear: 80
    message: "{1} drives {value} km/h"
  - {name: mean, kind: window, function: avg, seconds: 2, from: /vehicles/*/speed, to: "/mean/{1}"}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path) as running:
        yield running


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def places_of(folder: Path, tables: Tables | None = None) -> deriving.JobPlaces:
    """Tables in the folder unless others are given, and beside them what the job remembers."""
    return deriving.JobPlaces(tables or folder / "tables", folder / "remembered")


def derive(
    spark: Any,
    server: LiveServer,
    folder: Path,
    source: Source | None = None,
    engine: deriving.EngineChoice = deriving.EMBEDDED,
    tables: Tables | None = None,
) -> list[str]:
    """One run until caught up with the journal, or another source; what it said."""
    said: list[str] = []
    where = PublishServer([server.url])

    def say(words: str, values: Mapping[str, Any]) -> None:
        assert f"{values['derived']} derived" in words
        said.append(words)

    rules, places = folder / "rules.yaml", places_of(folder, tables)
    with deriving.ready(rules, places, where, say, engine, once=True) as job:
        job.run(spark, source or JournalSource(folder / "journal"), once=True)
    return said


def history(server: LiveServer, *subjects: str) -> dict[str, list[str]]:
    """What the server has of these subjects."""

    async def read() -> dict[str, list[str]]:
        found: dict[str, list[Message]] = {}
        async with Client([server.url]) as client:
            for subject in subjects:
                with trio.fail_after(PATIENCE_S):
                    async with client.subscribe(subject, history=1000) as subscription:
                        await subscription.caught_up()
                        found[subject] = await subscription.batch()
        return {name: [str(m.content) for m in messages] for name, messages in found.items()}

    return trio.run(read)


def speeds(*values: str, car: str = "car66") -> list[Publication]:
    return [Publication(f"/vehicles/{car}/speed", value.encode()) for value in values]


def quarantined(folder: Path, tables: Tables | None = None) -> list[str]:
    table = DeltaTable((tables or folder / "tables") / "quarantine").to_pyarrow_table()
    return sorted(table["reason"].to_pylist())


class CrashError(Exception):
    """Stands for the end of the process at this point."""


def crash(*_: Any) -> None:
    raise CrashError("crash")


@pytest.mark.parametrize(
    ("owner", "point", "engine"),
    [
        (StepLog, "append", deriving.EMBEDDED),
        (StepPublisher, "publish", deriving.EMBEDDED),
        (delta, "append_rows", deriving.EMBEDDED),
        (StepLog, "published", deriving.EMBEDDED),
        pytest.param(StepLog, "append", deriving.EngineChoice(2), marks=pytest.mark.soak),
        pytest.param(StepPublisher, "publish", deriving.EngineChoice(2), marks=pytest.mark.soak),
    ],
    ids=[
        "before the step",
        "before publishing",
        "before setting aside",
        "before the note",
        "distributed, before the step",
        "distributed, before publishing",
    ],
)
def test_after_a_crash_each_message_is_there_once(
    spark: Any,
    server: LiveServer,
    rules_file: Path,
    tmp_path: Path,
    owner: Any,
    point: str,
    engine: deriving.EngineChoice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_messages(tmp_path / "journal", speeds("85", "95", "79"))
    derive(spark, server, tmp_path, engine=engine)
    # Later ones: what a crash leaves unread is a batch with what comes then, in the order of time.
    journal = tmp_path / "journal"
    write_messages(journal, speeds("91", "fast", "70", "99"), first_seq=4, later_s=10)
    with monkeypatch.context() as patched:
        patched.setattr(owner, point, crash)
        with pytest.raises(PipelineError, match="deriving failed: crash"):
            derive(spark, server, tmp_path, engine=engine)
    write_messages(journal, speeds("60", "95"), first_seq=8, later_s=20)
    derive(spark, server, tmp_path, engine=engine)
    derive(spark, server, tmp_path, engine=engine)
    wanted = ["95", "79", "91", "70", "99", "60", "95"]
    assert history(server, "/notifications/car66") == {
        "/notifications/car66": [f"car66 drives {speed} km/h" for speed in wanted]
    }
    assert quarantined(tmp_path) == [
        "rule mean: content is no number: 'fast'",
        "rule speeding: content is no number: 'fast'",
    ]


@pytest.mark.parametrize(
    "engine", [deriving.EMBEDDED, pytest.param(deriving.EngineChoice(2), marks=pytest.mark.soak)]
)
def test_tables_in_an_object_store(
    spark: Any,
    server: LiveServer,
    rules_file: Path,
    remote: RemoteTables,
    tmp_path: Path,
    engine: deriving.EngineChoice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was set aside is there once, although a run ended after it was."""
    write_messages(tmp_path / "journal", speeds("95", "fast", "79"))
    with monkeypatch.context() as patched:
        patched.setattr(StepLog, "published", crash)
        with pytest.raises(PipelineError, match="deriving failed: crash"):
            derive(spark, server, tmp_path, engine=engine, tables=remote)
    write_messages(tmp_path / "journal", speeds("quick", "91"), first_seq=4, later_s=10)
    derive(spark, server, tmp_path, engine=engine, tables=remote)
    derive(spark, server, tmp_path, engine=engine, tables=remote)
    wanted = [f"car66 drives {speed} km/h" for speed in ("95", "79", "91")]
    assert history(server, "/notifications/car66") == {"/notifications/car66": wanted}
    assert quarantined(tmp_path, remote) == [
        f"rule {rule}: content is no number: '{speed}'"
        for rule in ("mean", "speeding")
        for speed in ("fast", "quick")
    ]


def test_what_a_job_that_starts_anew_sets_aside_is_kept(
    spark: Any, server: LiveServer, rules_file: Path, tmp_path: Path
) -> None:
    """Its steps are counted from 1 again."""
    write_messages(tmp_path / "journal", speeds("fast"))
    derive(spark, server, tmp_path)
    shutil.rmtree(tmp_path / "remembered")
    derive(spark, server, tmp_path)
    assert len(quarantined(tmp_path)) == 4


def test_what_the_clock_published_is_there_once_after_a_crash(
    spark: Any,
    server: LiveServer,
    rules_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timer of the distributed engine is due; the run ends, and one with `--once` goes on."""
    rules_file.write_text(
        'rules: [{name: silent, kind: stale, seconds: 1, from: /vehicles/*/*, to: "/silent/{1}"}]'
    )
    engine = deriving.EngineChoice(2)
    write_messages(tmp_path / "journal", speeds("1"))
    with monkeypatch.context() as patched:
        patched.setattr(StepLog, "published", crash)
        where = PublishServer([server.url])
        with (
            deriving.ready(rules_file, places_of(tmp_path), where, lambda *_: None, engine) as job,
            pytest.raises(PipelineError, match="deriving failed: crash"),
        ):
            job.run(spark, JournalSource(tmp_path / "journal"), once=False)
    derive(spark, server, tmp_path, engine=engine)
    later = int((2 + limits.DERIVE_LATENESS_S) * 1_000)
    write_messages(tmp_path / "journal", [Publication("/weather/today", b"rain")] * later)
    derive(spark, server, tmp_path, engine=engine)
    assert {name: len(found) for name, found in history(server, "/silent/car66").items()} == {
        "/silent/car66": 1
    }


def test_lines_that_cannot_be_used_and_messages_nobody_takes_are_set_aside(
    spark: Any, server: LiveServer, rules_file: Path, tmp_path: Path
) -> None:
    long = "x" * 1010
    lines = [b"{", b'{"v": 1}', b'{"v": 2}']
    write_lines(tmp_path / "journal" / "messages", lines)
    write_messages(tmp_path / "journal", [*speeds("95"), *speeds("95", car=long)])
    said = derive(spark, server, tmp_path)
    assert "2 derived, 3 set aside" in said[0]
    assert history(server, "/notifications/car66") == {
        "/notifications/car66": ["car66 drives 95 km/h"]
    }
    reasons = quarantined(tmp_path)
    (not_taken,) = [reason for reason in reasons if reason.startswith("rule speeding: /notif")]
    assert "was not taken: Subject" in not_taken
    reasons.remove(not_taken)
    assert reasons == [
        "history is missing",
        "not a JSON object of this stream",
        "v is 2, known is 1",
    ]


def test_from_kafka_the_same_is_derived(
    spark: Any, kafka: LiveKafka, rules_file: Path, tmp_path: Path
) -> None:
    """Three partitions in batches of 400, and one segment as a whole."""
    rules_file.write_text(RULES.replace("seconds: 2", "seconds: 0.3"))
    cars = ["car1", "car2", "car3"]
    publications = [
        each for n in range(1000) for car in cars for each in speeds(str(n * 37 % 150), car=car)
    ]
    write_messages(tmp_path / "journal", publications)
    kafka.create("derive.messages", partitions=3)
    lines = message_lines(publications)
    keys = [publication.subject for publication in publications]
    kafka.produce("derive.messages", zip(keys, lines, strict=True))
    source = KafkaSource(kafka.servers, ["derive.messages"], records_per_batch=400)
    subjects = [f"/{kind}/{car}" for kind in ("notifications", "mean") for car in cars]
    found = []
    for number, each in enumerate((JournalSource(tmp_path / "journal"), source)):
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copy(rules_file, folder)
        with live_server(folder) as server:
            derive(spark, server, folder, each)
            found.append(history(server, *subjects))
        assert quarantined(folder) == []
    assert found[0] == found[1]
    assert {subject: len(contents) > 5 for subject, contents in found[0].items()} == dict.fromkeys(
        subjects, True
    )


def test_a_period_ends_by_messages_that_no_rule_watches(
    spark: Any, server: LiveServer, rules_file: Path, tmp_path: Path
) -> None:
    """As long as others are published the journal is never idle, and the clock says nothing."""
    others = [Publication("/weather/today", b"rain")] * int((4 + limits.DERIVE_LATENESS_S) * 1_000)
    write_messages(tmp_path / "journal", [*speeds("40", "60"), *others])
    said = derive(spark, server, tmp_path)
    assert "2 rows" in said[0]
    assert history(server, "/mean/car66") == {"/mean/car66": ["50"]}


def test_one_run_at_a_time(server: LiveServer, rules_file: Path, tmp_path: Path) -> None:
    arguments = rules_file, places_of(tmp_path), PublishServer([server.url]), print
    with deriving.ready(*arguments):
        second = deriving.ready(*arguments)
        with pytest.raises(PipelineError, match="another run of this job has"):
            second.__enter__()
    with deriving.ready(*arguments):
        pass


def test_without_a_server_there_is_one_line(
    rules_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISHER_CONNECT_TIMEOUT_S", 1.0)
    nowhere = PublishServer(["http://127.0.0.1:1"])
    run = deriving.ready(rules_file, places_of(tmp_path), nowhere, print)
    with pytest.raises(PipelineError, match=r"publishing to .*:1 is not possible: no server"):
        run.__enter__()


def test_a_checkpoint_of_which_half_is_gone_is_refused(
    spark: Any, server: LiveServer, rules_file: Path, tmp_path: Path
) -> None:
    write_messages(tmp_path / "journal", speeds("95"))
    derive(spark, server, tmp_path)
    shutil.rmtree(tmp_path / "remembered" / "derive" / "spark")
    with pytest.raises(PipelineError, match="has steps but no folder spark"):
        derive(spark, server, tmp_path)


def test_the_vehicles_example(
    spark: Any, server: LiveServer, rules_file: Path, tmp_path: Path
) -> None:
    write_messages(tmp_path / "journal", speeds("85", "95", "99", "fast", "85", "79", "91"))
    said = derive(spark, server, tmp_path)
    assert "7 rows" in said[0]
    assert "3 derived, 2 set aside" in said[0]
    assert history(server, "/notifications/car66") == {
        "/notifications/car66": [
            "car66 drives 95 km/h",
            "car66 drives 79 km/h",
            "car66 drives 91 km/h",
        ]
    }
    assert quarantined(tmp_path) == [
        "rule mean: content is no number: 'fast'",
        "rule speeding: content is no number: 'fast'",
    ]
