"""One sentence of Spark's pages."""

import pytest

from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.spark_errors import reason_of

PYTHON = """An exception was raised by the Python Proxy. Return Message: Traceback:
  File "archive.py", line 92, in sink
    raise PipelineError(
mdserver.pipeline.common.requirements.PipelineError: topic a.messages is not the one
\tat py4j.Protocol.getReturnValue(Protocol.java:476)
"""
JAVA = """An exception was raised by the Python Proxy. Return Message: Traceback:
py4j.protocol.Py4JJavaError: An error occurred while calling o3569.parquet.
: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost;
either the data was aged out
\tat org.apache.spark.sql.kafka010.KafkaExceptions$.couldNotReadOffsetRange(KafkaExceptions.scala)
Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position 50
"""
FULL = """An error occurred while calling o52.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/x.
Caused by: java.io.IOException: No space left on device
"""
AROUND = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised:
OSError: Generic S3 error: Error performing GET http://127.0.0.1:1/x in 1s - HTTP error: refused

The above exception was the direct cause of the following exception:
mdserver.pipeline.common.requirements.PipelineError: archiving failed: Generic DeltaTable error: no
\tat py4j.Protocol.getReturnValue(Protocol.java:476)
"""
FOLDED = "Kernel error -> Generic DeltaTable error\n          \x1b[31m↳\x1b[0m Version 401 is gone"
XML = "org.apache.spark.SparkException: cannot parse <Code>7</Code>"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PYTHON, "topic a.messages is not the one"),
        (JAVA, "KafkaIllegalStateException: Some data may have been lost;"),
        (PipelineError("a.b: this stays: whole"), "a.b: this stays: whole"),
        (AROUND, "archiving failed: Generic DeltaTable error: no"),
        (FOLDED, "Kernel error -> Generic DeltaTable error: Version 401 is gone"),
        (XML, "SparkException: cannot parse <Code>7</Code>"),
        (f"{XML}\nCaused by: Generic S3 error: 7", "Generic S3 error: 7"),
        (FULL, "the disk is full: make room and start the job again"),
        (ValueError("first\nsecond"), "first"),
        ("\n\n  plain  \nmore", "plain  "),
        ("", ""),
    ],
)
def test_the_reason(error: object, reason: str) -> None:
    assert reason_of(error) == reason
