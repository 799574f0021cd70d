"""Pure parts of the jobs: the latest row of each key, audit buckets, contiguity, the plot of the flights."""

from datetime import UTC, datetime

import pyarrow
import pytest
from pyspark_kafkalite.ingest.worker import SCHEMA
from pyspark_kafkalite.jobs.audit import Bucket, counts, differences, watermarks
from pyspark_kafkalite.jobs.buckets import bucket_of, merge
from pyspark_kafkalite.jobs.verify import contiguity
from pyspark_kafkalite.tables import Commit, CommittedRange, Gap, TableError

from kafkalite.model import TopicPartition
from tools.pipeline.plot import monthly


def rows(*found: tuple[int, int, int, bytes, bytes | None]) -> pyarrow.Table:
    """Rows from partition, offset, time in ms, key and value."""
    listed = [
        {
            "_topic": "t",
            "_partition": partition,
            "_offset": offset,
            "_timestamp": time * 1000,
            "key": key,
            "value": value,
            "headers": [],
        }
        for partition, offset, time, key, value in found
    ]
    return pyarrow.Table.from_pylist(listed, schema=SCHEMA)


@pytest.mark.parametrize(
    ("state", "new", "value"),
    [
        ([], [(0, 2, 0, b"k", b"b"), (0, 1, 9, b"k", b"a")], b"b"),  # the offset decides, not order or time
        ([(0, 1, 9, b"k", b"a")], [(0, 2, 0, b"k", b"b")], b"b"),
        ([(0, 1, 0, b"k", b"a")], [(0, 2, 0, b"k", None)], None),
        ([(2, 9, 5, b"k", b"old")], [(0, 0, 6, b"k", b"moved")], b"moved"),
        ([(0, 9, 6, b"k", b"moved")], [(2, 0, 5, b"k", b"old")], b"moved"),
        ([(0, 9, 5, b"k", b"a")], [(1, 0, 5, b"k", b"b")], b"b"),  # the same time: the higher partition
        ([(0, 1, 0, b"k", b"a")], [], b"a"),
    ],
)
def test_latest_row_of_a_key(
    state: list[tuple[int, int, int, bytes, bytes | None]],
    new: list[tuple[int, int, int, bytes, bytes | None]],
    value: bytes | None,
) -> None:
    merged = merge([rows(*state), rows(*new)]).rows
    assert merged.schema == SCHEMA
    assert merged["value"].to_pylist() == ([] if value is None else [value])


def test_keys_are_independent_and_sorted() -> None:
    merged = merge([rows((0, 0, 0, b"b", b"1"), (0, 1, 0, b"a", b"2")), rows((0, 2, 0, b"b", b"3"))]).rows
    assert (merged["key"].to_pylist(), merged["value"].to_pylist()) == ([b"a", b"b"], [b"2", b"3"])


def test_bucket_is_in_the_name_of_the_file() -> None:
    assert bucket_of("part-0000000001-b0003of0016-x.parquet", 16) == 3
    with pytest.raises(TableError, match="the table has 16 buckets, but buckets is 8; set it to 16"):
        bucket_of("part-0000000001-b0003of0016-x.parquet", 8)
    with pytest.raises(TableError, match="is not of a table of the latest state"):
        bucket_of("part-0000000001-x.parquet", 8)


FULL, BEHIND, LOST = Bucket("t", 0, 10, 5, 5, 5), Bucket("t", 10, 20, 5, 3, 3), Bucket("t", 20, 30, 5, 5, 4)


def test_watermark_is_the_first_incomplete_bucket() -> None:
    assert watermarks([FULL, LOST, BEHIND, FULL._replace(topic="u")]) == {"t": 10, "u": 10}
    assert watermarks([FULL]) == {"t": 10}


def test_only_offsets_of_the_table_are_differences() -> None:
    assert list(differences([FULL, BEHIND])) == []
    (text,) = differences([LOST])
    assert "the topic has 5 records below the end of the table, the table has 4" in text


def test_counts_have_the_fields_of_kafka_260() -> None:
    first, second = counts([BEHIND], "orders", 7)
    assert list(first) == [
        *("time", "host", "datacenter", "application", "topic", "tier", "bucket_start", "bucket_end", "count")
    ]
    assert (first["tier"], first["count"], second["tier"], second["count"]) == ("topic", 5, "lake", 3)


def commit(sequence: int, start: int, end: int, *gaps: Gap) -> Commit:
    return Commit(sequence, "q", sequence, (CommittedRange("t", 0, start, end, 0, None, None),), (), {}, gaps)


def test_commits_that_are_not_contiguous_are_named() -> None:
    assert list(contiguity([commit(0, 5, 7), commit(1, 7, 9), commit(2, 12, 13, Gap("t", 0, 9, 12))])) == []
    name = TopicPartition("t", 0)
    assert list(contiguity([commit(0, 5, 7), commit(1, 8, 9)])) == [f"{name}: commit 1 begins at offset 8, expected 7"]


def test_months_are_bars() -> None:
    start = [datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC), datetime(2013, 2, 1, tzinfo=UTC)]
    windows = pyarrow.table({"window_start": start, "flights": [3, 1, 2], "delay": [10.0, 2.0, None]})
    assert monthly(windows).splitlines()[1:] == [
        f"Jan 2013        4     8.0 min  {'█' * 40}",
        f"Feb 2013        2     0.0 min  {'█' * 20}",
    ]
