"""The steps of the protocol in a file: what keeps `mdserver run` from writing them.

What is in the file is the business of tests/spec/test_live_traces.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from mdserver.config import load
from mdserver.core.inputs import TimerDue
from mdserver.core.outputs import Trace
from mdserver.server.clock import process_clock
from mdserver.server.engine import Engine, OutputRoutes
from mdserver.server.member import Member, open_member
from mdserver.server.tracing import TraceFile, tracing

CLUSTER = (
    "ClusterMembers=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "ClusterMemberListen=127.0.0.1:1",
    "ClusterPassword=sixteen or more characters",
    "ClusterSubjectGroups=2",
)


def member(folder: Path) -> Member:
    overrides = [*CLUSTER, f"ClusterMemberCoordinationFolder={folder}"]
    found = open_member(load(overrides=overrides).config, trace=True)
    assert found is not None
    return found


def refused(*arguments: str) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mdserver.cli.main",
            "run",
            "--set",
            "Listen=127.0.0.1:0",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("mode", [(), ("ClusterDeliveryMode=Standard", *CLUSTER)])
def test_where_nobody_votes_there_is_nothing_to_trace(
    tmp_path: Path, mode: tuple[str, ...]
) -> None:
    settings = [word for setting in mode for word in ("--set", setting)]

    told = refused(*settings, "--trace", str(tmp_path / "steps"))

    assert told.startswith("--trace writes how members vote")
    assert told.count("\n") == 1
    assert not (tmp_path / "steps").exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    settings = [*CLUSTER, f"ClusterMemberCoordinationFolder={tmp_path}"]
    path = tmp_path / "none" / "steps"

    told = refused(*[w for s in settings for w in ("--set", s)], "--trace", str(path))

    assert told == f"mdserver: Cannot write the trace {path}: No such file or directory\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is full")  # noqa: PTH110
def test_a_full_disk_is_told_once() -> None:
    with Path("/dev/full").open("ab", buffering=0) as full, capture_logs() as logs:
        trace = TraceFile(full)
        trace.take(Trace("Stop", {"node": "a"}))
        trace.take(Trace("Stop", {"node": "a"}))

    assert [(line["event"], line["reason"]) for line in logs] == [
        ("the trace has gaps", "No space left on device")
    ]


class OneStep:
    """A node whose every step is one of the protocol."""

    def step(self, input: object, now: int) -> list[Trace]:  # noqa: A002
        return [Trace("Stop", {"node": "127.0.0.1:1", "group": 1})]


async def test_a_line_is_in_the_file_as_soon_as_the_step_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    engine = Engine(OneStep(), process_clock())

    with tracing(path, member(tmp_path)) as trace:
        engine.routes = OutputRoutes(trace=trace)
        engine.dispatch(TimerDue(("cluster", "tick")))
        lines = await trio.Path(path).read_text()

    first, second = lines.splitlines()
    assert first.startswith('{"name":"Start","node":"127.0.0.1:1","incarnation":1,')
    assert '"seed":true' in first
    assert '"promised":[0,0]' in first
    assert second.startswith('{"name":"Stop","node":"127.0.0.1:1","group":1,"at":')
