"""A replay: in order, at its pace, and in bounded memory, whatever the archive looks like."""

import datetime as dt
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trio
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver import limits
from mdserver.cli.main import exit_status
from mdserver.client import Client
from mdserver.core.commands import Publish
from mdserver.errors import MdserverError
from mdserver.pipeline.common import delta, schema
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.replay import job
from mdserver.pipeline.replay.job import Again, plan, rows
from mdserver.pipeline.replay.windows import ROW, Selection, windows
from tests.live import live_server

pytestmark = pytest.mark.pipeline

START = 1_764_000_000_000_000
KB = 1 << 10
Row = dict[str, Any]


def row(ts: int, subject: str = "/a/b", seq: int = 1, content: bytes = b"x") -> Row:
    moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=ts)
    return {
        "ts_server": moment,
        "dt": f"{moment:%Y-%m-%d}",
        "subject": subject,
        "epoch": 1,
        "seq": seq,
        "content": content,
        "text": True,
        "compressed": False,
        "retained": True,
        "qos": "GUARANTEED",
    }


def table_of(folder: Path, files: Sequence[Sequence[Row]]) -> Path:
    """A table `messages` of these files, each sorted by subject as the archive does it."""
    delta.table(folder, "messages")
    for each in files:
        found = sorted(each, key=lambda row: (row["subject"], row["seq"]))
        table = pa.Table.from_pylist(found, schema.TABLES["messages"])
        write_deltalake(folder / "messages", table, mode="append")
    return folder


MOMENTS = st.one_of(
    st.integers(START, START + 3),
    st.integers(START, START + 1_000_000),
    st.integers(START, START + 3 * 86_400_000_000),
)


@settings(max_examples=40, deadline=None)
@given(
    found=st.lists(
        st.lists(st.tuples(MOMENTS, st.sampled_from(["/a/b", "/a/c", "/b/c"])), max_size=30),
        min_size=1,
        max_size=5,
    ),
    window_bytes=st.sampled_from([1, 500, 1 << 20]),
    edges=st.tuples(MOMENTS, MOMENTS),
    subject=st.sampled_from(["/**", "/a/*", "/a/c"]),
)
def test_the_order_is_that_of_commitment_whatever_the_files_hold(
    found: list[list[tuple[int, str]]], window_bytes: int, edges: tuple[int, int], subject: str
) -> None:
    count = 0
    files = []
    for each in found:
        files.append([row(ts, subject, count + n) for n, (ts, subject) in enumerate(each)])
        count += len(each)
    start, end = sorted(edges)
    selection = Selection(subject, start, end)
    expected = sorted(
        (ts, subject, n)
        for n, (ts, subject) in enumerate(pair for each in found for pair in each)
        if start <= ts < end and selection.takes(subject)
    )
    with tempfile.TemporaryDirectory() as folder:
        table_of(Path(folder), files)
        got = [
            (each["ts_server"], each["subject"], each["seq"])
            for window in windows(Path(folder), selection, window_bytes)
            for each in window.set_column(
                0, "ts_server", window["ts_server"].cast("int64")
            ).to_pylist()
        ]
    assert got == expected


@pytest.mark.parametrize("spread_us", [1, 1_000_000], ids=["a burst", "even"])
def test_no_window_is_larger_than_it_may_be(tmp_path: Path, spread_us: int) -> None:
    """4 MB of messages, the last half of which come within a hundredth of the time of the first."""
    times = [START + n * 1_000_000 for n in range(1_000)]
    times += [times[-1] + n * spread_us for n in range(1_000)]
    found = [row(ts, f"/a/{n % 7}", n, b"x" * 2 * KB) for n, ts in enumerate(times)]
    folder = table_of(tmp_path, [found[::2], found[1::2]])
    got = list(windows(folder, Selection("/**"), 64 * KB))
    assert sum(map(len, got)) == len(found)
    assert max(window.nbytes for window in got) <= 64 * KB
    assert len(got) < 4 * len(found) * 2 * KB // (64 * KB)


@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, fault: str) -> None:
    folder = table_of(tmp_path, [[row(START)]])
    (path,) = (folder / "messages").rglob("*.parquet")
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(b"PAR1 this is none")
    with pytest.raises(PipelineError, match=rf"^{path} (is missing|cannot be read: .*)[^\n]*$"):
        list(rows(folder, Selection("/**")))


