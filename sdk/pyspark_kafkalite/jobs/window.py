"""The job `window`: aggregates records by event time, to a table or a topic.

A table receives each window once: the id of a batch is the offset of its commit, so a repeated batch is skipped, and a
deleted checkpoint is found. A topic receives windows at least once, as by every sink of Spark.
"""

import uuid
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafkalite.ingest.query import query_id
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.window_settings import UPDATE, WindowSettings
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import Batch, CommittedRange, DataFile, batch_name
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions, write_attempt

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCHES = "#batches"
"""In place of a topic in commits: its offsets are the ids of batches. `#` is not possible in the name of a topic."""


def start(spark: "SparkSession", job: JobFile, options: RunOptions) -> "StreamingQuery":
    """Start the query.

    Raises:
        JobError: a table cannot be updated, or cannot be resumed. OptionError, TableError: as of source and table.
    """
    settings = job.window
    if settings is None:
        raise JobError(f"{job.path}: [window] is missing")
    if options.resume_from_table or options.allow_gaps:
        raise JobError(f"{job.path}: the state of windows is in the checkpoint; a job of type window cannot resume")
    records = spark.readStream.format("kafkalite").options(**job.source).load()
    windows = aggregate(records, settings)
    if job.table is None:
        writer = windows.selectExpr("to_json(struct(*)) AS value").writeStream.format("kafkalite")
        writer = writer.options(**(job.sink or {})).outputMode(settings.mode)
    else:
        if settings.mode == UPDATE:
            raise JobError(f'{job.path}: [window] mode: "update" is for [sink]; a table receives each window once')
        table = ManifestTable(job.table.path)
        table.recover()
        writer = windows.writeStream.foreachBatch(WindowCommitter(table, job.table.parquet)).outputMode(settings.mode)
    named = writer.option("checkpointLocation", job.checkpoint).queryName(job.name)
    return named.trigger(**job.trigger).start()


def aggregate(records: "DataFrame", settings: WindowSettings) -> "DataFrame":
    """Return the windows of records, with columns `window_start`, `window_end`, those of `by` and the aggregates.

    Arguments:
        records: columns of the source.
        settings: of the windows.
    """
    from pyspark.sql import functions

    if settings.schema is not None:
        parsed = functions.from_json(functions.col("value").cast("string"), settings.schema)
        records = records.withColumn("_value", parsed).select("*", "_value.*").drop("_value")
    timed = records.withColumn("_event_time", functions.expr(settings.event_time).cast("timestamp"))
    divided = timed.withWatermark("_event_time", settings.watermark)
    window = functions.window("_event_time", settings.size, settings.slide)
    by = [functions.expr(text).alias(name) for name, text in settings.by.items()]
    aggregates = [functions.expr(text).alias(name) for name, text in settings.aggregates.items()]
    grouped = divided.groupBy(window.alias("_window"), *by).agg(*aggregates)
    bounds = ("_window.start AS window_start", "_window.end AS window_end")
    return grouped.selectExpr(*bounds, *(f"`{name}`" for name in (*settings.by, *settings.aggregates)))


class _Writing(NamedTuple):
    """What the worker of a batch needs: directory of attempts, `batch_name`, options of Parquet."""

    directory: str
    batch: str
    parquet: ParquetOptions


class WindowCommitter:
    """Writes each batch as one file and commits it; for `foreachBatch`.

    Arguments:
        table: of the windows.
        parquet: how files are written.
    """

    def __init__(self, table: ManifestTable, parquet: ParquetOptions) -> None:
        self._table = table
        self._parquet = parquet

    def __call__(self, windows: "DataFrame", batch_id: int) -> None:
        """Write and commit a batch. Raises: what a worker or the table raises."""
        write: Any = partial(
            _write, _Writing(self._table.attempts, batch_name(query_id(windows), batch_id), self._parquet)
        )
        rows = windows.coalesce(1).mapInArrow(write, "name string, bytes bigint, rows bigint").collect()
        files = tuple(DataFile(*row) for row in rows)
        total = sum(each.rows for each in files)
        ranges = (CommittedRange(BATCHES, 0, batch_id, batch_id + 1, total, None, None),)
        self._table.commit(Batch(query_id(windows), batch_id, ranges, files))


def _write(writing: _Writing, batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
    """Write the windows of a batch to one file; runs in a worker of Spark."""
    import pyarrow

    first = next(batches, None)
    if first is None:
        return

    def every() -> "Iterator[pyarrow.RecordBatch]":
        yield first
        yield from batches

    name = f"part-{writing.batch}-{uuid.uuid4().hex}.parquet"  # another attempt has another name
    file = write_attempt(writing.directory, name, first.schema, every(), writing.parquet)
    if file is not None:
        yield pyarrow.RecordBatch.from_pylist([{"name": file.name, "bytes": file.bytes, "rows": file.rows}])
