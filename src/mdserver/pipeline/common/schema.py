"""The tables of the archive: their columns for Spark and for Delta.

Lines of the journal and records of Kafka are parsed with the `_ROW` types, whose columns
`mdserver.journal.rows` documents. Tables have the `_TABLE` schemas. Delta tables are made from
these and never from their first file, so that a column has its type from the start.
"""

from typing import get_args, get_type_hints

import msgspec
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mdserver.core.subjects import RESERVED, parse_interest, segments_of
from mdserver.journal.audit import AccessRow, AuditRow, CacheRow, PublishRow

MESSAGE_ROW = t.StructType(
    [
        t.StructField("v", t.IntegerType()),
        t.StructField("history", t.StringType()),
        t.StructField("subject", t.StringType()),
        t.StructField("epoch", t.LongType()),
        t.StructField("seq", t.LongType()),
        t.StructField("group", t.IntegerType()),
        t.StructField("ts_pub", t.LongType()),
        t.StructField("ts_server", t.LongType()),
        t.StructField("node", t.StringType()),
        t.StructField("crc", t.LongType()),
        t.StructField("content", t.StringType()),
        t.StructField("content_base64", t.StringType()),
        t.StructField("fields", t.MapType(t.StringType(), t.StringType())),
        t.StructField("closure", t.StringType()),
        t.StructField("retained", t.BooleanType()),
        t.StructField("qos", t.StringType()),
        t.StructField("compressed", t.BooleanType()),
        t.StructField("reply_subject", t.StringType()),
        t.StructField("publisher", t.StringType()),
        t.StructField("number", t.LongType()),
    ]
)

RECEIPT_ROW = t.StructType(
    [
        t.StructField("v", t.IntegerType()),
        t.StructField("session", t.StringType()),
        t.StructField("subscriber", t.StringType()),
        t.StructField("history", t.StringType()),
        t.StructField("subject", t.StringType()),
        t.StructField("epoch", t.LongType()),
        t.StructField("seq_lo", t.LongType()),
        t.StructField("seq_hi", t.LongType()),
        t.StructField("n", t.LongType()),
        t.StructField("crc_sum", t.LongType()),
        t.StructField("crc_at", t.LongType()),
        t.StructField("dups", t.LongType()),
        t.StructField("reordered", t.LongType()),
        t.StructField("conflated", t.LongType()),
        t.StructField("via", t.StringType()),
        t.StructField("opened_ts", t.LongType()),
        t.StructField("closed_ts", t.LongType()),
        t.StructField("owner", t.StringType()),
        t.StructField("verified", t.BooleanType()),
        t.StructField("left_out", t.LongType()),
        t.StructField("fields_sum", t.LongType()),
        t.StructField("fields_at", t.LongType()),
    ]
)

STAT_ROW = t.StructType(
    [
        t.StructField("v", t.IntegerType()),
        t.StructField("ts", t.LongType()),
        t.StructField("node", t.StringType()),
        t.StructField("indicator", t.StringType()),
        t.StructField("value", t.DoubleType()),
    ]
)


_SPARK: dict[object, t.DataType] = {
    int: t.LongType(),
    str: t.StringType(),
    bool: t.BooleanType(),
}


def _event_row(kind: type[AuditRow]) -> t.StructType:
    """Return the columns of a stream of events, from the class that documents them."""
    hints = get_type_hints(kind)
    return t.StructType(
        [
            t.StructField(
                column.name, _SPARK[(get_args(hints[column.name]) or (hints[column.name],))[0]]
            )
            for column in msgspec.structs.fields(kind)
        ]
    )


EVENT_ROWS = {
    "access": _event_row(AccessRow),
    "publish": _event_row(PublishRow),
    "cache": _event_row(CacheRow),
}


def root_of(subject: Column) -> Column:
    """Return the first segment of a subject."""
    return f.substring_index(subject.substr(f.lit(2), f.length(subject)), "/", 1)


def key_of(subject: Column) -> Column:
    """Return the part of a subject behind its first segment; empty if there is none."""
    return subject.substr(f.length(root_of(subject)) + 3, f.length(subject))


def day_of(moment: Column) -> Column:
    """Return the partition of a moment: its day in UTC, which is the session's time zone."""
    return moment.cast("date").cast("string")


