"""The average speed of each car in the last ten seconds: a job of plain Spark, from topic to topic.

    spark-submit --jars "$(ls build/jvm/spark/*.jar | paste -sd,)" \
        docs/examples/vehicles_averages.py 127.0.0.1:9092 build/averages

Nothing here knows of mdserver. It reads the topic `vehicles` and writes to the topic `averages`,
with the car as the key. The second argument is the folder of Spark's checkpoint.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

servers, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.appName("averages")
    .config("spark.sql.shuffle.partitions", 1)  # few cars; the default of 200 takes seconds a batch
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", "vehicles")
    .option("kafka.fetch.max.wait.ms", "20")
    .load()
)
key = f.split(f.col("key").cast("string"), "/")
averages = (
    records.where(f.get(key, f.lit(1)) == "speed")
    .select(key[0].alias("car"), f.col("value").cast("string").alias("speed"), "timestamp")
    .withWatermark("timestamp", "1 minute")
    .groupBy(f.window("timestamp", "10 seconds"), "car")
    .agg(f.round(f.avg(f.col("speed").cast("double"))).cast("int").alias("average"))
)
(
    averages.select(f.col("car").alias("key"), f.col("average").cast("string").alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", "averages")
    .option("checkpointLocation", checkpoint)
    .outputMode("update")
    .start()
    .awaitTermination()
)
