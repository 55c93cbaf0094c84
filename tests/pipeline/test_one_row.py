"""The journals of several members of a cluster in one archive: each message is one row."""

import json
import random
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from mdserver.core.message import Entry, Publication, Qos
from mdserver.journal import segments
from mdserver.journal.rows import checked, message_row
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.archive.batches import Archived
from mdserver.pipeline.common import checkpoints, delta
from mdserver.pipeline.common.numbered import sealed
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import JournalSource
from tests.cluster.live_cluster import LiveCluster
from tests.live import post

from .conftest import write_lines

pytestmark = pytest.mark.pipeline

START = 1_764_000_000_000_000_000
MS = 1_000_000
Place = tuple[str, int]


def lines(
    node: str, messages: list[Place], learned: int, altered: Collection[Place] = ()
) -> list[bytes]:
    """Rows of a member; every message was published a millisecond after the one before.

    The content of a message is its number; the member has another one of those that are `altered`.
    """
    return [
        checked(
            msgspec.json.encode(
                message_row(
                    Entry(
                        1,
                        seq,
                        Publication(
                            subject,
                            b"altered" if (subject, seq) in altered else b"%d" % seq,
                            time=START + seq * MS,
                        ),
                    ),
                    0,
                    "h",
                    node,
                    START + learned + seq * MS,
                )
            )
        )
        for subject, seq in messages
    ]


def run_archive(
    spark: Any, folder: Path, members: list[str], *, bytes_max: int = 1 << 20, new: bool = False
) -> list[Archived]:
    reports: list[Archived] = []
    sources = [JournalSource(folder / member, bytes_max) for member in members]
    archive_job.run_archive(
        spark, sources, folder / "tables", reports.append, once=True, new_source=new
    )
    return reports


def places(folder: Path) -> list[tuple[str, int]]:
    rows = DeltaTable(folder / "tables" / "messages").to_pyarrow_table().to_pylist()
    return sorted((row["subject"], row["seq"]) for row in rows)


