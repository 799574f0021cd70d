"""Runs in Spark's Python workers: reads the offset ranges of a split and writes a Parquet file, or one per date.

Fetching and decoding happen in the thread of the reader while this thread compresses and writes. Memory: that of
`kafkalite_sdk.blocking.ColumnReader` and one row group of Parquet.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute

from pyspark_kafkalite.collector import freeze_modules
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.tables.attempt import ParquetOptions, write_attempt
from pyspark_kafkalite.tables.model import CommittedRange, DataFile
from pyspark_kafkalite.tables.partitions import DATE, NO_PARTITION, write_by_date
from pyspark_kafkalite.task import Task, batches

SOURCE_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
HEADER = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
SCHEMA = pyarrow.schema(
    [
        ("_topic", pyarrow.string()),
        ("_partition", pyarrow.int32()),
        ("_offset", pyarrow.int64()),
        ("_timestamp", pyarrow.timestamp("us", "UTC")),
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("headers", pyarrow.list_(HEADER)),
    ]
)
"""Columns of a table. The names are stable: new columns are added behind these."""

SOURCE_SCHEMA = pyarrow.schema(list(zip(SOURCE_COLUMNS, SCHEMA.types, strict=True)))

WRITTEN = "written"
WRITTEN_DDL = f"{WRITTEN} string"


class Job(NamedTuple):
    """What every worker of a batch needs.

    Attributes:
        client: `SourceOptions.client`.
        isolation: "read_uncommitted" or "read_committed".
        timeout_s: longest time without records.
        directory: where attempts are written.
        batch_id: of the batch, for the names of its files.
        parquet: how files are written.
        partition: one of `PARTITIONS`, how rows are divided into directories.
    """

    client: Mapping[str, Any]
    isolation: str
    timeout_s: float
    directory: str
    batch_id: int
    parquet: ParquetOptions
    partition: str = NO_PARTITION


class Written(NamedTuple):
    """What one worker has written.

    Attributes:
        files: none if its ranges contain no record.
        ranges: that it has read.
        phases_ms: durations: fetch (waiting for decoded records), encode (writing the file).
    """

    files: tuple[DataFile, ...]
    ranges: tuple[CommittedRange, ...]
    phases_ms: Mapping[str, float]

    def to_text(self) -> str:
        """The text of a row that Spark returns to the driver."""
        files = [each._asdict() for each in self.files]
        ranges = [each._asdict() for each in self.ranges]
        return json.dumps({"files": files, "ranges": ranges, "phases_ms": self.phases_ms})

    @classmethod
    def from_text(cls, text: str) -> "Written":
        """Read what `to_text` returned."""
        found = json.loads(text)
        files = tuple(DataFile(**each) for each in found["files"])
        return cls(files, tuple(CommittedRange(**each) for each in found["ranges"]), found["phases_ms"])


def write_splits(job: Job, plans: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Write the files of each plan row, and return a row for each plan row; for `mapInArrow`.

    Arguments:
        job: of the batch.
        plans: their column `plan` contains the ranges of a task.

    Raises:
        DataLossError: a range is not in the log any more. KafkaError: it cannot be read. OSError: the file cannot be
            written.
    """
    for batch in plans:
        for text in batch.column(0).to_pylist():
            plan = json.loads(text)
            ranges = tuple(OffsetRange(*each) for each in plan["ranges"])
            written = write_split(job, Task(ranges, plan["topic_ids"], job.client, job.isolation, True, job.timeout_s))
            yield pyarrow.RecordBatch.from_pydict({WRITTEN: [written.to_text()]})
    freeze_modules()


def write_split(job: Job, task: Task) -> Written:
    """Write the records of a task to one file, or one for each date. Raises: see `write_splits`."""
    done: list[CommittedRange] = []
    watch = Watch()
    began_s = time.monotonic()
    name = f"part-{job.batch_id:010}-{uuid.uuid4().hex}.parquet"
    records = watch.over(_batches(task, done))
    if job.partition == DATE:
        files = write_by_date(job.directory, name, SCHEMA, records, job.parquet)
    else:
        file = write_attempt(job.directory, name, SCHEMA, records, job.parquet)
        files = () if file is None else (file,)
    encode_s = time.monotonic() - began_s - watch.seconds
    return Written(files, tuple(done), {"fetch": watch.seconds * 1000, "encode": encode_s * 1000})


class Watch:
    """Measures how long an iterator works.

    Attributes:
        seconds: so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def over(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Yield what an iterator yields."""
        while True:
            began_s = time.monotonic()
            batch = next(batches, None)
            self.seconds += time.monotonic() - began_s
            if batch is None:
                return
            yield batch


def _batches(task: Task, done: list[CommittedRange]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of a task, and append each of its ranges to `done` when it is read to its end."""
    for each in task.ranges:
        rows = 0
        times: list[int] = []
        for batch in batches(task._replace(ranges=(each,)), SOURCE_COLUMNS, SOURCE_SCHEMA):
            if batch.num_rows:
                rows += batch.num_rows
                extremes = pyarrow.compute.min_max(batch.column("timestamp").cast(pyarrow.int64())).as_py()
                times += extremes.values()
                yield pyarrow.RecordBatch.from_arrays(batch.columns, schema=SCHEMA)
        lowest, highest = (min(times) // 1000, max(times) // 1000) if times else (None, None)
        done.append(CommittedRange(*each, rows, lowest, highest))
