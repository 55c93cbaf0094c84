"""The parsing of raw lines into columns of the tables. Pure: a DataFrame in, DataFrames out.

A line that cannot be used neither gets lost nor stops the job: it comes out with its reason, for
the table `quarantine`. The reasons are in an order: the checksum of the line first, since the
others mean little if the line was altered, then its text, its JSON, its version, its columns.
"""

from attrs import frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mdserver import limits
from mdserver.journal.rows import LINE_CRC, LINE_CRC_BYTES
from mdserver.pipeline.common import schema

ROW_VERSION = 1
CORRUPT = "_corrupt"
HOLE = (
    t.StructType()
    .add("journal", "string")
    .add("first", "long")
    .add("last", "long")
    .add("node", "string")
    .add("noticed", "long")
)
"""What a line of any stream may have in place of its columns: `holes.JournalHole`."""
MISSING = "segments are missing"
TIMES_US = (0, 7_258_118_400_000_000)
"""The times that rows may have (us): from 1970, the time of a publication without one, to before
2200."""


@frozen
class Parsed:
    """Raw lines after parsing: `good` are rows of the stream's table, `bad` of `quarantine`."""

    good: DataFrame
    bad: DataFrame


@frozen
class JournalStream:
    """A stream of the journal, and how its lines become rows of a table.

    `row` has the columns of a line; `required` are those that must not be null; `times` are those
    with a time (us), the last of which says how old a row is.
    """

    name: str
    table: str
    row: t.StructType
    required: tuple[str, ...]
    times: tuple[str, ...] = ("ts",)


MESSAGES = JournalStream(
    "messages",
    "messages",
    schema.MESSAGE_ROW,
    ("history", "subject", "epoch", "seq", "ts_server", "crc"),
    ("ts_pub", "ts_server"),
)
RECEIPTS = JournalStream(
    "receipts",
    "receipts",
    schema.RECEIPT_ROW,
    ("session", "history", "subject", "epoch", "seq_lo", "seq_hi", "n", "crc_sum", "crc_at"),
    ("opened_ts", "closed_ts"),
)
STATS = JournalStream("stats", "stats", schema.STAT_ROW, ("ts", "node", "indicator", "value"))
EVENTS = tuple(
    JournalStream(name, f"events_{name}", row, ("ts", "node", "event"))
    for name, row in schema.EVENT_ROWS.items()
)
STREAMS = {stream.name: stream for stream in (MESSAGES, RECEIPTS, STATS, *EVENTS)}


def parse(raw: DataFrame, stream: JournalStream) -> DataFrame:
    """Add `row` and `reason` to raw lines.

    `row` has the columns of the line, null if it cannot be parsed. `reason` says why the line
    cannot be used, null if it can.
    """
    others = [t.StructField("hole", HOLE), t.StructField(CORRUPT, t.StringType())]
    row_type = t.StructType([*stream.row.fields, *others])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = raw.withColumn("row", f.from_json("value", row_type, options))
    # Spark does not move expressions across an observation. Without one it puts the whole parsing
    # in place of each column that is used of a line, and so parses each line dozens of times.
    return parsed.withColumn("reason", _reason(stream)).observe(
        f"lines of {stream.name}", f.count(f.lit(1)).alias("lines")
    )


def split(parsed: DataFrame, stream: JournalStream) -> Parsed:
    """Divide parsed lines into rows of the stream's table and rows of `quarantine`.

    Messages have the column `src_topic` as well, which is not in their table. A line that stands
    for missing segments becomes the row that an archive of the journal itself
    has of them.
    """
    rows = parsed.where("reason is null")
    good = _events(rows, stream) if stream in EVENTS else PROJECTIONS[stream.name](rows)
    hole = f.when(f.col("reason") == MISSING, f.col("row")["hole"])
    line = f.when(hole.isNull(), f.col("value").cast("binary"))
    noticed = f.coalesce(_time(hole["noticed"]), f.current_timestamp())
    bad = parsed.where("reason is not null").select(
        f.lit(stream.name).alias("stream"),
        f.coalesce(_missing(hole), "reason").alias("reason"),
        line.alias("line"),
        f.when(hole.isNull(), f.col("src_kind")).otherwise(f.lit("journal")).alias("src_kind"),
        f.coalesce(hole["first"], "src_partition").alias("src_partition"),
        f.coalesce(hole["last"], "src_pos").alias("src_pos"),
        f.nullif(hole["node"], f.lit("")).alias("node"),
        noticed.alias("ts"),
    )
    return Parsed(good, bad)


def _reason(stream: JournalStream) -> Column:
    """Return why a line cannot be used, null if it can.

    The first reason that applies counts. A comparison with null is null, so a later check says
    nothing of a column that is missing.
    """
    row = f.col("row")
    line = f.col("value").cast("binary")
    reason = f.when(_is_altered(line), f.lit("line_crc does not fit the line"))
    reason = reason.when(~f.is_valid_utf8("value"), f.lit("not UTF-8"))
    reason = reason.when(
        row.isNull() | row[CORRUPT].isNotNull(), f.lit("not a JSON object of this stream")
    )
    hole = row["hole"]
    named = hole["journal"].isNotNull() & hole["first"].isNotNull() & hole["last"].isNotNull()
    # Which ones is said in `split`: here the expressions would be compiled for all lines.
    reason = reason.when(named, f.lit(MISSING))
    reason = reason.when(row["v"].isNull(), f.lit("v is missing"))
    unknown = f.concat(f.lit("v is "), row["v"].cast("string"), f.lit(f", known is {ROW_VERSION}"))
    reason = reason.when(row["v"] != ROW_VERSION, unknown)
    for name in stream.required:
        reason = reason.when(row[name].isNull(), f.lit(f"{name} is missing"))
    first, end = TIMES_US
    for name in stream.times:
        outside = (row[name] < first) | (row[name] >= end)
        reason = reason.when(outside, f.lit(f"{name} is not between the years 1970 and 2200"))
    if stream is RECEIPTS:
        possible = receipt_numbers(row)
        reason = reason.when(~possible, f.lit("seq_lo, seq_hi and the counts are not of a range"))
    if stream is MESSAGES:
        reason = reason.when(~row["subject"].startswith("/"), f.lit("subject has no leading slash"))
        neither = row["content"].isNull() & row["content_base64"].isNull()
        reason = reason.when(neither, f.lit("content is missing"))
        reason = reason.when(row["crc"] != _crc(row), f.lit("crc does not fit the content"))
    return reason


