"""A live run audited: what was injected on the way to one subscriber is named, nothing else is."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from deltalake import DeltaTable

from mdserver.client import Client, Subscription
from mdserver.client.core import values as out
from mdserver.core.events import MessageEvent
from mdserver.journal import segments
from mdserver.journal.segments import StreamWriter
from mdserver.pipeline.audit.job import AuditResult, run_audit
from tests.live import live_server

from .conftest import run_archive

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

PATIENCE_S = 60
MESSAGES = 40
FAULTS = {
    "lost": "/a/lost",
    "twice": "/a/twice",
    "late": "/a/late",
    "altered": "/a/altered",
    "fields": "/a/fields",
}
SUBJECTS = [*FAULTS.values(), "/a/whole"]
AT = 17


class FaultyClient(Client):
    """Between its protocol and its application messages 17 of some subjects come to harm."""

    _kept: MessageEvent | None = None

    def take(self, output: out.Output) -> None:
        if isinstance(output, out.DeliverMessages):
            harmed = [each for event in output.messages for each in self._harm(event)]
            output = out.DeliverMessages(harmed)
        super().take(output)

    def _harm(self, event: MessageEvent) -> Sequence[MessageEvent]:
        if event.subject == FAULTS["late"] and event.seq == AT + 1:
            assert self._kept is not None
            return [event, self._kept]
        if event.seq != AT or event.subject == "/a/whole":
            return [event]
        if event.subject == FAULTS["late"]:
            self._kept = event
        return {
            "/a/lost": [],
            "/a/twice": [event, event],
            "/a/late": [],
            "/a/altered": [msgspec.structs.replace(event, content="altered")],
            "/a/fields": [msgspec.structs.replace(event, fields={"unit": "mph"})],
        }[event.subject]


async def receive(subscription: Subscription, count: int) -> None:
    with trio.fail_after(PATIENCE_S):
        for _ in range(count):
            await anext(subscription)


async def live_run(url: str) -> None:
    """Two subscribers who give receipts, one of them harmed; and a publisher."""
    async with Client([url]) as publisher:
        faulty = FaultyClient([url], receipts=True)
        faulty.set_external_token("harmed")
        sound = Client([url], receipts=True)
        sound.set_external_token("sound")
        async with faulty, sound, trio.open_nursery() as nursery:
            for client in (faulty, sound):
                subscription = client.subscribe("/a/*")
                await subscription.confirmed()
                nursery.start_soon(receive, subscription, MESSAGES * len(SUBJECTS))
            for number in range(MESSAGES):
                for subject in SUBJECTS:
                    fields = {"unit": "km/h", "number": str(number)}
                    await publisher.publish(subject, f"{subject} {number}", fields=fields)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server wrote of such a run."""
    folder = tmp_path_factory.mktemp("audited")
    settings = ("Listen=127.0.0.1:0", "Entitlement=None", "Journal=on")
    named = (*settings, f"JournalFolder={folder / 'journal'}")
    with live_server(folder, *(part for one in named for part in ("--set", one))) as server:
        trio.run(live_run, server.url)
    return folder / "journal"


def audited(spark: Any, journal: Path, folder: Path) -> tuple[AuditResult, list[Any], str]:
    """Archive the journal and audit it: the result, the verdicts that are not `exact`, the page."""
    run_archive(spark, journal, folder / "tables")
    found = run_audit(spark, folder / "tables", folder / "report.html")
    verdicts = DeltaTable(folder / "tables" / "audit_verdicts").to_pyarrow_table().to_pylist()
    assert len(verdicts) == found.receipts
    bad = [row for row in verdicts if row["verdict"] != "exact"]
    return found, bad, (folder / "report.html").read_text(encoding="utf-8")


def test_everything_that_was_injected_is_named(spark: Any, journal: Path, tmp_path: Path) -> None:
    found, bad, page = audited(spark, journal, tmp_path)
    assert {(row["subscriber"], row["subject"], row["verdict"]) for row in bad} == {
        ("harmed", FAULTS["twice"], "dup_or_corrupt"),
        ("harmed", FAULTS["late"], "reordered"),
        ("harmed", FAULTS["altered"], "dup_or_corrupt"),
        ("harmed", FAULTS["fields"], "dup_or_corrupt"),
    }
    first = {row["subject"]: row["first_bad_seq"] for row in bad}
    assert set(first.values()) == {AT}
    # That a message was altered on the way is what the client says: the cache has it otherwise.
    assert (found.bad, found.gaps, found.unarchived, found.claims) == (2, 1, 0, 2)
    rows = DeltaTable(tmp_path / "tables" / "audit_findings").to_pyarrow_table().to_pylist()
    named = {(row["kind"], row["proof"], row["subscriber"], row["subject"]) for row in rows}
    assert named >= {
        ("gap", "member", "harmed", FAULTS["lost"]),
        ("repeated", "member", "harmed", FAULTS["twice"]),
        ("out_of_order", "member", "harmed", FAULTS["late"]),
        ("altered", "claim", "harmed", FAULTS["altered"]),
        ("altered", "claim", "harmed", FAULTS["fields"]),
    }
    assert {row["subscriber"] for row in rows if row["kind"] != "unjudged"} == {"harmed"}
    (gap,) = [row for row in rows if row["kind"] == "gap"]
    assert (gap["seq_lo"], gap["seq_hi"], gap["n"]) == (AT, AT, 1)
    assert gap["session"]
    assert gap["member"]
    assert f"<td>{FAULTS['lost']}</td>" in page


def rewritten(
    journal: Path, folder: Path, stream: str, keep: Callable[[dict[str, Any]], bool]
) -> Path:
    """The journal without those lines of a stream that are not to be kept."""
    copy = folder / "journal"
    shutil.copytree(journal, copy)
    lines: Iterator[bytes] = segments.lines(journal / stream)
    kept = [line for line in lines if keep(msgspec.json.decode(line))]
    shutil.rmtree(copy / stream)
    with StreamWriter(copy / stream, 1 << 20) as writer:
        writer.append(kept)
    return copy


def test_an_acknowledged_message_that_is_not_archived_is_named(
    spark: Any, journal: Path, tmp_path: Path
) -> None:
    def keep(row: dict[str, Any]) -> bool:
        return (row["subject"], row["seq"]) != ("/a/whole", 5)

    found, _, page = audited(spark, rewritten(journal, tmp_path, "messages", keep), tmp_path)
    # The receipts of both subscribers have more than the archive, which is no fault of a delivery.
    rows = DeltaTable(tmp_path / "tables" / "audit_findings").to_pyarrow_table().to_pylist()
    named = {(row["kind"], row["subject"], row["seq_lo"]) for row in rows}
    assert ("acknowledged_not_archived", "/a/whole", 5) in named
    lacking = [row for row in rows if row["kind"] == "not_archived"]
    assert {(row["subject"], row["first_bad_seq"]) for row in lacking} == {("/a/whole", 5)}
    assert found.unarchived == 1 + len([row for row in lacking if row["proof"] == "member"])
    assert "acknowledged to its publisher" in page
