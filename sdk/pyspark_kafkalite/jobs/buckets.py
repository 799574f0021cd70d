"""Runs in Spark's Python workers: reduces records to the last one of each key, and merges them into buckets.

A table of the latest state has two files per bucket: its rows, and hidden rows that later batches need. Keys are
divided by the CRC-32 of their bytes. A batch rewrites the buckets of its keys.

Invariants:
1. Order: within a partition the offset decides. A key that has moved to another partition, as after the growth of a
   topic, is ordered by the time of its last record in each partition, then by partition.
2. The state has the last record of each key in each partition, so it is the same however the history is divided into
   batches: a tombstone is compared with older records of other partitions that are read later, and a record that was
   not the latest one is it again if the next one of the other partition has an earlier time.
"""

import json
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.worker import SCHEMA, SOURCE_COLUMNS, SOURCE_SCHEMA
from pyspark_kafkalite.planner import OffsetRange
from pyspark_kafkalite.tables.errors import TableError
from pyspark_kafkalite.tables.model import CommittedRange, hidden_name
from pyspark_kafkalite.tables.parquet_writer import write_attempt
from pyspark_kafkalite.task import Task, batches

BUCKET = "_bucket"
RANGES_BUCKET = -1
"""The bucket of the rows that contain the ranges of a task as JSON, in the column `value`."""

REDUCED_DDL = (
    f"{BUCKET} int, _topic string, _partition int, _offset bigint, _timestamp timestamp, `key` binary, `value` binary, "
    "headers array<struct<key:string,value:binary>>"
)
ERROR, SKIP = "error", "skip"

_NAME = re.compile(r"-b(\d{4})of(\d{4})-")


class BucketJob(NamedTuple):
    """What every worker of a batch needs.

    Attributes:
        batch: how the topic is read, and where files are written.
        buckets: their number.
        null_keys: `ERROR` or `SKIP`, for records without a key.
        current: paths of the files of each bucket, also of the hidden ones.
    """

    batch: BatchJob
    buckets: int
    null_keys: str
    current: Mapping[int, Sequence[str]]


def bucket_of(name: str, buckets: int) -> int:
    """Return the bucket of a file.

    Arguments:
        name: of the file.
        buckets: number of buckets of the job.

    Raises:
        TableError: the table has another number of buckets, or is no table of a state.
    """
    found = _NAME.search(name)
    if found is None:
        raise TableError(f"file {name} is not of a table of the latest state; use another directory")
    if int(found[2]) != buckets:
        raise TableError(f"the table has {int(found[2])} buckets, but buckets is {buckets}; set it to {int(found[2])}")
    return int(found[1])


# the first stage: records to rows of buckets


