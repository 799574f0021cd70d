"""Batches of records for a table, as real Parquet files."""

import uuid
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.dataset
from pyspark_kafkalite.tables import Batch, CommittedRange, DataFile, Table
from pyspark_kafkalite.tables.model import Span, batch_name
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions, write_attempt

SCHEMA = pyarrow.schema([("_partition", pyarrow.int32()), ("_offset", pyarrow.int64())])
Offsets = dict[int, tuple[int, int]]


def write(
    table: Table, offsets: Offsets, topic_id: str | None = None, of: str = "any"
) -> tuple[DataFile, tuple[CommittedRange, ...]]:
    """Write an attempt with the offsets [start, end) of each partition."""
    rows = [{"_partition": each, "_offset": at} for each, (start, end) in offsets.items() for at in range(start, end)]
    name = f"part-{of}-{uuid.uuid4().hex}.parquet"
    batches = [pyarrow.RecordBatch.from_pylist(rows, SCHEMA)]
    file = write_attempt(table.attempts, name, SCHEMA, batches, ParquetOptions())
    assert file is not None and file.rows == len(rows)
    ranges = tuple(
        CommittedRange("orders", each, start, end, end - start, 0, 1, topic_id)
        for each, (start, end) in offsets.items()
    )
    return file._replace(spans=tuple(Span(*each.offsets) for each in ranges)), ranges


def batch(
    table: Table,
    query_id: str,
    batch_id: int,
    *tasks: Offsets,
    resumes: int | None = None,
    allow_gaps: bool = False,
    topic_id: str | None = None,
) -> Batch:
    """Write the files of a batch, one for each task."""
    written = [write(table, each, topic_id, batch_name(query_id, batch_id)) for each in tasks]
    ranges = tuple(each for _, ranges in written for each in ranges)
    return Batch(query_id, batch_id, ranges, tuple(file for file, _ in written), resumes, allow_gaps)


def rows(dataset: pyarrow.dataset.Dataset) -> Counter[tuple[int, int]]:
    """The partition and offset of each row."""
    read = dataset.to_table(columns=["_partition", "_offset"]).to_pydict()
    return Counter(zip(read["_partition"], read["_offset"], strict=True))


def plain_rows(root: Path) -> Counter[tuple[int, int]]:
    """What a plain reader of the directory reads."""
    return rows(pyarrow.dataset.dataset(root, format="parquet", schema=SCHEMA))


def expected(offsets: Offsets) -> Counter[tuple[int, int]]:
    """Each offset once."""
    return Counter((each, at) for each, (start, end) in offsets.items() for at in range(start, end))


def files(root: Path) -> dict[str, int]:
    """Every file of the table with its size."""
    return {str(each.relative_to(root)): each.stat().st_size for each in sorted(root.rglob("*")) if each.is_file()}
