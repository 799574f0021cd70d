"""Runs an ingest for two phases of a crash in a Spark that repeats tasks: `retrying_ingest.py ADDRESS TOPIC DIRECTORY`.

A session has one master, and that of the other tests does not repeat tasks. The tables are DIRECTORY/0, 1 and so on.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark_kafkalite.ingest import ingest, query

from tests.spark.conftest import CONFIGS
from tests.spark.crashing_workers import PHASES, crashing

RETRIED = PHASES[1::2]


def main(address: str, topic: str, directory: str) -> None:
    builder = SparkSession.builder.master("local[2,4]")
    for name, value in {**CONFIGS, "spark.sql.warehouse.dir": directory}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    options |= {"minPartitions": "2"}
    for number, phase in enumerate(RETRIED):
        root = Path(directory, str(number))
        query.write_splits = crashing(Path(f"{root}-marker"), phase)  # type: ignore[assignment]
        ingest(spark, root, options, checkpoint=f"{root}-checkpoint").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
