"""The audit names each kind of damage, and nothing that is whole."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as f

from mdserver.core.message import checksum, fields_checksum
from mdserver.pipeline.audit import findings
from mdserver.pipeline.audit import verdicts as audit
from mdserver.pipeline.audit.archived import ArchivedUntil
from mdserver.pipeline.audit.silent import find_silent
from tests.receipts import sums

pytestmark = pytest.mark.pipeline

START = datetime(2026, 3, 1, tzinfo=UTC)
MESSAGE = (
    "history string, subject string, epoch bigint, seq bigint, crc bigint, qos string,"
    " ts_server timestamp, fields map<string, string>"
)
RECEIPT = (
    "session string, subscriber string, history string, subject string, epoch bigint,"
    " seq_lo bigint, seq_hi bigint, n bigint, crc_sum bigint, crc_at bigint, dups bigint,"
    " reordered bigint, fields_sum bigint, fields_at bigint, conflated bigint,"
    " via string, opened_ts timestamp, closed_ts timestamp, owner string,"
    " verified boolean, left_out bigint"
)


def crc(seq: int, subject: str = "/a/b", epoch: int = 1) -> int:
    return checksum(subject, epoch, seq, b"m%d" % seq)


def messages(spark: Any, last: int = 100) -> Any:
    rows = [
        ("h", "/a/b", 1, seq, crc(seq), "GUARANTEED", START + timedelta(seconds=seq), fields(seq))
        for seq in range(1, last + 1)
    ]
    return spark.createDataFrame(rows, MESSAGE)


def fields(seq: int) -> dict[str, str] | None:
    """Messages from 90 on have fields."""
    return {"unit": "km/h", "ä": "€\U0001f600", "n": str(seq)} if seq >= 90 else None


def receipt(seqs: Sequence[int], **changed: Any) -> tuple[Any, ...]:
    row: dict[str, Any] = {
        "session": "s1",
        "subscriber": "ann",
        "history": "h",
        "subject": "/a/b",
        **sums("/a/b", seqs, lambda seq: b"m%d" % seq, fields=fields),
        "conflated": 0,
        "via": "n1",
        "opened_ts": START,
        "closed_ts": START + timedelta(seconds=max(seqs)),
        "owner": "o1",
        "verified": True,
        "left_out": 0,
    }
    return tuple((row | changed).values())


def once(spark: Any, receipts: Sequence[tuple[Any, ...]]) -> Any:
    return audit.each_once(spark.createDataFrame(list(receipts), RECEIPT))


def judged_ranges(archived: Any, receipts: Any) -> Any:
    return audit.judge_ranges(archived, receipts, audit.sums_at_ends(archived, receipts))


def gaps_between(archived: Any, receipts: Any) -> Any:
    return audit.find_gaps(archived, audit.uncovered(archived, receipts))


def judge(spark: Any, *receipts: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    return verdicts(spark, *receipts), gaps_of(spark, *receipts)


def verdicts(spark: Any, *receipts: tuple[Any, ...]) -> list[Any]:
    judged = judged_ranges(audit.promised(messages(spark)), once(spark, receipts))
    rows: list[Any] = judged.collect()
    return sorted(rows, key=lambda row: (row.session, row.owner, row.seq_lo))


def gaps_of(spark: Any, *receipts: tuple[Any, ...]) -> list[Any]:
    found: list[Any] = gaps_between(
        audit.promised(messages(spark)), once(spark, receipts)
    ).collect()
    return found


def test_whole_ranges_are_exact_and_leave_no_gap(spark: Any) -> None:
    judged, gaps = judge(spark, receipt(range(1, 61)), receipt(range(61, 101)))
    assert [(row.verdict, row.first_bad_seq, row.reason) for row in judged] == [
        ("exact", None, None)
    ] * 2
    assert gaps == []


def test_a_session_may_begin_late(spark: Any) -> None:
    judged, gaps = judge(spark, receipt(range(40, 101)))
    assert [row.verdict for row in judged] == ["exact"]
    assert gaps == []


DAMAGED = {
    "a gap inside": (receipt([11, 12, 14, 15], session="a gap inside"), "loss"),
    "twice": (receipt([11, 12, 12, 13], session="twice"), "dup_or_corrupt"),
    "altered": (receipt([11, 12], crc_sum=crc(11) + 7, session="altered"), "dup_or_corrupt"),
    "exchanged": (receipt([11, 12], crc_at=crc(11), session="exchanged"), "dup_or_corrupt"),
    "swapped": (receipt([11, 13, 12, 14], session="swapped"), "reordered"),
    "beyond the archive": (receipt([99, 100, 101], session="beyond the archive"), "not_archived"),
    "foreign epoch": (receipt([11, 12], epoch=4, session="foreign epoch"), "unknown_epoch"),
    "conflated": (receipt([11, 15], conflated=2, session="conflated"), "conflated"),
}


def test_each_damage_has_its_verdict(spark: Any) -> None:
    judged = verdicts(spark, *(row for row, _ in DAMAGED.values()))
    assert {row.session: row.verdict for row in judged} == {
        session: verdict for session, (_, verdict) in DAMAGED.items()
    }
    named = {row.session for row in judged if row.first_bad_seq is not None and row.reason}
    # Of two that were exchanged the sums do not say which they are.
    assert named == DAMAGED.keys() - {"conflated", "exchanged"}


def test_one_altered_message_is_found_by_the_sums(spark: Any) -> None:
    seqs, difference = range(40, 101), -12345
    sum_, at = sum(crc(each) for each in seqs), sum(crc(each) * (each - 40) for each in seqs)
    judged = verdicts(
        spark,
        *(
            receipt(
                seqs,
                session=f"s{seq}",
                crc_sum=sum_ + difference,
                crc_at=at + difference * (seq - 40),
            )
            for seq in (40, 77, 100)
        ),
    )
    assert {row.session: (row.verdict, row.first_bad_seq) for row in judged} == {
        "s40": ("dup_or_corrupt", 40),
        "s77": ("dup_or_corrupt", 77),
        "s100": ("dup_or_corrupt", 100),
    }


def test_altered_fields_are_found_and_placed_unless_a_receipt_says_nothing_of_them(
    spark: Any,
) -> None:
    wrong = fields_checksum("/a/b", 1, 97, {"unit": "mph"}) - digest(97)
    seqs = range(88, 101)
    right = sums("/a/b", seqs, fields=fields)
    nothing = {"fields_sum": None, "fields_at": None}
    told = [
        receipt(seqs, session="right"),
        receipt(
            seqs,
            session="altered",
            fields_sum=right["fields_sum"] + wrong,
            fields_at=right["fields_at"] + wrong * (97 - 88),
        ),
        receipt([95], session="dropped", fields_sum=0),
        receipt(seqs, session="old", **nothing),
        receipt(range(1, 50), session="old, without fields", **nothing),
    ]
    archived = audit.promised(messages(spark))
    judged = judged_ranges(archived, once(spark, told)).localCheckpoint()
    found = {row.session: (row.verdict, row.first_bad_seq, row.reason) for row in judged.collect()}
    assert found == {
        "right": ("exact", None, None),
        "altered": ("dup_or_corrupt", 97, "checksums differ: fields were altered"),
        "dropped": ("dup_or_corrupt", 95, "checksums differ: fields were altered"),
        "old": ("exact", None, None),
        "old, without fields": ("exact", None, None),
    }
    assert {(row.kind, row.session) for row in findings.of_receipts(judged).collect()} == {
        ("altered", "altered"),
        ("altered", "dropped"),
    }
    (silent,) = findings.of_unknown_fields(audit.silent_of_fields(judged)).collect()
    assert (silent.kind, silent.session, silent.n) == ("unjudged", "old", 13)


def test_a_first_message_that_may_be_a_merged_one_is_not_called_altered(spark: Any) -> None:
    """The queue of a slow reader merges messages, and the client knew nothing of the subject."""

    def merged(seq: int) -> dict[str, str] | None:
        return {**(fields(seq) or {}), "before": "1"} if seq == 95 else fields(seq)

    def told(seqs: Sequence[int], session: str, **changed: Any) -> tuple[Any, ...]:
        given = sums("/a/b", seqs, lambda seq: b"m%d" % seq, fields=merged)
        return receipt(seqs, session=session, **(given | changed))

    rows = [
        told(range(95, 101), "first of its subject"),
        receipt(range(80, 90), session="behind a hole"),
        told(range(95, 101), "behind a hole"),
        receipt(range(80, 95), session="nothing before it"),
        told(range(95, 101), "nothing before it"),
        told(range(94, 101), "in the middle"),
        told(range(95, 101), "content as well", crc_sum=1),
        told(range(95, 101), "twice", dups=1),
    ]
    judged = {row.session: row for row in verdicts(spark, *rows) if row.seq_hi == 100}
    assert {name for name, row in judged.items() if row.verdict == "unjudged"} == {
        "first of its subject",
        "behind a hole",
    }
    assert {row.verdict for row in judged.values()} == {"unjudged", "dup_or_corrupt"}
    found = findings.of_receipts(
        judged_ranges(audit.promised(messages(spark)), once(spark, rows[:1]))
    ).collect()
    (row,) = found
    assert (row.kind, row.seq_lo, row.first_bad_seq) == ("unjudged", 95, None)
    assert "merged" in row.reason


def test_two_contents_of_one_place_are_a_fault_of_the_archive(spark: Any) -> None:
    """The receipt of 71 fits one of them, which of the two is not known."""
    both = messages(spark).unionByName(
        messages(spark).where("seq in (63, 71)").withColumn("crc", f.lit(2**32 - 1))
    )
    archived = audit.promised(both.unionByName(messages(spark).where("seq = 5")))
    told = [
        receipt([62, 63], session="other", crc_sum=7, crc_at=3),
        receipt([70, 71], session="one of them"),
        receipt([5, 6], session="another row, equal"),
    ]
    judged = judged_ranges(archived, once(spark, told)).localCheckpoint()
    assert {row.session: row.verdict for row in judged.collect()} == {
        "other": "differing",
        "one of them": "exact",
        "another row, equal": "exact",
    }
    assert {row.kind for row in findings.of_receipts(judged).collect()} == {"differing"}
    assert sorted(
        row.seq_lo for row in findings.of_differing(audit.differing(archived)).collect()
    ) == [63, 71]


def digest(seq: int) -> int:
    return fields_checksum("/a/b", 1, seq, fields(seq))


def test_a_gap_between_two_ranges_is_placed_exactly(spark: Any) -> None:
    judged, gaps = judge(spark, receipt(range(1, 41)), receipt(range(44, 101)))
    assert {row.verdict for row in judged} == {"exact"}
    assert [(g.session, g.subject, g.seq_lo, g.seq_hi, g.n) for g in gaps] == [
        ("s1", "/a/b", 41, 43, 3)
    ]


def test_what_came_long_before_the_end_of_the_last_range_is_a_gap(spark: Any) -> None:
    closed = START + timedelta(seconds=60)
    gaps = gaps_of(spark, receipt(range(1, 51), closed_ts=closed))
    assert [(g.seq_lo, g.seq_hi, g.n) for g in gaps] == [(51, 54, 4)]


def test_a_receipt_that_was_sent_twice_counts_once(spark: Any) -> None:
    judged, gaps = judge(spark, receipt(range(1, 101)), receipt(range(1, 101), closed_ts=START))
    assert [row.verdict for row in judged] == ["exact"]
    assert gaps == []


@pytest.mark.parametrize(
    ("bare", "told", "kept"),
    [(True, True, [True]), (True, False, [False]), (False, True, [True]), (False, False, [True])],
)
def test_a_repetition_to_a_newer_server_tells_of_fields_as_well(
    spark: Any, bare: bool, told: bool, kept: list[bool]
) -> None:
    without = receipt(range(90, 101), verified=bare, fields_sum=None, fields_at=None)
    rows = once(spark, [without, receipt(range(90, 101), verified=told)]).collect()
    assert [row.fields_sum is not None for row in rows] == kept
    assert [row.verified for row in rows] == [bare or told]


MOST = 2**63 - 1


def test_numbers_that_do_not_fit_end_no_audit(spark: Any) -> None:
    """Members of earlier releases wrote any numbers, and present ones write any sums."""
    impossible = [
        receipt([11, 12], session=f"s{n}", **changed)
        for n, changed in enumerate(
            [
                {"seq_hi": MOST},
                {"seq_lo": 12, "seq_hi": 11},
                {"seq_lo": -1},
                *({name: MOST} for name in ("n", "dups", "reordered", "conflated")),
                {"n": -1},
            ]
        )
    ]
    sums = receipt([11, 12], session="sums", crc_sum=crc(11) + crc(12) + 1, crc_at=MOST)
    fields = receipt([11, 12], session="fields", fields_sum=1, fields_at=MOST)
    judged, _ = judge(spark, *impossible, sums, fields, receipt(range(1, 101)))
    assert [(row.session, row.verdict, row.first_bad_seq) for row in judged] == [
        ("fields", "dup_or_corrupt", None),
        ("s1", "exact", None),
        ("sums", "dup_or_corrupt", None),
    ]
    assert audit.silent_of_fields(
        judged_ranges(audit.promised(messages(spark)), once(spark, impossible))
    ).isEmpty()


def test_what_no_member_confirms_proves_nothing(spark: Any) -> None:
    wrong = receipt([11, 12], crc_sum=crc(11) + 7, verified=False)
    older = receipt([31, 32], crc_sum=crc(31) + 7, verified=None, owner=None)
    judged, gaps = judge(spark, wrong, receipt(range(20, 101)), older)
    assert [(row.seq_lo, row.verdict, row.verified) for row in judged] == [
        (31, "dup_or_corrupt", True),
        (11, "dup_or_corrupt", False),
        (20, "exact", True),
    ]
    assert {(g.owner, g.seq_lo, g.verified) for g in gaps if g.owner} == {("o1", 13, False)}


def test_the_session_of_another_owner_is_another_one(spark: Any) -> None:
    judged, gaps = judge(spark, receipt(range(1, 101)), receipt([1, 2, 90], owner="o2"))
    assert len(judged) == 2
    assert {g.owner for g in gaps} <= {"o2"}


def test_what_a_conflated_subscription_left_out_is_no_gap(spark: Any) -> None:
    left_out = receipt([41, 43, 70], conflated=27)
    judged, gaps = judge(spark, receipt(range(1, 41)), left_out, receipt(range(95, 101)))
    assert [row.verdict for row in judged] == ["exact", "conflated", "exact"]
    assert gaps == []


FAULTS = {
    "one lost": ([11, 12, 14, 15], "loss", 13),
    "three lost": ([11, 15], "loss", None),
    "one not archived": ([*range(61, 66)], "not_archived", 63),
    "two not archived": ([*range(61, 81)], "not_archived", None),
    "whole": ([70, 71, 72], "exact", None),
}


def test_whose_fault_it_is_and_where(spark: Any) -> None:
    """The archive lacks 63 and 75: that is no fault of any delivery."""
    archived = messages(spark).where("seq not in (63, 75)")
    rows = [receipt(received, session=name) for name, (received, _, _) in FAULTS.items()]
    judged = judged_ranges(audit.promised(archived), once(spark, rows)).localCheckpoint()
    assert {row.session: (row.verdict, row.first_bad_seq) for row in judged.collect()} == {
        name: (verdict, first_bad) for name, (_, verdict, first_bad) in FAULTS.items()
    }
    assert {
        row.session: row.kind in findings.DELIVERY for row in findings.of_receipts(judged).collect()
    } == {name: verdict == "loss" for name, (_, verdict, _) in FAULTS.items() if verdict != "exact"}


def test_receipts_that_the_server_left_out_make_a_gap_that_nobody_can_judge(spark: Any) -> None:
    rows = [receipt(range(1, 41)), receipt(range(44, 101), left_out=2)]
    gaps = gaps_between(audit.promised(messages(spark)), once(spark, rows))
    (found,) = findings.of_gaps(gaps).collect()
    assert (found.kind, found.seq_lo, found.seq_hi) == ("unjudged", 41, 43)
    assert found.reason == "the server left out 2 receipts of this owner"


ACCESS = (
    "ts timestamp, node string, event string, session string, user string, client string,"
    " subject string"
)


def test_a_session_that_got_nothing_is_found(spark: Any) -> None:
    def event(session: str, user: str, name: str, subject: str | None, second: int) -> Any:
        moment = START + timedelta(seconds=second)
        return (moment, "n1", name, session, user or None, "library/1.0", subject)

    rows = [
        (h, s, 1, seq, crc(seq), "GUARANTEED", START + timedelta(seconds=seq), None)
        for h, s in (("h", "/a/b"), ("h", "/a/c"), ("h", "/a/d"), ("h", "/b/c"))
        for seq in range(1, 101)
    ]
    access = [
        event("n1-1", "ann", "subscribe", "/a/*", 10),
        event("n1-1", "ann", "subscribe", "/b/c", 90),
        event("n1-2", "bob", "subscribe", "/a/c", 10),
        event("n1-2", "bob", "unsubscribe", "/a/c", 20),
        event("n1-3", "eve", "subscribe", "/a/c", 10),
        event("n1-4", "kim", "subscribe", "/a/c", 10),
        event("n1-4", "kim", "subscribe-with-recovery", "/a/c", 30),
        event("n1-5", "ann", "subscribe-denied", "/a/d", 10),
        event("n1-6", "", "subscribe", "/a/c", 10),
    ]
    closed = START + timedelta(seconds=90)
    receipts = [
        receipt(range(11, 91), closed_ts=closed),
        receipt(range(11, 91), closed_ts=closed, subject="/a/d"),
        receipt(range(11, 91), closed_ts=closed, subscriber="bob", owner="o2"),
        receipt(range(11, 91), closed_ts=closed, subscriber="kim", owner="o3"),
        # Without a user a receipt has the name of its client, which all of a library share.
        receipt(range(11, 91), closed_ts=closed, subscriber="library/1.0", owner="n1-7"),
    ]
    found = find_silent(
        audit.promised(spark.createDataFrame(rows, MESSAGE)),
        once(spark, receipts),
        spark.createDataFrame(access, ACCESS),
    )
    assert {
        (r.subscriber, r.session, r.subject, r.seq_lo, r.seq_hi, r.n) for r in found.found.collect()
    } == {
        ("ann", "n1-1", "/a/c", 10, 85, 76),
        ("bob", "n1-2", "/a/c", 10, 15, 6),
    }
    assert {(row.subscriber, row.reason.split()[0]) for row in found.unjudged.collect()} == {
        ("eve", "no"),
        ("kim", "subscribed"),
        ("library/1.0", "no"),
    }


def test_the_cost_is_that_of_messages_and_receipts_not_of_one_times_the_other(spark: Any) -> None:
    """300 sessions that missed half of 1,000 messages: no step makes a row of each pair."""
    sessions = [
        receipt(seqs, session=f"s{number}")
        for number in range(300)
        for seqs in (range(1, 11), range(900, 911))
    ]
    archived = audit.promised(messages(spark, 1_000))
    gaps = gaps_between(archived, once(spark, sessions))
    execution = gaps._jdf.queryExecution()
    assert execution.toRdd().count() == 300
    most = max(rows_made(execution.executedPlan()))
    assert most <= 4 * (1_000 + len(sessions))


def rows_made(plan: Any) -> list[int]:
    """How many rows each operator of a plan that was run has made."""
    metric = plan.metrics().get("numOutputRows")
    own = [metric.get().value()] if metric.isDefined() else []
    children = plan.children()
    below = [rows_made(children.apply(number)) for number in range(children.size())]
    return [*own, *(each for part in below for each in part)]


def test_acked_and_not_archived(spark: Any) -> None:
    def event(seq: int | None, second: int, node: str = "n1", **changed: Any) -> tuple[Any, ...]:
        row = {"event": "publish", "qos": "GUARANTEED", "history": "h", "subject": "/a/b"} | changed
        moment = START + timedelta(seconds=second)
        return (moment, node, *row.values(), 1, seq, "p", seq)

    published = spark.createDataFrame(
        [
            event(99, 99),
            event(100, 100),
            event(100, 100, subject="/a/c"),
            event(100, 100, subject="/a/c"),
            event(7, 7, history="other"),
            event(101, 101),
            event(5, 300, node="n2", subject="/a/d"),
            event(None, 50, event="publish-denied"),
            event(0, 50, qos="STANDARD"),
        ],
        "ts timestamp, node string, event string, qos string, history string, subject string,"
        " epoch bigint, seq bigint, publisher string, number bigint",
    )
    archived = messages(spark).selectExpr("*", "'n1' as node")
    lost = audit.acked_not_archived(published, archived, ArchivedUntil())
    lost = lost.where("reached").collect()
    assert sorted((row.history, row.subject, row.seq) for row in lost) == [
        ("h", "/a/c", 100),
        ("h", "/a/d", 5),
        ("other", "/a/b", 7),
    ]
    told = {"n1": at(102), "n2": at(1)}
    found = audit.acked_not_archived(published, archived, ArchivedUntil(told))
    lost = found.where("reached").collect()
    assert sorted((row.history, row.subject, row.seq) for row in lost) == [
        ("h", "/a/b", 101),
        ("h", "/a/c", 100),
        ("other", "/a/b", 7),
    ]
    told = {"n1": at(1), "n2": at(1)}
    found = audit.acked_not_archived(published, archived, ArchivedUntil(told))
    rows = findings.of_unarchived(found).collect()
    assert sorted((row.kind, row.member, row.subject, row.seq_lo, row.n) for row in rows) == [
        ("acknowledged_not_archived", "n1", "/a/b", 7, 1),
        ("acknowledged_not_archived", "n1", "/a/c", 100, 1),
        ("unjudged", "n1", "/a/b", 101, 1),
        ("unjudged", "n2", "/a/d", 5, 1),
    ]


def at(second: int) -> int:
    return int((START + timedelta(seconds=second)).timestamp()) * 1_000_000
