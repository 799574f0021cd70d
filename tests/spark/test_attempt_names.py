"""The name of an attempt has its query and batch: a commit removes those that were not committed."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pytest
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.files import DeadLetterFile, write_files
from pyspark_kafkalite.ingest.worker import SCHEMA
from pyspark_kafkalite.jobs import window
from pyspark_kafkalite.jobs.buckets import BUCKET, ERROR, BucketJob, merge_bucket
from pyspark_kafkalite.tables.columns import DEAD_LETTER_SCHEMA
from pyspark_kafkalite.tables.model import batch_name, batch_of_attempt
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions

QUERY = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
PARQUET = ParquetOptions()
ROW = {
    "_topic": "t",
    "_partition": 0,
    "_offset": 1,
    "_timestamp": datetime(2013, 1, 1, tzinfo=UTC),
    "key": b"k",
    "value": b"v",
    "headers": [],
}


@pytest.mark.parametrize("batch_id", [0, 12, 12_345_678_901])
def test_every_writer_names_its_query_and_its_batch(tmp_path: Path, batch_id: int) -> None:
    name, directory = batch_name(QUERY, batch_id), str(tmp_path)
    rows = pyarrow.RecordBatch.from_pylist([ROW], SCHEMA)
    for partition in ("none", "date"):
        write_files(directory, name, [rows], PARQUET, partition)
    with DeadLetterFile(directory, name, PARQUET) as dead:
        dead.write(pyarrow.RecordBatch.from_pylist([{}], DEAD_LETTER_SCHEMA))
    shared = BatchJob({}, "read_uncommitted", 1.0, directory, name, PARQUET)
    table = pyarrow.Table.from_pylist([{BUCKET: 3, **ROW}, {BUCKET: 3, **ROW, "_partition": 1}])
    merge_bucket(BucketJob(shared, 4, ERROR, {}), (pyarrow.scalar(3),), table)
    list(window._write(window._Writing(directory, name, PARQUET), iter([rows])))
    written = [each.name for each in tmp_path.iterdir()]
    assert len(written) == 6
    for each in written:
        assert batch_of_attempt(each, QUERY) == batch_id
        assert batch_of_attempt(each, QUERY[:-1]) is None and batch_of_attempt(each, QUERY.replace("7", "8")) is None


def test_other_files_are_of_no_query() -> None:
    for each in ("part-compacted-1.parquet", "12-abc.json", f"part-{QUERY}-1.parquet", "probe-1"):
        assert batch_of_attempt(each, QUERY) is None
