"""The job `replay`: sends the rows of a table to a topic again, with their time, key and headers.

Rows of a partition are sent in the order of their offsets by one task, to the partition with the same number, or to the
one that the key selects. At least once: a task that Spark repeats sends its rows again.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import DEAD_LETTERS, KEEP, ReplaySettings
from pyspark_kafkalite.jobs.tables import existing_table
from pyspark_kafkalite.sink_options import sink_options

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "headers", "_partition", "_timestamp")


class Sending(NamedTuple):
    """What each worker needs.

    Attributes:
        client: arguments of the producer.
        topic: that receives the rows.
        keep: the partition of a row is that of its record; else its key selects it.
    """

    client: Mapping[str, Any]
    topic: str
    keep: bool


def run(spark: "SparkSession", job: JobFile, report: Callable[[str], Any]) -> None:
    """Send the rows.

    Arguments:
        spark: the session.
        job: of type replay.
        report: is called with a line about the result.

    Raises:
        JobError: the table does not exist, or no row is selected. TableError: it is damaged.
    """
    settings, sink = job.replay or ReplaySettings(), sink_options(job.sink or {})
    rows = select_rows(spark, job, settings)
    sending = Sending(sink.client, sink.topic or "", settings.partitions == KEEP)
    ordered = rows.repartition("_topic", "_partition").sortWithinPartitions("_topic", "_partition", "_offset")
    send: Any = partial(send_rows, sending)
    sent = sum(row[0] for row in ordered.select(*COLUMNS).mapInArrow(send, "rows bigint").collect())
    if not sent:
        raise JobError(f"{job.path}: no row of table {job.required_table.path} is selected")
    report(f"replay {job.name}: {sent} records to topic {sink.topic}")


def select_rows(spark: "SparkSession", job: JobFile, settings: ReplaySettings) -> "DataFrame":
    """Return the rows of the table that the job selects. Raises JobError, TableError."""
    table = existing_table(job.required_table)
    if settings.rows == DEAD_LETTERS:
        files, kind = [] if table is None else table.dead_letter_files(), "dead letters"
    else:
        files, kind = [] if table is None else table.files(), "rows"
    if not files:
        raise JobError(f"{job.path}: table {job.required_table.path} has no {kind}")
    rows = spark.read.parquet(*files)
    missing = [name for name in ("_topic", "_offset", *COLUMNS) if name not in rows.columns]
    if missing:
        raise JobError(f"{job.path}: table {job.required_table.path} has no columns {', '.join(missing)}")
    return rows if settings.where is None else rows.where(settings.where)


def send_rows(sending: Sending, batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
    """Send the rows of a task, and return their number; for `mapInArrow`.

    Raises:
        KafkaError: rows were not acknowledged; others may be in the log.
    """
    import pyarrow

    from pyspark_kafkalite.pieces import pieces
    from pyspark_kafkalite.sending import send_with

    tables = (
        (sending.topic, piece)
        for batch in batches
        if batch.num_rows
        for piece in pieces(record_columns(batch, keep=sending.keep))
    )
    yield pyarrow.RecordBatch.from_pydict({"rows": [send_with(sending.client, tables)]})


def record_columns(rows: "pyarrow.RecordBatch", *, keep: bool) -> "pyarrow.RecordBatch":
    """Return rows of a table as columns of records.

    Arguments:
        rows: `COLUMNS`.
        keep: with the column `partition`.
    """
    import pyarrow
    import pyarrow.compute

    times = rows.column("_timestamp").cast(pyarrow.int64())  # Spark's timestamps are microseconds
    columns = {name: rows.column(name) for name in ("key", "value", "headers")}
    columns["timestamp"] = pyarrow.compute.divide(times, 1000)
    if keep:
        columns["partition"] = rows.column("_partition").cast(pyarrow.int32())
    return pyarrow.RecordBatch.from_pydict(columns)
