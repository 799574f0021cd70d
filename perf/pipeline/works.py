"""What a job does in a driver. A function returns its figures, and raises VerificationError if records are missing."""

import statistics
from pathlib import Path

import pyarrow
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark_kafkalite.decoding import Decoding
from pyspark_kafkalite.ingest import ingest

from perf.errors import VerificationError
from perf.pipeline.commits import delta_commits, parquet_commits
from perf.pipeline.job import TASKS, Job, Meter, Sample

VALUE = b"a value of a benchmark; "
WARM_UP = 5  # the first fifth of the micro-batches is not measured
ROWS_PER_BATCH = 10
SCHEMA = "id bigint, amount double, at string, user string, note string"  # of the values of topics.py


def options(job: Job) -> dict[str, str]:
    """The options of the source."""
    return {
        "kafka.bootstrap.servers": job.address,
        "subscribe": job.topic,
        "startingOffsets": "earliest",
        **job.options,
    }


def read(spark: SparkSession, job: Job) -> Sample:
    """Read a topic, without a use of the rows."""
    frame = spark.read.format(job.source).options(**options(job)).load()
    with Meter() as meter:
        frame.write.format("noop").mode("overwrite").save()
    return meter.sample(job.records)


def count(spark: SparkSession, job: Job) -> Sample:
    """Verify that a source finds all records."""
    found = spark.read.format(job.source).options(**options(job)).load().count()
    _expect("rows that were read", found, job.records)
    return {}


def batch_to_parquet(spark: SparkSession, job: Job) -> Sample:
    """Copy a topic to Parquet files by a batch, which has no checkpoint."""
    frame = spark.read.format(job.source).options(**options(job)).load()
    directory = Path(job.directory, "table")
    with Meter() as meter:
        frame.write.option("compression", job.compression).parquet(str(directory))
    _expect_rows(directory, job)
    return meter.sample(job.records)


