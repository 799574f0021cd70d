"""The table of the latest state is the same however its history is divided into batches.

Histories are random: keys that move between partitions, times that go back within a partition, tombstones. Each run
prints its seed; `KAFKALITE_SEED` repeats one run.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow
import pyarrow.parquet
import pytest
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.worker import SCHEMA
from pyspark_kafkalite.jobs.buckets import ERROR, BucketJob, current_files, merge, merge_bucket
from pyspark_kafkalite.tables import ManifestTable
from pyspark_kafkalite.tables.model import Batch, CommittedRange, DataFile, batch_name
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions
from pyspark_kafkalite.tables.reading import read

SEEDS = [int(os.environ["KAFKALITE_SEED"])] if "KAFKALITE_SEED" in os.environ else list(range(40))
PARTITIONS = 3


class Record(NamedTuple):
    partition: int
    offset: int
    time_ms: int
    key: bytes
    value: bytes | None


def table_of(records: list[Record]) -> pyarrow.Table:
    rows = [
        {"_topic": "t", "_partition": each.partition, "_offset": each.offset, "_timestamp": each.time_ms * 1000,
         "key": each.key, "value": each.value, "headers": []}
        for each in records
    ]  # fmt: skip
    return pyarrow.Table.from_pylist(rows, schema=SCHEMA)


def history(random_: random.Random) -> list[list[Record]]:
    """The records of each partition."""
    found = []
    for partition in range(PARTITIONS):
        records = []
        for offset in range(random_.randrange(12)):
            value = None if random_.random() < 0.4 else b"%d-%d" % (partition, offset)
            records.append(Record(partition, offset, random_.randrange(6), b"k%d" % random_.randrange(4), value))
        found.append(records)
    return found


def batches(random_: random.Random, logs: list[list[Record]]) -> Iterator[list[Record]]:
    """Divide a history: each batch continues each partition by some records, and has them in any order."""
    positions = [0] * PARTITIONS
    while any(at < len(log) for at, log in zip(positions, logs, strict=True)):
        batch = []
        for partition, log in enumerate(logs):
            end = min(positions[partition] + random_.randrange(4), len(log))
            batch += log[positions[partition] : end]
            positions[partition] = end
        yield random_.sample(batch, len(batch))


def expected(logs: list[list[Record]]) -> dict[bytes, bytes]:
    """The last record of each key in each partition; of these the one with the greatest time, then partition."""
    last = {(each.key, each.partition): each for log in logs for each in log}
    latest: dict[bytes, Record] = {}
    for each in sorted(last.values(), key=lambda one: (one.time_ms, one.partition)):
        latest[each.key] = each
    return {key: each.value for key, each in latest.items() if each.value is not None}


def as_dict(rows: pyarrow.Table) -> dict[bytes, bytes]:
    found = dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
    assert len(found) == len(rows), "a key is there twice"
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_table_is_independent_of_the_division_into_batches(seed: int) -> None:
    print(f"KAFKALITE_SEED={seed}")
    random_ = random.Random(seed)
    logs = history(random_)
    states = []
    for _ in range(10):
        state = merge([table_of([])])
        for batch in batches(random_, logs):
            state = merge([state.rows, state.hidden, table_of(batch)])
        assert as_dict(state.rows) == expected(logs)
        states.append(state)
    assert all(each.rows.equals(states[0].rows) and each.hidden.equals(states[0].hidden) for each in states)


def test_deleted_key_stays_deleted_when_an_older_record_of_another_partition_is_read_later() -> None:
    tombstone, older = Record(1, 0, 200, b"k", None), Record(0, 0, 150, b"k", b"old")
    first = merge([table_of([tombstone])])
    then = merge([first.rows, first.hidden, table_of([older])])
    assert then.rows.num_rows == 0 and then.hidden.num_rows == 2
    newer = merge([then.rows, then.hidden, table_of([Record(0, 1, 201, b"k", b"new")])])
    assert as_dict(newer.rows) == {b"k": b"new"}


def commit(table: ManifestTable, batch_id: int, records: list[Record]) -> None:
    """What the job does with a batch of one bucket."""
    current = current_files(table.state().files, 1).get(0, [])
    shared = BatchJob({}, "read_uncommitted", 1.0, table.attempts, batch_name("q", batch_id), ParquetOptions())
    job = BucketJob(shared, 1, ERROR, {0: [str(Path(table.location, name)) for name in current]})
    (written,) = merge_bucket(job, (pyarrow.scalar(0),), table_of(records))["written"].to_pylist()
    ranges = tuple(CommittedRange("t", each.partition, each.offset, each.offset + 1, 1, 0, 0) for each in records)
    files = tuple(DataFile(**each) for each in json.loads(written)["files"])
    table.commit(Batch("q", batch_id, ranges, files, removed=tuple(current)))


def test_hidden_rows_are_committed_with_the_state_and_no_reader_sees_them(tmp_path: Path) -> None:
    table = ManifestTable(tmp_path / "state")
    commit(table, 0, [Record(0, 0, 100, b"a", b"1"), Record(1, 0, 200, b"b", None)])
    hidden = list((tmp_path / "state/_hidden").iterdir())
    commit(table, 1, [Record(0, 1, 150, b"b", b"old")])
    assert as_dict(read(table).to_table()) == {b"a": b"1"}
    assert as_dict(pyarrow.parquet.read_table(tmp_path / "state")) == {b"a": b"1"}
    assert len(table.files()) == 1 and len(table.state().files) == 2
    assert len(list((tmp_path / "state/_hidden").iterdir())) == 1 and not hidden[0].exists()
    assert as_dict(read(ManifestTable(tmp_path / "state", create=False)).to_table()) == {b"a": b"1"}


def test_state_of_a_version_without_hidden_rows_continues(tmp_path: Path) -> None:
    table = ManifestTable(tmp_path / "state")
    name = "part-0000000000-b0000of0001-x.parquet"
    rows = table_of([Record(0, 0, 100, b"a", b"1"), Record(0, 1, 100, b"b", b"2")])
    pyarrow.parquet.write_table(rows, Path(table.attempts, name))
    file = DataFile(name, Path(table.attempts, name).stat().st_size, 2)
    table.commit(Batch("q", 0, (CommittedRange("t", 0, 0, 2, 2, 0, 0),), (file,), removed=()))
    commit(table, 1, [Record(0, 2, 50, b"a", None), Record(1, 0, 99, b"b", b"older")])
    assert as_dict(read(table).to_table()) == {b"b": b"2"}
