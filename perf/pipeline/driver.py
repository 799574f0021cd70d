"""A process with one Spark session: `python -m perf.pipeline.driver JAR,JAR,... DIRECTORY`.

It reads a job per line and writes a line of JSON for each: figures, or the error. Without jars there is no connector.
"""

import json
import os
import sys
import traceback

from pyspark.sql import SparkSession
from pyspark_kafkalite.startup import configure_fast_start

from perf.pipeline.job import Job
from perf.pipeline.works import WORKS

CONFIGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.noDataProgressEventInterval": "100",
}


def session(directory: str, jars: str = "") -> SparkSession:
    """A session with two task slots."""
    configure_fast_start()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    configs = {**CONFIGS, "spark.sql.warehouse.dir": directory, "spark.local.dir": directory}
    if jars:
        configs["spark.jars"] = jars
    builder = SparkSession.builder.master("local[2]").appName("kafkalite-perf")
    for name, value in configs.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    return spark


def main(jars: str, directory: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Spark prints is not an answer
    spark = session(directory, jars)
    print("{}", file=answers)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        try:
            answer = WORKS[job.work](spark, job)
        except Exception:
            answer = {"error": traceback.format_exc()[-4000:]}
        print(json.dumps(answer), file=answers)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