def subject_regex(text: str) -> str:
    """Return a subject or pattern as a regular expression.

    A pattern that begins with a wildcard does not match the reserved subjects, as in the server.
    Raises InvalidSubjectError if the text is neither a subject nor a pattern.
    """
    pattern = parse_interest(text)
    segments = (pattern.segments if pattern else segments_of(text)) or ()
    parts = "".join("/[^/]+" if segment == "*" else f"/\\Q{segment}\\E" for segment in segments)
    rest = "(/[^/]+)+" if pattern is not None and pattern.rest else ""
    open_start = pattern is not None and not pattern.is_reserved()
    others = f"(?!/{RESERVED}/)" if open_start else ""
    return f"^{others}{parts}{rest}$"


TIME = pa.timestamp("us", "UTC")

MESSAGES_TABLE = pa.schema(
    [
        ("root", pa.string()),
        ("subject", pa.string()),
        ("key", pa.string()),
        ("history", pa.string()),
        ("epoch", pa.int64()),
        ("seq", pa.int64()),
        ("content", pa.binary()),
        ("text", pa.bool_()),
        ("compressed", pa.bool_()),
        ("fields", pa.map_(pa.string(), pa.string())),
        ("closure", pa.string()),
        ("retained", pa.bool_()),
        ("qos", pa.string()),
        ("reply_subject", pa.string()),
        ("ts_pub", TIME),
        ("ts_server", TIME),
        ("ts_broker", TIME),
        ("publisher", pa.string()),
        ("number", pa.int64()),
        ("message_id", pa.string()),
        ("node", pa.string()),
        ("src_kind", pa.string()),
        ("src_partition", pa.int64()),
        ("src_pos", pa.int64()),
        ("crc", pa.int64()),
        ("batch_id", pa.int64()),
        ("dt", pa.string()),
    ]
)

RECEIPTS_TABLE = pa.schema(
    [
        ("session", pa.string()),
        ("subscriber", pa.string()),
        ("history", pa.string()),
        ("subject", pa.string()),
        ("epoch", pa.int64()),
        ("seq_lo", pa.int64()),
        ("seq_hi", pa.int64()),
        ("n", pa.int64()),
        ("crc_sum", pa.int64()),
        ("crc_at", pa.int64()),
        ("dups", pa.int64()),
        ("reordered", pa.int64()),
        ("conflated", pa.int64()),
        ("via", pa.string()),
        ("opened_ts", TIME),
        ("closed_ts", TIME),
        ("owner", pa.string()),
        ("verified", pa.bool_()),
        ("left_out", pa.int64()),
        ("fields_sum", pa.int64()),
        ("fields_at", pa.int64()),
        ("batch_id", pa.int64()),
    ]
)

STATS_TABLE = pa.schema(
    [
        ("ts", TIME),
        ("node", pa.string()),
        ("indicator", pa.string()),
        ("value", pa.float64()),
        ("batch_id", pa.int64()),
        ("source", pa.int64()),
    ]
)

QUARANTINE_TABLE = pa.schema(
    [
        ("stream", pa.string()),
        ("reason", pa.string()),
        ("line", pa.binary()),
        ("src_kind", pa.string()),
        ("src_partition", pa.int64()),
        ("src_pos", pa.int64()),
        ("batch_id", pa.int64()),
        ("node", pa.string()),
        ("ts", TIME),
    ]
)

SUMMARIES_TABLE = pa.schema(
    [
        ("period", TIME),
        ("node", pa.string()),
        ("indicator", pa.string()),
        ("n", pa.int64()),
        ("mean", pa.float64()),
        ("m2", pa.float64()),
        ("max", pa.float64()),
        ("min", pa.float64()),
        ("last", pa.float64()),
        ("last_ts", TIME),
        ("sketch", pa.binary()),
    ]
)

VERDICTS_TABLE = pa.schema(
    [
        ("session", pa.string()),
        ("subscriber", pa.string()),
        ("history", pa.string()),
        ("subject", pa.string()),
        ("epoch", pa.int64()),
        ("seq_lo", pa.int64()),
        ("seq_hi", pa.int64()),
        ("n", pa.int64()),
        ("expected_n", pa.int64()),
        ("verdict", pa.string()),
        ("first_bad_seq", pa.int64()),
        ("reason", pa.string()),
        ("owner", pa.string()),
        ("verified", pa.bool_()),
    ]
)

