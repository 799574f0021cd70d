"""Runs in Spark's Python workers: reads the offset ranges of a split and writes a Parquet file, or one per date.

Fetching happens in the thread of the reader while this thread decodes values, compresses and writes. Memory: that of
`kafkalite_sdk.blocking.ColumnReader` and one row group of Parquet.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute

from pyspark_kafkalite.collector import freeze_modules
from pyspark_kafkalite.decoding.options import Decoding
from pyspark_kafkalite.decoding.records import RecordDecoder
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.files import DeadLetterFile, write_files
from pyspark_kafkalite.tables.columns import RAW_SCHEMA
from pyspark_kafkalite.tables.ddl import ddl_text, parse_ddl
from pyspark_kafkalite.tables.model import CommittedRange, DataFile, Span, merge_ranges
from pyspark_kafkalite.tables.partitions import NO_PARTITION
from pyspark_kafkalite.task import Task, batches

SOURCE_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
SCHEMA = RAW_SCHEMA
"""Columns of a table of raw records."""

SOURCE_SCHEMA = pyarrow.schema(list(zip(SOURCE_COLUMNS, SCHEMA.types, strict=True)))

WRITTEN = "written"
WRITTEN_DDL = f"{WRITTEN} string"


class Job(NamedTuple):
    """What every worker of a batch needs.

    Attributes:
        batch: how the topic is read, and where files are written.
        decoding: of keys and values; its schemas are loaded.
        schema: of the table, as text of DDL; None = the table is empty.
        partition: one of `PARTITIONS`, how rows are divided into directories.
    """

    batch: BatchJob
    decoding: Decoding
    schema: str | None
    partition: str = NO_PARTITION


class Written(NamedTuple):
    """What one worker has written.

    Attributes:
        files: of the table; none if its ranges contain no good record.
        ranges: that it has read.
        phases_ms: durations: fetch (waiting for records), decode (values), encode (writing the files).
        dead_letters: files of records that could not be decoded.
        schema: of the table with these files, as text of DDL; None = there is no record.
        causes: number of bad values by cause.
        drift: `Drift.to_json`; None = there is none.
    """

    files: tuple[DataFile, ...]
    ranges: tuple[CommittedRange, ...]
    phases_ms: Mapping[str, float]
    dead_letters: tuple[DataFile, ...] = ()
    schema: str | None = None
    causes: Mapping[str, int] | None = None
    drift: Mapping[str, Any] | None = None

    def to_text(self) -> str:
        """The text of a row that Spark returns to the driver."""
        fields = self._asdict()
        for name in ("files", "ranges", "dead_letters"):
            fields[name] = [each._asdict() for each in fields[name]]
        return json.dumps(fields)

    @classmethod
    def from_text(cls, text: str) -> "Written":
        """Read what `to_text` returned."""
        found = json.loads(text)
        for name in ("files", "dead_letters"):
            found[name] = tuple(DataFile.from_json(each) for each in found[name])
        found["ranges"] = tuple(CommittedRange(**each) for each in found["ranges"])
        return cls(**found)


def write_splits(job: Job, plans: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Write the files of each plan row, and return a row for each plan row; for `mapInArrow`.

    Arguments:
        job: of the batch.
        plans: their column `plan` contains the ranges of a task.

    Raises:
        DataLossError: a range is not in the log any more. KafkaError: it cannot be read. OSError: the file cannot be
            written. DecodingError: a value cannot be decoded, and the query stops then.
    """
    for batch in plans:
        for text in batch.column(0).to_pylist():
            written = write_split(job, job.batch.task(text))
            yield pyarrow.RecordBatch.from_pydict({WRITTEN: [written.to_text()]})
    freeze_modules()


def write_split(job: Job, task: Task) -> Written:
    """Write the records of a task to one file, or one for each date. Raises: see `write_splits`."""
    done: list[CommittedRange] = []
    fetching, decoding = Watch(), Watch()
    began_s = time.monotonic()
    decoder = RecordDecoder(job.decoding, None if job.schema is None else parse_ddl(job.schema))
    directory, batch, parquet = job.batch.directory, job.batch.name, job.batch.parquet
    with DeadLetterFile(directory, batch, parquet) as dead:
        rows = decoding.over(_decoded(fetching.over(_batches(task, done)), decoder, dead))
        files = write_files(directory, batch, rows, parquet, job.partition)
    spans = tuple(Span(*each.offsets) for each in merge_ranges(done))
    encode_s = time.monotonic() - began_s - decoding.seconds
    seconds = {"fetch": fetching.seconds, "decode": decoding.seconds - fetching.seconds, "encode": encode_s}
    schema = decoder.schema() if sum(each.rows for each in done) else None
    return Written(
        tuple(each._replace(spans=spans) for each in files),
        tuple(done),
        {phase: each * 1000 for phase, each in seconds.items()},
        tuple(each._replace(spans=spans) for each in dead.files),
        None if schema is None else ddl_text(schema),
        dict(decoder.causes),
        decoder.drift.to_json() if decoder.drift.values else None,
    )


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


def _decoded(
    batches: Iterator[pyarrow.RecordBatch], decoder: RecordDecoder, dead: DeadLetterFile
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the good rows of batches; dead letters are written."""
    for batch in batches:
        decoded = decoder.decode(batch)
        if decoded.dead is not None:
            dead.write(decoded.dead)
        yield decoded.rows


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
        done.append(CommittedRange(*each, rows, lowest, highest, task.topic_ids.get(each.topic)))
