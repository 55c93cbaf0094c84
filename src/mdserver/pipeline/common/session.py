"""The Spark session of a job, with the settings that its guarantees rest on."""

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from mdserver.limits import MB
from mdserver.pipeline.common.places import RemoteTables, Tables
from mdserver.pipeline.common.requirements import PipelineError

TASK_BYTES = 36 * MB
"""How much of a file one task reads: a little more than half of a full segment of the journal, so
that a segment is two tasks of nearly the same size. With whole segments, three of them on two
processors leave one idle for a third of the time."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, makes times in nanoseconds, which deltalake cannot read back.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.files.maxPartitionBytes": str(TASK_BYTES),
}
"""Of all jobs, wherever they run."""
STREAM_SETTINGS = {
    # Spark's default of 200 costs seconds a batch on a machine of a few cores, and the first batch
    # of a stream fixes the number of its state partitions for all time.
    "spark.sql.shuffle.partitions": "2",
    # It plans each stage of a batch anew, which takes longer than the rows of a batch.
    "spark.sql.adaptive.enabled": "false",
}
BATCH_SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    # Receipts are joined with sums over the messages of their subject where those are already.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
"""Adaptive execution joins small partitions, so a cluster's number of them suits small tables too.
With spark-submit their number is that of the cluster, as it is with any program."""
EMBEDDED_SETTINGS = {"spark.ui.enabled": "false"}
EMBEDDED_PARTITIONS = {"spark.sql.shuffle.partitions": "16"}
"""Of a batch job embedded: each partition is sorted in a part of this process's memory."""
BATCHES = ("audit", "rollup")
LOGGING = Path(__file__).with_name("log4j2.properties")
DRIVER_MEMORY = "1g"
STOP_S = 30.0
"""How long a job waits for Spark to stop. The JVM ends with this process in any case."""
COLLECTOR = "-XX:+UseParallelGC"
"""It takes less processor time than Java's default, for longer pauses."""
PROMPT_JOBS = ("derive",)
"""Jobs for which pauses matter more than processor time."""
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""Variables of the environment from which every JVM takes options."""
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def settings_of(job: str, *, embedded: bool) -> dict[str, str]:
    """Return the settings of a job: a stream needs others than a batch, and a cluster has its own.

    A job whose name is not known is a stream.
    """
    settings = SETTINGS | (BATCH_SETTINGS if job in BATCHES else STREAM_SETTINGS)
    if not embedded:
        return settings
    return settings | EMBEDDED_SETTINGS | (EMBEDDED_PARTITIONS if job in BATCHES else {})


def submitted() -> bool:
    """Return whether `spark-submit` runs this program, and so has started the JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def check_place(tables: Tables) -> None:
    """Raise PipelineError if the tables are in an object store, and executors may be elsewhere.

    Files of such tables are made and read as copies on this computer.
    """
    if isinstance(tables, RemoteTables) and submitted():
        raise PipelineError(
            f"{tables}: with spark-submit the tables are in a folder that all executors mount"
        )


def start(
    job: str, *, jars: Sequence[Path] = (), given: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, or take the session that `spark-submit` prepared.

    Embedded, everything runs in a JVM of this process and listens on the loopback address alone.
    Those of `settings_of` apply unless `spark-submit` has others; `given` are the settings of the
    command line, which override all others. `jars` are loaded in an embedded session only, beside
    those that are given.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"mdserver-{job}")
    settings = settings_of(job, embedded=not submitted())
    if submitted():
        SparkContext._ensure_initialized()  # without it the next line sees no settings
        submitted_with = SparkConf()
        settings = {
            name: value for name, value in settings.items() if not submitted_with.contains(name)
        }
    else:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOOPBACK | {
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.driver.extraJavaOptions": _java_options(job, given or {}),
        }
        builder = builder.master("local[*]")
        if jars:
            given = _with_jars(jars, given or {})
    for name, value in (settings | dict(given or {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # A failure of a batch comes back as an exception and is reported once, in one line; py4j would
    # log its stack trace as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # What Ctrl-C interrupts while py4j waits for an answer, it logs to the root logger instead.
    logging.getLogger().addFilter(_is_no_interrupt)
    return spark


def _with_jars(jars: Sequence[Path], given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the command line with these jars before those that they name."""
    listed = [*map(str, jars), given.get("spark.jars", "")]
    return {**given, "spark.jars": ",".join(filter(None, listed))}


def _java_options(job: str, given: Mapping[str, str]) -> str:
    """Return the options of an embedded JVM.

    A JVM that is told of two garbage collectors does not start, so a user's choice is left alone.
    """
    logs = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    others = [os.environ.get(name, "") for name in JAVA_OPTIONS]
    others.append(given.get("spark.driver.defaultJavaOptions", ""))
    chosen = any(re.search(r"-XX:\+Use\w+GC\b", text) for text in others)
    return logs if chosen or job in PROMPT_JOBS else f"{logs} {COLLECTOR}"


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)


@contextlib.contextmanager
def running(
    job: str, *, jars: Sequence[Path] = (), given: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end of the block, in silence after Ctrl-C.

    Ctrl-C while Spark starts takes effect when it has started: a JVM that is left in the middle of
    its start ends with a page of errors, after this process. Call this in the main thread, since
    it sets handlers of signals.
    """
    noted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: noted.append(number))
    try:
        # PySpark sets a handler of its own if it starts in the main thread. That one sends a
        # request to the JVM, perhaps in the middle of another answer.
        with ThreadPoolExecutor(1, "start Spark") as beside:
            spark = beside.submit(start, job, jars=jars, given=given).result()
    except BaseException:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if noted:
            raise KeyboardInterrupt
        yield spark
    except KeyboardInterrupt:
        _stop(spark, quiet=True)
        raise
    except BaseException:
        _stop(spark, quiet=False)
        raise
    _stop(spark, quiet=False)


def _stop(spark: SparkSession, *, quiet: bool) -> None:
    """Stop Spark in a thread of its own, which has its own connection to the JVM.

    The connection of this thread may have an unread answer, if Ctrl-C interrupted it.
    """

    def stop() -> None:
        with contextlib.suppress(Exception):
            if quiet:
                spark.sparkContext.setLogLevel("OFF")
            spark.stop()

    thread = threading.Thread(target=stop, name="stop Spark", daemon=True)
    thread.start()
    thread.join(STOP_S)