class CrashError(Exception):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))]
)
def test_three_journals_of_one_cluster_are_one_row_a_message(
    spark: Any, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member was away at times; runs end before and after commits; two of three at a time."""
    rng = random.Random(seed)
    members = ["a", "b", "c"]
    committed: list[Place] = []
    really = delta.commit

    def commit(staged: delta.Staged, batch: delta.TableBatch) -> None:
        point = rng.random()
        if point < 0.15:
            raise CrashError("crash")
        really(staged, batch)
        if point > 0.85:
            raise CrashError("crash")

    monkeypatch.setattr(delta, "commit", commit)
    for _ in range(5 if seed else 3):
        seq = len(committed)
        fresh = [(f"/s/{rng.randrange(3)}", seq + n + 1) for n in range(rng.randrange(5, 30))]
        committed += fresh
        # A quorum has each message in its journal; one of the three may have copied a part.
        away = rng.choice(members)
        cut = rng.randrange(len(fresh))
        for number, member in enumerate(members):
            held = fresh[cut:] if member == away else fresh
            extra = fresh[-2:] if rng.random() < 0.3 else []  # written again by a restart
            written = lines(member, [*held, *extra], (number + 1) * MS // 2)
            write_lines(tmp_path / member / "messages", written)
        chosen = rng.sample(members, rng.choice([2, 3]))
        try:
            run_archive(spark, tmp_path, chosen, bytes_max=rng.choice([1, 1 << 20]))
        except PipelineError as error:
            if not str(error).endswith("crash"):
                raise
    monkeypatch.undo()
    run_archive(spark, tmp_path, members)
    assert places(tmp_path) == sorted(committed)
    assert run_archive(spark, tmp_path, members) == []
    for member in members:
        known = segments.identified(tmp_path / member / "messages")
        assert known is not None
        assert segments.positions(tmp_path / member / "messages") == {"archive": known.number}


def test_another_member_joins_an_archive(spark: Any, tmp_path: Path) -> None:
    """Nothing comes twice when one journal becomes two, and one again."""
    messages = [("/s/1", seq) for seq in range(1, 9)]
    write_lines(tmp_path / "a" / "messages", lines("a", messages[:5], 0))
    write_lines(tmp_path / "b" / "messages", lines("b", messages[2:7], 0))
    run_archive(spark, tmp_path, ["a"])
    run_archive(spark, tmp_path, ["a", "b"])
    assert places(tmp_path) == messages[:7]
    write_lines(tmp_path / "a" / "messages", lines("a", messages[5:], 0))
    run_archive(spark, tmp_path, ["a"])
    assert places(tmp_path) == messages
    run_archive(spark, tmp_path, ["b"])
    assert checkpoints.sources(tmp_path / "tables", "messages") == 2
    run_archive(spark, tmp_path, ["a", "b"], new=True)
    assert places(tmp_path) == messages


def test_messages_without_a_place_all_stay(spark: Any, tmp_path: Path) -> None:
    for member in ("a", "b"):
        rows = [
            message_row(Entry(0, 0, Publication("/s", b"x", qos=Qos.STANDARD)), 0, "h", member, n)
            for n in range(2)
        ]
        write_lines(
            tmp_path / member / "messages", [checked(msgspec.json.encode(row)) for row in rows]
        )
    run_archive(spark, tmp_path, ["a", "b"])
    assert len(places(tmp_path)) == 4


def test_rows_of_one_place_with_other_content_all_stay(spark: Any, tmp_path: Path) -> None:
    """Within a batch, and between a batch and the table; a repetition of each adds nothing."""
    messages = [("/s/1", seq) for seq in range(1, 5)]
    write_lines(tmp_path / "a" / "messages", lines("a", messages, 0))
    other = lines("b", messages, 0, altered=[("/s/1", 2)])
    write_lines(tmp_path / "b" / "messages", [*other, *lines("b", messages, 0)])
    run_archive(spark, tmp_path, ["a", "b"])
    write_lines(tmp_path / "b" / "messages", other)
    run_archive(spark, tmp_path, ["a", "b"])
    rows = DeltaTable(tmp_path / "tables" / "messages").to_pyarrow_table().to_pylist()
    found = sorted((row["seq"], row["content"], row["node"]) for row in rows)
    assert found == [
        (1, b"1", "a"),
        (2, b"2", "a"),
        (2, b"altered", "b"),
        (3, b"3", "a"),
        (4, b"4", "a"),
    ]


def test_a_copy_of_a_journal_is_refused(spark: Any, tmp_path: Path) -> None:
    """Before anything is archived, although it has segments that the other one lacks."""
    write_lines(tmp_path / "a" / "messages", lines("a", [("/s", 1)], 0))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    write_lines(tmp_path / "b" / "messages", lines("b", [("/s", 2)], 0))
    with pytest.raises(PipelineError, match=r"/a and .*/b are copies of one journal"):
        run_archive(spark, tmp_path, ["a", "b"])
    assert not (tmp_path / "tables" / "messages").exists()
    run_archive(spark, tmp_path, ["a"])
    assert places(tmp_path) == [("/s", 1)]


def test_a_copy_that_comes_later_is_refused(spark: Any, tmp_path: Path) -> None:
    """The stream of a member that has had other streams so far."""
    for member in ("a", "b"):
        write_lines(tmp_path / member / "cache", [])
    write_lines(tmp_path / "a" / "messages", lines("a", [("/s", 1)], 0))

    def copy(_: Archived) -> None:
        if not (tmp_path / "b" / "messages").exists():
            shutil.copytree(tmp_path / "a" / "messages", tmp_path / "b" / "messages")
            write_lines(tmp_path / "b" / "messages", lines("b", [("/s", 2)], 0))

    sources = [JournalSource(tmp_path / member) for member in ("a", "b")]
    with pytest.raises(PipelineError, match="are copies of one journal"):
        archive_job.run_archive(spark, sources, tmp_path / "tables", copy, once=False)
    assert places(tmp_path) == [("/s", 1)]


def test_one_folder_under_two_names_is_refused(spark: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "a" / "messages", lines("a", [("/s", 1)], 0))
    (tmp_path / "b").symlink_to("a")
    for members in (["a", "a"], ["a", "b"]):
        with pytest.raises(PipelineError, match="are the same folder"):
            run_archive(spark, tmp_path, members)
    assert not (tmp_path / "tables" / "messages").exists()


def test_a_journal_that_is_not_mounted_is_refused(spark: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "a" / "messages", lines("a", [("/s", 1)], 0))
    (tmp_path / "b").mkdir()
    with pytest.raises(PipelineError, match="/b: there is nothing to archive"):
        run_archive(spark, tmp_path, ["a", "b"])
    assert not (tmp_path / "tables" / "messages").exists()


def test_an_error_names_the_journal(spark: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "a" / "messages", lines("a", [("/s", 1)], 0))
    (tmp_path / "b" / "messages").mkdir(parents=True)
    sealed(tmp_path / "b" / "messages", 1).write_bytes(b"{}\n")
    with pytest.raises(PipelineError, match="/b: the stream messages has no identifier"):
        run_archive(spark, tmp_path, ["a", "b"])


@pytest.mark.slow
def test_the_journals_of_a_cluster_of_which_members_are_killed(spark: Any, tmp_path: Path) -> None:
    """Everything that was acknowledged is archived once."""
    settings = {"Journal": "on", "JournalFolder": str(tmp_path / "journal-INDEX")}
    acknowledged: list[tuple[str, int, int]] = []
    with LiveCluster(tmp_path, 3, settings=settings) as cluster:

        def publish(index: int) -> None:
            for number in range(20):
                answer = post(f"http://{cluster.clients[index]}", f"/s/{number % 4}")
                assert answer["status"] == "OK"
                acknowledged.append((f"/s/{number % 4}", answer["epoch"], answer["seq"]))

        publish(0)
        for index in (0, 1):
            cluster.kill(index)
            publish(2)
            cluster.start(index)
            cluster.wait_ready(index)
            publish(index)
        for index in range(3):
            cluster.stop(index)
    sources = [JournalSource(tmp_path / f"journal-{index}") for index in range(3)]
    told: list[Archived] = []
    archive_job.run_archive(spark, sources, tmp_path / "tables", told.append, once=True)
    rows = DeltaTable(tmp_path / "tables" / "messages").to_pyarrow_table().to_pylist()
    found = sorted((row["subject"], row["epoch"], row["seq"]) for row in rows)
    assert found == sorted(acknowledged)
    assert len({row["history"] for row in rows}) == 1
    written = [
        json.loads(line)["seq"]
        for path in tmp_path.glob("journal-*/messages/seg-*.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    assert len(written) > 2 * len(found)
