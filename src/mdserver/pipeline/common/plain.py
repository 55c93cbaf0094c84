"""Plain records of Kafka topics as lines of the journal.

Members with `ClusterEngine = kafka` take each record for a message (docs/kafka.md, "Mapping"), and
so do the jobs: topic and key are the subject, the value is the content, headers are the fields. The
expressions here write the line that a journal would have of that message. So the same code parses,
checks and numbers both, and a record that cannot be a message is set aside like a damaged line.

seq is that of the members, the offset counted from 1. epoch is the partition, counted from 1 too:
Spark does not tell the leader epochs of records, which members have. The history is the identifier
of the topic, which a topic that is created again does not share.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mdserver.core.subjects import RESERVED
from mdserver.limits import SUBJECT_BYTES_MAX, SUBJECT_SEGMENTS_MAX

OWN = "md-"
"""The beginning of the names of headers that are no fields: the members' own."""
VERSION = 1
IDENTITY = r"^(\d{1,18}) ([0-9a-f]{8}) (.+)$"
"""The value of the header `md-id`: number, checksum of the subject, publisher."""
SUBJECT = r"^(/(?!\*\*?(/|$))[^/]+)+$"
"""Subjects: no segment is empty, or a wildcard."""


def lines(records: DataFrame, histories: Mapping[str, str]) -> Column:
    """Return the lines of the records of these topics; `histories` names the history of each."""
    assert "headers" in records.columns, "the source is to be read with `includeHeaders`"
    subject = _subject()
    content = f.coalesce(f.col("value"), f.encode(f.lit(""), "UTF-8"))
    is_text = f.is_valid_utf8(content.cast("string")) & ~_header("enc").eqNullSafe("binary")
    epoch, seq = f.col("partition").cast("bigint") + 1, f.col("offset") + 1
    place = f.concat_ws("|", subject, epoch, seq, f.lit(""))
    time = f.unix_micros("timestamp")
    publisher, number = _identity(_header("id"), subject)
    named = f.create_map(*(f.lit(each) for pair in histories.items() for each in pair))
    return f.to_json(
        f.struct(
            f.lit(VERSION).alias("v"),
            named[f.col("topic")].alias("history"),
            subject.alias("subject"),
            epoch.alias("epoch"),
            seq.alias("seq"),
            f.lit(0).alias("group"),
            time.alias("ts_pub"),
            time.alias("ts_server"),
            f.lit("").alias("node"),
            f.crc32(f.concat(f.encode(place, "UTF-8"), content)).alias("crc"),
            f.when(is_text, content.cast("string")).alias("content"),
            f.when(~is_text, f.base64(content)).alias("content_base64"),
            _fields().alias("fields"),
            _header("closure").alias("closure"),
            (f.col("value").isNotNull() & ~_header("retained").eqNullSafe("0")).alias("retained"),
            f.when(_header("qos").eqNullSafe("STANDARD"), "STANDARD")
            .otherwise("GUARANTEED")
            .alias("qos"),
            _header("compressed").eqNullSafe("1").alias("compressed"),
            _header("reply").alias("reply_subject"),
            publisher.alias("publisher"),
            number.alias("number"),
        )
    )


def check_of(subject: Column) -> Column:
    """Return what binds the header `md-id` to a subject."""
    return f.lower(f.lpad(f.hex(f.crc32(f.encode(subject, "UTF-8"))), 8, "0"))


def is_subject(subject: Column) -> Column:
    """Return whether a text is a subject to which a member publishes."""
    size = f.octet_length(subject)
    own = subject.startswith(f"/{RESERVED}/") | (subject == f"/{RESERVED}")
    short = (size <= SUBJECT_BYTES_MAX) & (
        f.size(f.split(subject, "/")) <= SUBJECT_SEGMENTS_MAX + 1
    )
    return subject.rlike(SUBJECT) & ~own & short


def _subject() -> Column:
    """Return the subject of a record, null if it cannot have one."""
    key = f.col("key").cast("string")
    rest = f.when(f.col("key").isNull(), "").otherwise(f.concat(f.lit("/"), key))
    subject = f.concat(f.lit("/"), f.col("topic"), rest)
    valid = f.col("key").isNull() | f.is_valid_utf8(key)
    return f.when(valid & is_subject(subject), subject)


def _header(name: str) -> Column:
    """Return one of the members' own headers, named without `md-`; null if there is none."""
    found = f.filter("headers", lambda each: each["key"] == OWN + name)
    value = f.get(found, f.size(found) - 1)["value"].cast("string")
    return f.when(f.is_valid_utf8(value), value)


def _fields() -> Column:
    """Return the fields of a record: of headers of one name the last one, and none that is no text.

    Null if there are none.
    """
    texts = f.filter(
        "headers",
        lambda each: ~each["key"].startswith(OWN) & f.is_valid_utf8(_text(each["value"])),
    )
    last = f.filter(
        texts,
        lambda each, at: (
            ~f.exists(
                f.slice(texts, at + 2, f.size(texts)), lambda later: later["key"] == each["key"]
            )
        ),
    )
    pairs = f.transform(last, lambda each: f.struct(each["key"], _text(each["value"])))
    return f.when(f.size(last) > 0, f.map_from_entries(pairs))


def _text(value: Column) -> Column:
    return f.coalesce(value.cast("string"), f.lit(""))


def _identity(text: Column, subject: Column) -> tuple[Column, Column]:
    """Return publisher and number of the header `md-id`; null if it belongs to another subject."""
    number, check, publisher = (f.regexp_extract(text, IDENTITY, part) for part in (1, 2, 3))
    bound = (check == check_of(subject)) & (number.cast("bigint") > 0)
    return f.when(bound, publisher), f.when(bound, number.cast("bigint"))