def _missing(hole: Column) -> Column:
    """Return in words which segments are missing, of which journal; null for no hole."""
    number = f.format_string("segments %d to %d are missing", hole["first"], hole["last"])
    one = f.format_string("segment %d is missing", hole["first"])
    member = f.when(hole["node"] == "", f.lit("")).otherwise(
        f.concat(f.lit(" of member "), hole["node"])
    )
    return f.concat(
        f.when(hole["first"] == hole["last"], one).otherwise(number),
        f.lit(" of the journal "),
        hole["journal"],
        member,
        f.lit(": deleted before it was shipped"),
    )


def receipt_numbers(row: Column | None = None) -> Column:
    """Return whether the numbers of a receipt can be those of a range, as members check them.

    Sums of others would not fit into 64 bits. `row` is the parsed line, None for columns of a row.
    """

    def number(name: str) -> Column:
        return f.coalesce(f.col(name) if row is None else row[name], f.lit(0))

    possible = number("seq_lo").between(f.lit(0), number("seq_hi"))
    possible = possible & (number("seq_hi") <= limits.RECEIPT_SEQ_MAX)
    for name in ("n", "dups", "reordered", "conflated"):
        possible = possible & number(name).between(0, limits.RECEIPT_COUNT_MAX)
    return possible


def _is_altered(line: Column) -> Column:
    """Return whether a line has a checksum that does not fit it.

    Lines of earlier releases have none, and are not altered as far as this can tell.
    """
    size = f.length(line)
    checked = line.substr(f.lit(1), size - LINE_CRC_BYTES)
    told = line.substr(size - LINE_CRC_BYTES + 1, f.lit(LINE_CRC_BYTES)).cast("string")
    expected = f.concat(f.lit(LINE_CRC), f.lpad(f.hex(f.crc32(checked)), 8, "0"), f.lit('"}'))
    return (size > LINE_CRC_BYTES) & told.startswith(LINE_CRC) & (told != expected)


def _content(row: Column) -> Column:
    """Return the bytes of the content, which a line has as text or as base64."""
    return f.coalesce(row["content"].cast("binary"), f.unbase64(row["content_base64"]))


def _crc(row: Column) -> Column:
    """Return the checksum of a message, as `mdserver.core.message.checksum` computes it."""
    head = f.concat_ws("|", row["subject"], row["epoch"], row["seq"], f.lit(""))
    return f.crc32(f.concat(head.cast("binary"), _content(row)))


def _time(column: Column) -> Column:
    return f.timestamp_micros(column)


def _messages(parsed: DataFrame) -> DataFrame:
    row = f.col("row")
    subject = row["subject"]
    numbered = f.concat_ws("/", row["publisher"], row["number"])
    return parsed.select(
        schema.root_of(subject).alias("root"),
        subject.alias("subject"),
        schema.key_of(subject).alias("key"),
        row["history"].alias("history"),
        row["epoch"].alias("epoch"),
        row["seq"].alias("seq"),
        _content(row).alias("content"),
        row["content"].isNotNull().alias("text"),
        f.coalesce(row["compressed"], f.lit(False)).alias("compressed"),
        row["fields"].alias("fields"),
        row["closure"].alias("closure"),
        f.coalesce(row["retained"], f.lit(True)).alias("retained"),
        f.coalesce(row["qos"], f.lit("GUARANTEED")).alias("qos"),
        row["reply_subject"].alias("reply_subject"),
        _time(row["ts_pub"]).alias("ts_pub"),
        _time(row["ts_server"]).alias("ts_server"),
        "ts_broker",
        row["publisher"].alias("publisher"),
        f.coalesce(row["number"], f.lit(0)).cast("bigint").alias("number"),
        f.when(row["number"] > 0, numbered).alias("message_id"),
        row["node"].alias("node"),
        "src_kind",
        "src_topic",
        "src_partition",
        "src_pos",
        row["crc"].alias("crc"),
        schema.day_of(_time(row["ts_server"])).alias("dt"),
    )


def _receipts(parsed: DataFrame) -> DataFrame:
    row = f.col("row")
    names = [n for n in schema.RECEIPT_ROW.names if n not in {"v", "opened_ts", "closed_ts"}]
    times = [_time(row[name]).alias(name) for name in ("opened_ts", "closed_ts")]
    return parsed.select(*(row[name].alias(name) for name in names), *times)


def _stats(parsed: DataFrame) -> DataFrame:
    row = f.col("row")
    return parsed.select(
        _time(row["ts"]).alias("ts"),
        *(row[name].alias(name) for name in ("node", "indicator", "value")),
    )


def _events(parsed: DataFrame, stream: JournalStream) -> DataFrame:
    row = f.col("row")
    names = [name for name in stream.row.names if name not in {"v", "ts"}]
    return parsed.select(_time(row["ts"]).alias("ts"), *(row[name].alias(name) for name in names))


PROJECTIONS = {"messages": _messages, "receipts": _receipts, "stats": _stats}