def reduce_splits(job: BucketJob, plans: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the last record of each key of each fetched batch with its bucket, and the ranges; for `mapInArrow`.

    Arguments:
        job: of the batch.
        plans: their column `plan` contains the ranges of a task.

    Raises:
        TableError: a record has no key. DataLossError, KafkaError: a range cannot be read.
    """
    for batch in plans:
        for text in batch.column(0).to_pylist():
            task = job.batch.task(text)
            for each in task.ranges:
                yield from _reduced(job, task, each)


def _reduced(job: BucketJob, task: Task, each: OffsetRange) -> Iterator[pyarrow.RecordBatch]:
    rows, times = 0, []
    for batch in batches(task._replace(ranges=(each,)), SOURCE_COLUMNS, SOURCE_SCHEMA):
        if not batch.num_rows:
            continue
        rows += batch.num_rows
        extremes = pyarrow.compute.min_max(batch.column("timestamp").cast(pyarrow.int64())).as_py()
        times += extremes.values()
        table = pyarrow.Table.from_batches([pyarrow.RecordBatch.from_arrays(batch.columns, schema=SCHEMA)])
        last = last_rows(_with_keys(table, job.null_keys), ("_topic", "_partition", "key"), ("_offset",))
        numbers = pyarrow.array([zlib.crc32(key) % job.buckets for key in last["key"].to_pylist()], pyarrow.int32())
        yield from last.add_column(0, BUCKET, numbers).to_batches()
    lowest, highest = (min(times) // 1000, max(times) // 1000) if times else (None, None)
    yield _ranges_row(CommittedRange(*each, rows, lowest, highest, task.topic_ids.get(each.topic)))


def _with_keys(table: pyarrow.Table, null_keys: str) -> pyarrow.Table:
    missing = table["key"].null_count
    if not missing:
        return table
    if null_keys == ERROR:
        named = table.select(["_topic", "_partition", "_offset"])
        row = named.filter(pyarrow.compute.is_null(table["key"])).slice(0, 1).to_pylist()[0]
        raise TableError(
            f"{row['_topic']}-{row['_partition']}: the record at offset {row['_offset']} has no key; set null_keys to "
            f'"{SKIP}" to leave such records out'
        )
    return table.filter(pyarrow.compute.is_valid(table["key"]))


def _ranges_row(found: CommittedRange) -> pyarrow.RecordBatch:
    fields: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    fields["value"] = json.dumps(found._asdict()).encode()
    schema = pyarrow.schema([pyarrow.field(BUCKET, pyarrow.int32()), *SCHEMA])
    return pyarrow.RecordBatch.from_pylist([{BUCKET: RANGES_BUCKET, **fields}], schema=schema)


def last_rows(table: pyarrow.Table, group: Sequence[str], order: Sequence[str]) -> pyarrow.Table:
    """Return the last row of each group.

    Arguments:
        table: rows in any order.
        group: columns with the same values.
        order: columns that decide which row is the last one.
    """
    ordered = table.sort_by([(name, "ascending") for name in order])
    numbered = ordered.append_column("_row", pyarrow.array(range(len(ordered)), pyarrow.int64()))
    last = numbered.select([*group, "_row"]).group_by(list(group)).aggregate([("_row", "max")])["_row_max"]
    return ordered.take(last)


# the second stage: rows of a bucket to its file


def merge_bucket(job: BucketJob, key: tuple[Any, ...], rows: pyarrow.Table) -> pyarrow.Table:
    """Write the new file of a bucket, and return a row about it; for `applyInArrow`.

    Arguments:
        job: of the batch.
        key: the bucket.
        rows: of the first stage.
    """
    number = key[0].as_py()
    if number == RANGES_BUCKET:
        return pyarrow.table({"written": [text.decode() for text in rows["value"].to_pylist()]})
    tables = [pyarrow.parquet.read_table(path, partitioning=None).cast(SCHEMA) for path in job.current.get(number, ())]
    merged = merge([*tables, rows.select(SCHEMA.names).cast(SCHEMA)])
    stem = f"part-{job.batch.name}-b{number:04}of{job.buckets:04}-{uuid.uuid4().hex}"
    names = (f"{stem}.parquet", hidden_name(f"{stem}-hidden.parquet"))
    files = [
        write_attempt(job.batch.directory, name, SCHEMA, each.to_batches(), job.batch.parquet)
        for name, each in zip(names, merged, strict=True)
    ]
    fields = [{"name": each.name, "bytes": each.bytes, "rows": each.rows} for each in files if each is not None]
    return pyarrow.table({"written": [json.dumps({"bucket": number, "files": fields})]})


class Merged(NamedTuple):
    """The state of a bucket, each part sorted by topic and key.

    Attributes:
        rows: the latest row of each key; a key whose latest record is a tombstone has none.
        hidden: tombstones, and the last rows of keys in partitions that do not have the latest one.
    """

    rows: pyarrow.Table
    hidden: pyarrow.Table


def merge(tables: Iterable[pyarrow.Table]) -> Merged:
    """Merge rows into a state.

    Arguments:
        tables: all rows of the state, also the hidden ones, and new records.
    """
    last = last_rows(pyarrow.concat_tables(tables), ("_topic", "_partition", "key"), ("_offset",))
    last = last.sort_by([(name, "ascending") for name in ("_topic", "key", "_timestamp", "_partition")])
    valid = pyarrow.compute.is_valid(last["value"]).combine_chunks()
    shown = pyarrow.compute.and_(_last_of_key(last), valid)
    return Merged(last.filter(shown).combine_chunks(), last.filter(pyarrow.compute.invert(shown)).combine_chunks())


def _last_of_key(ordered: pyarrow.Table) -> pyarrow.BooleanArray:
    """Whether each row is the last one of its topic and key; rows with the same ones are adjacent."""
    changes = pyarrow.array([False] * max(len(ordered) - 1, 0), pyarrow.bool_())
    for name in ("_topic", "key"):
        column = ordered[name].combine_chunks()
        changes = pyarrow.compute.or_(changes, pyarrow.compute.not_equal(column[:-1], column[1:]))
    return pyarrow.concat_arrays([changes, pyarrow.array([True] * min(len(ordered), 1), pyarrow.bool_())])


def current_files(names: Iterable[str], buckets: int) -> dict[int, list[str]]:
    """Return the names of the files of each bucket. Raises TableError: see `bucket_of`."""
    found: dict[int, list[str]] = {}
    for name in names:
        found.setdefault(bucket_of(Path(name).name, buckets), []).append(name)
    return found
