"""The figures of a job: in a file, for Prometheus, and on the job's meta-subject."""

import socket
import urllib.request
from pathlib import Path

import msgspec
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from mdserver.client import Client
from mdserver.pipeline.common import figures
from mdserver.pipeline.common.figures import META_SUBJECT, Outlets, Progressed, told
from mdserver.pipeline.common.requirements import PipelineError
from tests.live import live_server

STEP = Progressed(stream="stats", rows=50, set_aside=2, seconds=2.0, lag_s=1.5)
PATIENCE_S = 60


def values(text: str) -> dict[str, float]:
    return {
        sample.name.removeprefix("mdserver_pipeline_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("stream") == "stats"
    }


def test_figures_are_in_a_file_and_at_a_port(tmp_path: Path) -> None:
    file = tmp_path / "job.prom"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with told("rollup", Outlets(file=file, port=port)) as given:
        given.add(STEP)
        given.add(Progressed(stream="stats", rows=0, seconds=1.0))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            served = values(page.read().decode())
    found = values(file.read_text(encoding="utf-8"))
    for each in (served, found):
        assert each.pop("last_batch_timestamp_seconds") > 1e9
        each.pop("rows_created", None)
        each.pop("set_aside_rows_created", None)
        assert each == {
            "rows_total": 50,
            "set_aside_rows_total": 2,
            "rows_per_second": 25,
            "lag_seconds": 1.5,
        }


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(PipelineError, match=r"metrics at 127\.0\.0\.1:.*: Address already in use"),
        told("rollup", Outlets(port=taken.getsockname()[1])),
    ):
        pass


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "none" / "job.prom"
    with (
        pytest.raises(PipelineError, match=r"job\.prom cannot be written: No such file"),
        told("rollup", Outlets(file=file)),
    ):
        raise AssertionError("the job begins, although its figures go nowhere")


def test_a_server_that_is_away_keeps_no_job_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "LEAVE_S", 0.1)
    with told("rollup", Outlets(servers=("127.0.0.1:1",))) as given:
        given.add(STEP)


async def test_figures_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "PUBLISH_EVERY_S", 0.1)
    with live_server(tmp_path) as server:
        async with Client([server.url]) as client:
            subscription = client.subscribe(META_SUBJECT.format(job="rollup"))
            await subscription.confirmed()

            def job() -> None:
                with told("rollup", Outlets(servers=(server.url,))) as given:
                    given.add(STEP)

            with trio.fail_after(PATIENCE_S):
                await trio.to_thread.run_sync(job)
                message = await anext(subscription)
        value = msgspec.json.decode(message.content)
        assert (value["stream"], value["rows"], value["lag_s"]) == ("stats", 50, 1.5)
