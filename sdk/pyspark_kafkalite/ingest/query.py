"""Starts the query of an ingest, and commits its batches to the table."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.model import TopicPartition
from pyspark_kafkalite.decoding.options import RAW, Decoding
from pyspark_kafkalite.decoding.records import RecordDecoder
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.dead_letters import send_dead_letters
from pyspark_kafkalite.ingest.outcome import batch_of, check_budget, known_schema
from pyspark_kafkalite.ingest.plans import ALLOW_GAPS, RESUMED, PlanSource, ingest_options
from pyspark_kafkalite.ingest.worker import WRITTEN_DDL, Job, Written, write_splits
from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.progress.facts import Facts, record
from pyspark_kafkalite.progress.group import ProgressGroup
from pyspark_kafkalite.stream_offsets import StreamOffset
from pyspark_kafkalite.tables.ddl import parse_ddl
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import NO_COMMIT, CommittedRange, Table, batch_name
from pyspark_kafkalite.tables.parquet_writer import COMPRESSIONS, ParquetOptions
from pyspark_kafkalite.tables.partitions import NO_PARTITION, PARTITIONS, check_layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

QUERY_ID = "sql.streaming.queryId"
ALTERNATIVE = "use {'processingTime': '0 seconds'}: a micro-batch begins when the last one has ended"
NOT_SUPPORTED = {
    "continuous": "continuous processing has no micro-batches to commit",
    "realTime": "Spark's real-time mode has no Python sources",
}


def ingest(
    spark: "SparkSession",
    table: Table | str | os.PathLike[str],
    options: Mapping[str, str],
    *,
    checkpoint: str,
    compression: str = "zstd",
    level: int | None = None,
    trigger: Mapping[str, Any] | None = None,
    resume_from_table: bool = False,
    allow_gaps: bool = False,
    partition: str = NO_PARTITION,
    name: str | None = None,
    decoding: Decoding = RAW,
) -> "StreamingQuery":
    """Start a query that copies topics to a table, each offset once.

        query = ingest(spark, "/data/orders", {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"},
                       checkpoint="/data/orders-checkpoint")

    Arguments:
        spark: the session; not one of Spark Connect.
        table: directory of a table of plain Parquet, which every worker must reach, or an open table.
        options: of the source `kafkalite`.
        checkpoint: directory of Spark's checkpoint.
        compression: "none", "snappy", "lz4" or "zstd".
        level: of zstd, None = 1.
        trigger: arguments of `DataStreamWriter.trigger`; by default all that is in the log is copied, then it ends.
        resume_from_table: a new checkpoint begins at the end of the table. Needed after the loss of a checkpoint.
        allow_gaps: offsets that the log has lost are recorded in the table as missing, and the query continues; so it
            does with a topic that was deleted and created again, from its start.
        partition: "none", or "date": one file per task and date of the records in UTC, in directories
            `date=2013-01-31`. Delta tables cannot be partitioned.
        name: of the query, unique in the session; Spark's pages and a `ProgressListener` use it.
        decoding: of keys and values; they remain bytes by default.

    Raises:
        OptionError: an option is not valid. SchemaMisfitError: the schema does not fit the table. TableError: the table
            cannot be opened. ValueError: another argument is not valid. Errors of batches end the query:
            `awaitTermination` raises them.
    """
    _check_arguments(spark, compression, trigger or {})
    opened = ManifestTable(table) if isinstance(table, str | os.PathLike) else table
    _check_partition(opened, partition)
    parquet = ParquetOptions(compression, level)
    committer = Committer(
        opened, ingest_options(options), parquet, decoding.load_schemas(), allow_gaps=allow_gaps, partition=partition
    )
    committer.check_schema()
    how: dict[str, Any] = {"checkpoint": checkpoint, "trigger": trigger, "name": name}
    return start_query(
        spark, opened, options, committer, **how, resume_from_table=resume_from_table, allow_gaps=allow_gaps
    )


def start_query(
    spark: "SparkSession",
    table: Table,
    options: Mapping[str, str],
    committer: "Committer",
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] | None,
    resume_from_table: bool,
    allow_gaps: bool,
    name: str | None,
) -> "StreamingQuery":
    """Recover a table and start the query whose batches a committer writes to it.

    Arguments:
        spark, options, checkpoint, trigger, resume_from_table, allow_gaps, name: see `ingest`.
        table: an open table.
        committer: writes and commits each batch.
    """
    added = {ALLOW_GAPS: str(allow_gaps).lower()}
    if resume_from_table:
        added[RESUMED] = json.dumps(_resumed(table))
        committer.resumes = last.sequence if (last := table.last_commit()) is not None else NO_COMMIT
    table.recover()
    spark.dataSource.register(PlanSource)
    plans = spark.readStream.format(PlanSource.name()).options(**options, **added).load()
    writer = plans.writeStream.foreachBatch(committer).option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def _resumed(table: Table) -> dict[str, Any]:
    """Return the offsets where a query with a new checkpoint continues a table, with the ids of their topics."""
    last = table.last_commit()
    return StreamOffset(table.end_offsets(), {} if last is None else last.topic_ids).to_json()


def _check_arguments(spark: "SparkSession", compression: str, trigger: Mapping[str, Any]) -> None:
    """Raise ValueError: an argument is not valid, whatever the table is."""
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression is {compression!r}, expected one of {', '.join(COMPRESSIONS)}")
    if spark_is_remote(spark):
        raise ValueError("ingest needs a classic session: in Spark Connect a batch cannot be committed by the client")
    check_trigger(trigger)


def _check_partition(table: Table, partition: str) -> None:
    """Raise ValueError or TableError: the table cannot be partitioned so."""
    if partition not in PARTITIONS:
        raise ValueError(f"partition is {partition!r}, expected one of {', '.join(PARTITIONS)}")
    if partition != NO_PARTITION and not isinstance(table, ManifestTable):
        raise ValueError(f"partition is {partition!r}, expected {NO_PARTITION}: this table cannot be partitioned")
    if isinstance(table, ManifestTable):
        check_layout(table.location, list(table.state().files.values())[:1], partition)


def ends(ranges: Iterable[CommittedRange]) -> dict[TopicPartition, int]:
    """Return the end of each partition."""
    found: dict[TopicPartition, int] = {}
    for each in ranges:
        found[each.name] = max(each.end, found.get(each.name, 0))
    return found


def spark_is_remote(spark: "SparkSession") -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class Committer:
    """Runs the workers of each batch and commits what they have written; for `foreachBatch`.

    Arguments:
        table: that is written.
        options: of the source.
        parquet: how files are written.
        decoding: of keys and values.
        allow_gaps: see `Batch`.
        partition: one of `PARTITIONS`.

    Attributes:
        resumes: see `Batch`.
    """

    def __init__(
        self,
        table: Table,
        options: SourceOptions,
        parquet: ParquetOptions,
        decoding: Decoding,
        *,
        allow_gaps: bool,
        partition: str = NO_PARTITION,
    ) -> None:
        self.resumes: int | None = None
        self._table = table
        self._options = options
        self._parquet = parquet
        self._decoding = decoding
        self._allow_gaps = allow_gaps
        self._partition = partition
        group = options.progress_group
        self._progress = None if group is None else ProgressGroup(group, options.client)

    def check_schema(self) -> None:
        """Raise SchemaMisfitError, OptionError: the declared schema does not fit the table, or is not valid."""
        known = known_schema(self._table)
        RecordDecoder(self._decoding, None if known is None else parse_ddl(known)).schema()

    def __call__(self, plans: "DataFrame", batch_id: int) -> None:
        """Write and commit a batch. Raises: what a worker or the table raises."""
        name = batch_name(query_id(plans), batch_id)
        batch = BatchJob.of(self._options, self._table.attempts, name, self._parquet)
        job = Job(batch, self._decoding, known_schema(self._table), self._partition)
        context = plans.sparkSession.sparkContext
        context.setJobDescription(f"kafkalite: ingest to {self._table.location}, micro-batch {batch_id}")
        rows = plans.mapInArrow(partial(write_splits, job), WRITTEN_DDL).collect()
        self.commit(query_id(plans), batch_id, [Written.from_text(row[0]) for row in rows])

    def commit(self, query_id: str, batch_id: int, written: list[Written]) -> None:
        """Commit what the workers have written, then show it. Raises: BudgetExceededError, what the table raises."""
        batch = batch_of(query_id, batch_id, written, self._decoding, known_schema(self._table))
        check_budget(batch, self._decoding, self._table.attempts)
        if self._decoding.topic is not None:
            batch = send_dead_letters(batch, self._table.attempts, self._decoding.topic, self._options.client)
        began_s = time.monotonic()
        self._table.commit(batch._replace(resumes=self.resumes, allow_gaps=self._allow_gaps))
        phases_ms = {"commit": (time.monotonic() - began_s) * 1000}
        for one in written:
            for phase, duration_ms in one.phases_ms.items():
                phases_ms[phase] = phases_ms.get(phase, 0.0) + duration_ms
        rows, sizes = sum(each.rows for each in batch.files), sum(each.bytes for each in batch.files)
        record(query_id, batch_id, Facts(rows, sizes, len(batch.files), batch.dead_rows, phases_ms))
        self.show_progress(batch.ranges)

    def show_progress(self, ranges: Iterable[CommittedRange]) -> None:
        """Commit the ends of a batch to the option `progressGroup`, if it is given."""
        if self._progress is not None:
            self._progress.commit(ends(ranges))


def query_id(plans: "DataFrame") -> str:
    """Return the id of the query that runs this batch; it is the same after a restart from its checkpoint."""
    found = plans.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if found is None:
        raise RuntimeError(f"Spark has not set {QUERY_ID} for this batch")
    return str(found)


def check_trigger(trigger: Mapping[str, Any]) -> None:
    """Raise ValueError for a trigger without micro-batches; the error names the alternative.

    Arguments:
        trigger: arguments of `DataStreamWriter.trigger`.
    """
    for name in trigger:
        if name in NOT_SUPPORTED:
            raise ValueError(f"trigger {name} is not supported: {NOT_SUPPORTED[name]}; {ALTERNATIVE}")