def stream_to_parquet(spark: SparkSession, job: Job) -> Sample:
    """Copy a topic to Parquet files by a stream, which ends with the log."""
    directory = Path(job.directory, "table")
    with Meter() as meter:
        frame = spark.readStream.format(job.source).options(**options(job)).load()
        writer = frame.writeStream.format("parquet").option("compression", job.compression)
        writer = writer.option("path", str(directory)).option("checkpointLocation", f"{job.directory}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
    _expect_rows(directory, job)
    return meter.sample(job.records)


def ingest_to_parquet(spark: SparkSession, job: Job) -> Sample:
    """Copy a topic to a table by `ingest`, which ends with the log."""
    directory = Path(job.directory, "table")
    compression, _, level = job.compression.partition(":")
    with Meter() as meter:
        ingest(
            spark,
            directory,
            options(job),
            checkpoint=f"{job.directory}/checkpoint",
            compression=compression,
            level=int(level) if level else None,
        ).awaitTermination()
    _expect_rows(directory, job)
    return meter.sample(job.records)


def from_json_to_parquet(spark: SparkSession, job: Job) -> Sample:
    """Copy a topic of JSON objects to Parquet files by a batch, with Spark's `from_json`."""
    frame = spark.read.format(job.source).options(**options(job)).load()
    parsed = frame.selectExpr(
        *("topic", "partition", "offset", "timestamp", "key"), f"from_json(string(value), '{SCHEMA}') as parsed"
    )
    directory = Path(job.directory, "table")
    with Meter() as meter:
        flat = parsed.select("topic", "partition", "offset", "timestamp", "key", "parsed.*")
        flat.write.option("compression", job.compression).parquet(str(directory))
    _expect_rows(directory, job)
    _expect_values(spark, directory, job)
    return meter.sample(job.records)


def ingest_json_to_parquet(spark: SparkSession, job: Job) -> Sample:
    """Copy a topic of JSON objects to a table by `ingest` with a declared schema."""
    directory = Path(job.directory, "table")
    decoding = Decoding(value="json", schema=SCHEMA, dead_letters="fail")
    with Meter() as meter:
        checkpoint = f"{job.directory}/checkpoint"
        ingest(
            spark, directory, options(job), checkpoint=checkpoint, compression=job.compression, decoding=decoding
        ).awaitTermination()
    _expect_rows(directory, job)
    _expect_values(spark, directory, job)
    return meter.sample(job.records)


def _expect_values(spark: SparkSession, directory: Path, job: Job) -> None:
    found = spark.read.parquet(str(directory)).where("id is not null and amount >= 0 and length(note) > 0")
    _expect("rows with values", found.count(), job.records)


def sink(spark: SparkSession, job: Job) -> Sample:
    """Write rows with keys to a topic; Spark creates them with little work."""
    rows = _rows(spark.range(job.records, numPartitions=TASKS), job)
    writer = rows.write.format(job.source).options(**_target(job))
    with Meter() as meter:
        writer.mode("append").save()
    return meter.sample(job.records)


def stream_sink(spark: SparkSession, job: Job) -> Sample:
    """Write micro-batches to a topic; the rows are made of small files of numbers, one for each task."""
    numbers, batches = Path(job.directory, "numbers"), max(1, job.batches)
    numbers.mkdir()
    for file in range(batches * TASKS):
        ids = pyarrow.array(range(file, job.records, batches * TASKS), pyarrow.int64())
        pyarrow.parquet.write_table(pyarrow.table({"id": ids}), numbers / f"{file:04}.parquet")
    frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", str(TASKS)).parquet(str(numbers))
    writer = _rows(frame, job).writeStream.format(job.source).options(**_target(job))
    writer = writer.option("checkpointLocation", f"{job.directory}/checkpoint").trigger(availableNow=True)
    with Meter() as meter:
        query = writer.start()
        query.awaitTermination()
    _expect("micro-batches", sum(bool(each["numInputRows"]) for each in query.recentProgress), batches)
    return meter.sample(job.records)


def _rows(numbers: DataFrame, job: Job) -> DataFrame:
    """Rows with keys, of the column `id`."""
    from pyspark.sql import functions

    value = (VALUE * (job.value_bytes // len(VALUE) + 1))[: job.value_bytes]
    key = functions.col("id").cast("string").cast("binary").alias("key")
    return numbers.select(key, functions.lit(value).alias("value"))


def _target(job: Job) -> dict[str, str]:
    """The options of the writer."""
    return {"kafka.bootstrap.servers": job.address, "topic": job.topic, **job.options}


def micro_batches(spark: SparkSession, job: Job) -> Sample:
    """Run micro-batches of few rows; the duration is that of a trigger without the wait for the next one."""
    limited = {**options(job), "maxOffsetsPerTrigger": str(ROWS_PER_BATCH)}
    frame: DataFrame = spark.readStream.format(job.source).options(**limited).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"{job.directory}/checkpoint")
    with Meter() as meter:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    _expect("rows of micro-batches", sum(each["numInputRows"] for each in batches), job.records)
    times_ms = [each["durationMs"]["triggerExecution"] for each in batches[len(batches) // WARM_UP :]]
    return {
        "p50": statistics.median(times_ms),
        "p90": statistics.quantiles(times_ms, n=10)[-1],
        "cpu_ms": meter.cpu_s / len(batches) * 1000,
    }


def _expect_rows(directory: Path, job: Job) -> None:
    rows = sum(pyarrow.parquet.read_metadata(path).num_rows for path in directory.glob("*.parquet"))
    _expect("rows in files", rows, job.records)


def _expect(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise VerificationError(f"{what}: {found}, expected {expected}")


WORKS = {
    each.__name__: each
    for each in (
        *(read, count, batch_to_parquet, stream_to_parquet, ingest_to_parquet),
        *(from_json_to_parquet, ingest_json_to_parquet),
        *(sink, stream_sink, micro_batches, parquet_commits, delta_commits),
    )
}
