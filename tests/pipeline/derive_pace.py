"""How many messages a second the distributed engine of `derive` takes, on two workers of one core.

    python -m tests.pipeline.derive_pace [MESSAGES]

Writes a journal, starts a server, a master and two workers, and derives all of it: a threshold with
hysteresis and averages of ten seconds, of 1,000 subjects. Prints the pace that the job reports, and
fails unless each message is in one average. Beside other work the pace says little; how many
messages a second of processor time of an executor is enough for says more.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import trio

from mdserver.client import Client
from mdserver.core.message import Entry, Publication
from mdserver.journal.rows import checked, message_row
from mdserver.journal.segments import StreamWriter
from mdserver.limits import NS_PER_S
from tests.live import live_server
from tests.live_spark import live_spark

SUBJECTS = 1_000
SEGMENT_BYTES = 8 << 20
PATIENCE_S = 60
RULES = """\
rules:
  - name: high
    kind: threshold
    from: /vehicles/*/speed
    above: 995
    clear: 5
    to: /derived/high/{1}
  - name: mean
    kind: window
    function: avg
    seconds: 10
    from: /vehicles/*/speed
    to: /derived/mean/{1}
"""
START_NS = 1_764_000_000_000_000_000
PER_SECOND = 20_000


def write_journal(folder: Path, messages: int) -> None:
    """Messages of all subjects in turns, `PER_SECOND` of them in a second of their time.

    The last one, which no rule watches, is of a later period.
    """

    def line(index: int, subject: str, value: bytes) -> bytes:
        entry = Entry(1, index // SUBJECTS + 1, Publication(subject, value))
        now = START_NS + index * NS_PER_S // PER_SECOND
        return checked(msgspec.json.encode(message_row(entry, 0, "h1", "n1", now)))

    with StreamWriter(folder, segment_bytes_max=SEGMENT_BYTES) as writer:
        for start in range(0, messages, SUBJECTS):
            writer.append(
                [
                    line(start + n, f"/vehicles/car{n}/speed", b"%d" % ((start + n) * 7919 % 1000))
                    for n in range(SUBJECTS)
                ]
            )
        writer.append([line(messages + 15 * PER_SECOND, "/weather/today", b"rain")])


async def averaged(url: str) -> int:
    """How many messages the averages are of."""
    count = 0
    async with (
        Client([url]) as client,
        client.subscribe("/derived/mean/*", history=1_000) as subscription,
    ):
        await subscription.caught_up()
        for message in await subscription.batch():
            count += int((message.fields or {})["n"])
    return count


def ended_children_cpu_s(worker: int) -> float:
    """The processor time of a worker's executors, once they have ended, in seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while any(
        thread.joinpath("children").read_text().split()
        for thread in Path(f"/proc/{worker}/task").iterdir()
    ):
        assert time.monotonic() < deadline, "an executor has not ended"
        time.sleep(0.2)
    fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def main(messages: int) -> None:
    with tempfile.TemporaryDirectory(prefix="derive-pace-") as name:
        folder = Path(name)
        (folder / "cluster").mkdir()
        (folder / "rules.yaml").write_text(RULES)
        write_journal(folder / "journal" / "messages", messages)
        with live_server(folder) as server, live_spark(folder / "cluster", {}) as cluster:
            began = time.monotonic()
            run = cluster.submit(
                [],
                *("derive", "--engine", "distributed", "--shards", "4", "--once"),
                *("--format", "json", "--rules", str(folder / "rules.yaml")),
                *("--journal", str(folder / "journal"), "--tables", str(folder / "tables")),
                *("--server", server.url),
            )
            seconds = time.monotonic() - began
            cpu_s = sum(map(ended_children_cpu_s, cluster.processes))
            assert run.returncode == 0, run.stderr
            reports = [json.loads(line) for line in run.stdout.splitlines() if line[:1] == "{"]
            found = trio.run(averaged, server.url)
    assert found == messages, (found, messages)
    took = sum(each["rows"] / max(each["rows_per_s"], 1) for each in reports[1:])
    later = sum(each["rows"] for each in reports[1:])
    print(
        json.dumps(
            {
                "rows": sum(each["rows"] for each in reports),
                "seconds with all starts": round(seconds, 1),
                "rows_per_s after the first report": round(later / max(took, 0.001)),
                "rows per second of an executor's processor": round(messages / cpu_s),
                "reports": [[each["rows"], each["rows_per_s"]] for each in reports],
                "load": os.getloadavg(),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1_500_000)