FINDINGS_TABLE = pa.schema(
    [
        ("kind", pa.string()),
        ("proof", pa.string()),
        ("session", pa.string()),
        ("subscriber", pa.string()),
        ("owner", pa.string()),
        ("member", pa.string()),
        ("history", pa.string()),
        ("subject", pa.string()),
        ("epoch", pa.int64()),
        ("seq_lo", pa.int64()),
        ("seq_hi", pa.int64()),
        ("n", pa.int64()),
        ("first_bad_seq", pa.int64()),
        ("publisher", pa.string()),
        ("number", pa.int64()),
        ("reason", pa.string()),
    ]
)

BENCH_ROW = t.StructType(
    [
        t.StructField("columns_version", t.LongType()),
        t.StructField("time", t.StringType()),
        t.StructField("mdserver", t.StringType()),
        t.StructField("python", t.StringType()),
        t.StructField("system", t.StringType()),
        t.StructField("cpus", t.LongType()),
        t.StructField("bench", t.StringType()),
        t.StructField("mode", t.StringType()),
        t.StructField("encoding", t.StringType()),
        t.StructField("connections", t.LongType()),
        t.StructField("content_bytes", t.LongType()),
        t.StructField("count", t.LongType()),
        t.StructField("seconds", t.DoubleType()),
        t.StructField("per_s", t.DoubleType()),
        t.StructField("per_cpu_s", t.DoubleType()),
        t.StructField("ratio", t.DoubleType()),
        t.StructField("cpu_ratio", t.DoubleType()),
        t.StructField("p50_ms", t.DoubleType()),
        t.StructField("p99_ms", t.DoubleType()),
        t.StructField("lost", t.LongType()),
        t.StructField("repeated", t.LongType()),
        t.StructField("altered", t.LongType()),
        t.StructField("resident_kib", t.LongType()),
        t.StructField("kib_each", t.DoubleType()),
        t.StructField("floor_per_s", t.DoubleType()),
        t.StructField("floor_per_cpu_s", t.DoubleType()),
        t.StructField("p95_ms", t.DoubleType()),
        t.StructField("p999_ms", t.DoubleType()),
        t.StructField("max_ms", t.DoubleType()),
        t.StructField("floor_p99_ms", t.DoubleType()),
        t.StructField("intended_per_s", t.DoubleType()),
        t.StructField("reconnects", t.LongType()),
        t.StructField("grown_percent", t.DoubleType()),
        t.StructField("descriptors_left", t.LongType()),
    ]
)
_ARROW: dict[t.DataType, pa.DataType] = {
    t.LongType(): pa.int64(),
    t.DoubleType(): pa.float64(),
    t.StringType(): pa.string(),
    t.BooleanType(): pa.bool_(),
}


def _events_table(row: t.StructType) -> pa.Schema:
    columns = [(c.name, _ARROW[c.dataType]) for c in row if c.name not in {"v", "ts"}]
    return pa.schema([("ts", TIME), *columns, ("batch_id", pa.int64())])


BENCH_RUNS_TABLE = pa.schema([(column.name, _ARROW[column.dataType]) for column in BENCH_ROW])

LAYOUT = 4
"""The number of the layout of the tables. Each layout adds columns to the one before; a table of
the first one has no property for it. A release that adds a column or a table adds 1."""
LAYOUT_PROPERTY = "mdserver.layout"
"""The property of a Delta table that holds its layout."""

PARTITIONS: dict[str, list[str]] = {"messages": ["dt"]}
"""Never by anything that publishers choose: a segment of a subject may be longer than the name of a
folder can be."""
SORT = {
    # The partition first: Spark writes the files of one partition after the other, and would
    # otherwise sort by it itself.
    "messages": ["dt", "subject", "epoch", "seq"],
    "receipts": ["subject", "epoch", "seq_lo"],
}
"""The columns by which the rows within each file are sorted."""

TABLES: dict[str, pa.Schema] = {
    "messages": MESSAGES_TABLE,
    "receipts": RECEIPTS_TABLE,
    "stats": STATS_TABLE,
    "quarantine": QUARANTINE_TABLE,
    "stats_minute": SUMMARIES_TABLE,
    "stats_hour": SUMMARIES_TABLE,
    "stats_day": SUMMARIES_TABLE,
    "stats_month": SUMMARIES_TABLE,
    "audit_verdicts": VERDICTS_TABLE,
    "audit_findings": FINDINGS_TABLE,
    "bench_runs": BENCH_RUNS_TABLE,
    **{f"events_{name}": _events_table(row) for name, row in EVENT_ROWS.items()},
}
