"""The Spark session of a job, with the settings that its guarantees rest on."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

SETTINGS = {
    # The first batch of a stream fixes the number of its state partitions for ever; Spark's 200
    # cost seconds a batch on a machine of a few cores.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, makes tables with nanoseconds that deltalake cannot read back.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
}
LOGGING = Path(__file__).with_name("log4j2.properties")
DRIVER_MEMORY = "1g"
STOP_S = 30.0
"""How long a job waits for Spark to stop; the JVM ends with this process in any case."""
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def submitted() -> bool:
    """Whether `spark-submit` runs this program: it has started the JVM and says where it is."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def start(
    job: str, *, jars: Sequence[Path] = (), given: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, or take the session that `spark-submit` prepared.

    Embedded, everything runs in this process's JVM and listens on the loopback address alone; the
    settings above stand unless `spark-submit` was given others. `given` are those of whoever runs
    the job: they come before all others.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"mdserver-{job}")
    settings = dict(SETTINGS)
    if submitted():
        SparkContext._ensure_initialized()  # else the next line does not see what was given
        submitted_with = SparkConf()
        settings = {
            name: value for name, value in SETTINGS.items() if not submitted_with.contains(name)
        }
    else:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOOPBACK | {
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        }
        builder = builder.master("local[*]")
        if jars:
            settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    for name, value in (settings | dict(given or {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # What goes wrong in a batch comes back as an exception and is told once, not as a stack trace.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return spark


@contextlib.contextmanager
def running(
    job: str, *, jars: Sequence[Path] = (), given: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end of the block, in silence after Ctrl-C.

    Ctrl-C while Spark starts counts when it has started: a JVM that is left alone halfway ends with
    a page of errors, after this process. Call this in the main thread.
    """
    with _interrupted_later() as interrupt:
        spark = start(job, jars=jars, given=given)
    try:
        # PySpark's own handler asks the JVM, perhaps in the middle of another answer of it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if interrupt:
            raise KeyboardInterrupt
        yield spark
    except KeyboardInterrupt:
        _stop(spark, quiet=True)
        raise
    except BaseException:
        _stop(spark, quiet=False)
        raise
    _stop(spark, quiet=False)


@contextlib.contextmanager
def _interrupted_later() -> Iterator[list[int]]:
    """Note Ctrl-C in place of raising KeyboardInterrupt; give the list of what was noted."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(spark: SparkSession, *, quiet: bool) -> None:
    """Stop Spark in a thread of its own, since this one may have left an answer of it unread."""

    def stop() -> None:
        with contextlib.suppress(Exception):
            if quiet:
                spark.sparkContext.setLogLevel("OFF")
            spark.stop()

    thread = threading.Thread(target=stop, name="stop Spark", daemon=True)
    thread.start()
    thread.join(STOP_S)
