"""The Spark session of a job, with the settings that its guarantees rest on."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

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
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def start(job: str, *, embedded: bool, jars: Sequence[Path] = ()) -> SparkSession:
    """Start Spark, or take the session that `spark-submit` prepared.

    Embedded, everything runs in this process's JVM and listens on the loopback address alone; the
    settings above stand unless `spark-submit` was given others.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"mdserver-{job}")
    settings = dict(SETTINGS)
    if embedded:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= LOOPBACK | {
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        }
        builder = builder.master("local[*]")
        if jars:
            settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
