"""Options for the JVMs of Spark that tests start, and an archive of the classes that a driver loads.

A driver that copies ten rows costs 29 s of CPU time with Java's defaults, 15 s with C1 and the serial collector, and
8 s with the archive (class data sharing), too. Java ignores the archive of another Java or of another class path.

`python -m tests.spark.java_options FILE` writes the archive: it runs a batch and a stream, then the JVM writes it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kit import jvm

ROOT = Path(__file__).parents[2]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE = jvm.cache_directory().resolve() / "jars" / f"spark-{jvm.FOREIGN['spark']['pyspark']}.jsa"
OPTIONS = f"{QUICK} -Xlog:disable -Xshare:auto -XX:SharedArchiveFile={ARCHIVE}"
ENVIRONMENT = {"SPARK_SUBMIT_OPTS": OPTIONS, "SPARK_DAEMON_JAVA_OPTS": OPTIONS, "SPARK_LAUNCHER_OPTS": QUICK}
"""For drivers, for the master and the workers of a cluster, and for the JVM that builds their command lines."""

WRITE_S = 500  # it takes less than a minute of CPU time


def write_archive() -> None:
    """Write the archive if it is missing; Spark must be able to start."""
    if ARCHIVE.exists():
        return
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    partial = ARCHIVE.with_suffix(f".{os.getpid()}")
    options = f"{QUICK} -Xlog:disable -XX:ArchiveClassesAtExit={partial}"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.spark.java_options"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=WRITE_S)
    partial.replace(ARCHIVE)


def run_driver(directory: Path) -> None:
    """Run a batch and a stream over Parquet files, and wait until the JVM has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.warehouse.dir", str(directory)).getOrCreate()
    rows = spark.range(10).selectExpr("id", "cast(id as string) as value")
    rows.write.parquet(f"{directory}/rows")
    stream = spark.readStream.schema(rows.schema).parquet(f"{directory}/rows").writeStream.format("noop")
    stream = stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    stream.start().awaitTermination()
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.proc.stdin.close()  # the end of its input ends the JVM, which then writes
    gateway.proc.wait(WRITE_S)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        run_driver(Path(made))
