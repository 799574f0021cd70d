"""Reads, writes and ingests in a session of Spark Connect: `connect_session.py ADDRESS TOPIC DIRECTORY`.

It prints what happened as JSON. PySpark starts the server in a JVM of its own, with the same package.
"""

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark_kafkalite.ingest import ingest

from tests.spark.conftest import CONFIGS


def stream_count(spark: SparkSession, options: dict[str, str], directory: str) -> int:
    """The rows of a stream that copies the topic to Parquet files."""
    frame = spark.readStream.format("kafkalite").options(**options).load().selectExpr("value", "offset")
    writer = frame.writeStream.format("parquet").option("path", f"{directory}/copied")
    writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(f"{directory}/copied").count()


def rejected(spark: SparkSession, options: dict[str, str], directory: str) -> str:
    """The error of an ingest."""
    try:
        ingest(spark, f"{directory}/table", options, checkpoint=f"{directory}/ingest")
    except ValueError as error:
        return str(error)
    return ""


def main(address: str, topic: str, directory: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**CONFIGS, "spark.sql.warehouse.dir": directory}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    read = spark.read.format("kafkalite").options(**options).load()
    found = {
        "session": type(spark).__module__,
        "values": sorted(int(row.value) for row in read.select("value").collect()),
        "streamed": stream_count(spark, options, directory),
        "ingest": rejected(spark, options, directory),
    }
    rows = read.selectExpr("cast(cast(cast(value as string) as int) + 1000 as string) as value")
    sink = {"kafka.bootstrap.servers": address, "topic": topic}
    rows.write.format("kafkalite").options(**sink).mode("append").save()
    again = spark.read.format("kafkalite").options(**options).load()
    found["written"] = sorted(int(row.value) for row in again.select("value").collect())
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