def test_a_failure_of_the_command_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder for temporary files that is not there stands for a full one."""
    folder = table_of(tmp_path / "tables", [[row(START)]])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with live_server(tmp_path) as server:
        chosen = ["--tables", str(folder), "--subject", "/**", "--server", server.url]
        assert exit_status(["pipeline", "replay", *chosen]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mdserver: replay failed:")
    assert line.endswith(": No such file or directory")


def test_a_server_that_is_away_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUBLISHER_CONNECT_TIMEOUT_S", 0.2)
    with pytest.raises(PipelineError, match=r"publishing to 127\.0\.0\.1:1 is not possible"):
        trio.run(job.replay, "127.0.0.1:1", None, iter([]))


def test_an_address_that_is_none_is_one_sentence() -> None:
    with pytest.raises(MdserverError, match="x y z"):
        trio.run(job.replay, "x y z://", None, iter([]))


def test_nothing_is_read_of_files_behind_the_first_messages(tmp_path: Path) -> None:
    """It starts at once: what is later is opened when it is its turn."""
    files = [[row(START + hour * 3_600_000_000 + n, seq=n) for n in range(9)] for hour in range(5)]
    folder = table_of(tmp_path, files)
    found = rows(folder, Selection("/**"))
    assert next(found)["seq"] == 0
    later = sorted((folder / "messages").rglob("*.parquet"), key=lambda path: path.stat().st_mtime)
    for path in later[2:]:
        path.unlink()
    with pytest.raises(PipelineError, match="is missing"):
        list(found)


MEASURED = """
import re, sys
from pathlib import Path
from mdserver.pipeline.replay.job import plan, rows
from mdserver.pipeline.replay.windows import Selection
chunks = plan(rows(Path(sys.argv[1]), Selection("/**")), 1.0, "/replay")
count = sum(map(len, chunks))
print(count, *re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()))
"""


@pytest.mark.slow
def test_a_million_messages_need_no_more_memory_than_a_few(tmp_path: Path) -> None:
    """One file, sorted by subject, of a million messages of half a kilobyte: 600 MB in memory."""
    count, size = 1_000_000, 512
    folder = tmp_path / "tables"
    delta.table(folder, "messages")
    number = pa.array(range(count), pa.int64())

    def constant(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    columns = {
        "subject": pa.array([f"/a/{n * 100 // count:03}" for n in range(count)]),
        "epoch": constant(1, pa.int64()),
        "seq": number,
        "content": pa.array((b"%d" % n * size)[:size] for n in range(count)),
        "text": constant(value=True, kind=pa.bool_()),
        "compressed": constant(value=False, kind=pa.bool_()),
        "retained": constant(value=True, kind=pa.bool_()),
        "qos": constant("GUARANTEED", pa.string()),
        "ts_server": pa.array((START + n * 7919 % count for n in range(count)), pa.int64()).cast(
            schema.TIME
        ),
        "dt": constant("2025-11-24", pa.string()),
    }
    table = pa.table(
        {
            each.name: columns.get(each.name, pa.nulls(count, each.type))
            for each in schema.TABLES["messages"]
        }
    )
    write_deltalake(folder / "messages", table, mode="append", target_file_size=1 << 30)
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    replayed, resident_kib = map(int, run.stdout.split())
    assert replayed == count
    assert resident_kib < 512 * KB


def planned(times: Sequence[float]) -> Iterator[list[Again]]:
    for number, after_s in enumerate(times):
        yield [Again(after_s, Publish(subject="/replay/a", content=str(number)))]


def arrivals(
    address: str, subject: str, planned: Iterator[Sequence[Again]], count: int
) -> list[float]:
    """When each of `count` messages came back, counted from before the replay."""
    arrived: list[float] = []

    async def replayed() -> None:
        with trio.fail_after(60):
            async with Client([address]) as client, trio.open_nursery() as nursery:
                subscription = client.subscribe(subject)
                await subscription.confirmed()
                began = trio.current_time()
                nursery.start_soon(job.replay, address, None, planned)
                for number in range(count):
                    assert (await anext(subscription)).content == str(number)
                    arrived.append(trio.current_time() - began)

    trio.run(replayed)
    return arrived


def test_no_message_leaves_before_its_time(tmp_path: Path) -> None:
    """A burst, then a message every tenth of a second for two seconds."""
    times = [0.0] * 1_000 + [n / 10 for n in range(1, 21)]

    with live_server(tmp_path) as server:
        arrived = arrivals(server.url, "/replay/a", planned(times), len(times))
    assert all(at >= after_s for at, after_s in zip(arrived, times, strict=True))


@pytest.mark.slow
def test_a_replay_at_ten_times_the_pace(tmp_path: Path) -> None:
    """What took 30 seconds takes 3, or longer on a machine with other work; never as long again."""
    pause_s, count, speed = 3, 11, 10
    found = [row(START + n * pause_s * 1_000_000, seq=n, content=b"%d" % n) for n in range(count)]
    chosen = rows(table_of(tmp_path / "tables", [found]), Selection("/**"))

    with live_server(tmp_path) as server:
        planned = plan(chosen, job.parse_speed(f"{speed}x"), "/replay")
        arrived = arrivals(server.url, "/replay/a/b", planned, count)
    for number, at in enumerate(arrived):
        assert at >= number * pause_s / speed
    assert arrived[-1] < (count - 1) * pause_s


def test_the_progress_is_told_while_it_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and when the first message has left; the second one is due in an hour."""
    monkeypatch.setattr(job, "PROGRESS_S", 0.05)
    told: list[int] = []

    async def replayed(address: str) -> None:
        with trio.fail_after(60), trio.CancelScope() as scope:

            def tell(progress: job.Replayed) -> None:
                told.append(progress.published)
                if progress.published:
                    scope.cancel()

            await job.replay(address, None, planned([0.0, 3600.0]), tell)
        assert scope.cancelled_caught

    with live_server(tmp_path) as server:
        trio.run(replayed, server.url)
    assert told[0] == 0
    assert told[-1] == 1


@pytest.mark.parametrize("speed", [0.5, 10.0])
def test_a_plan_has_the_pauses_that_there_were(speed: float) -> None:
    found = [row(START + n * 1_000, seq=n) for n in range(1_200)]
    timed = [
        {**dict.fromkeys(ROW.names), **each, "ts_server": START + n * 1_000}
        for n, each in enumerate(found)
    ]
    chunks = list(plan(timed, speed, "/replay"))
    assert max(map(len, chunks)) < len(found)
    planned_s = [again.after_s for chunk in chunks for again in chunk]
    assert planned_s == [pytest.approx(n / 1_000 / speed) for n in range(1_200)]
