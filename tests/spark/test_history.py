"""A topic is read together with the table that has copied it: each offset once, also those retention has deleted."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import StructType
from pyspark_kafkalite.decoding.options import Decoding
from pyspark_kafkalite.errors import DataLossError, OptionError
from pyspark_kafkalite.ingest.batch_job import BatchJob
from pyspark_kafkalite.ingest.worker import Job, write_split
from pyspark_kafkalite.options import source_options
from pyspark_kafkalite.schema import ddl, default_columns
from pyspark_kafkalite.source import BatchReader
from pyspark_kafkalite.stream_offsets import offsets_json
from pyspark_kafkalite.tables import Batch, ManifestTable
from pyspark_kafkalite.tables.compaction import compact
from pyspark_kafkalite.tables.model import batch_name
from pyspark_kafkalite.tables.parquet_writer import ParquetOptions
from pyspark_kafkalite.task import Task

from kafkalite.model import TopicPartition
from tests.spark.rig import Collected, Rig, values

READS = int(os.environ.get("KAFKALITE_HISTORY_READS", "20"))
PARTITIONS = 3


class Copy:
    """A job that copies a topic to a table, without Spark.

    Arguments:
        rig: of the topic.
        root: of the table.
    """

    def __init__(self, rig: Rig, root: Path) -> None:
        self.rig = rig
        self.table = ManifestTable(root)
        self.batch_id = 0
        self.options = {**rig.options, "history": str(root)}

    def read_schema(self) -> StructType:
        from pyspark.sql.types import _parse_datatype_string

        return _parse_datatype_string(ddl(default_columns(headers=False)))

    def reader(self) -> BatchReader:
        """A batch of the topic with its history."""
        return BatchReader(source_options(self.options, streaming=False), self.read_schema())

    def run(self) -> None:
        """Copy what is in the log, in files of one partition."""
        options = dict(self.rig.options)
        if self.table.end_offsets():
            options["startingOffsets"] = json.dumps(offsets_json(self.table.end_offsets()))
        reader = BatchReader(source_options(options, streaming=False), self.read_schema())
        client = {"bootstrap_servers": self.rig.broker.address, "client_id": "copy"}
        name = batch_name("A", self.batch_id)
        batch = BatchJob(client, "read_uncommitted", 30.0, self.table.attempts, name, ParquetOptions())
        job = Job(batch, Decoding(), None)
        planned: list[Task] = [each.value for each in reader.partitions()]
        written = [write_split(job, task._replace(ranges=(each,))) for task in planned for each in task.ranges]
        if written:
            files = tuple(file for one in written for file in one.files)
            self.table.commit(Batch("A", self.batch_id, tuple(each for one in written for each in one.ranges), files))
            self.batch_id += 1

    def delete(self, keep: int) -> None:
        """Retention deletes what the table contains, but for the last offsets."""
        ends = {name: max(end - keep, 0) for name, end in self.table.end_offsets().items()}
        self.rig.admin.partitions.delete_records(ends).check()


@pytest.fixture
def copy(rig: Rig, tmp_path: Path) -> Copy:
    return Copy(rig, tmp_path / "table")


def offsets(reader: BatchReader) -> Counter[tuple[int, int]]:
    """Partition and offset of each row that a batch reads."""
    found: Counter[tuple[int, int]] = Counter()
    for each in reader.partitions():
        for batch in reader.read(each):
            assert isinstance(batch, pyarrow.RecordBatch)
            found.update(zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True))
    return found


@pytest.mark.kafkalite(partitions=PARTITIONS)
def test_each_offset_is_read_once_while_ingest_compaction_and_retention_run(rig: Rig, copy: Copy) -> None:
    ended, failed = threading.Event(), []

    def repeat(action: Callable[[], object]) -> None:
        try:
            while not ended.is_set():
                action()
        except BaseException as error:
            failed.append(error)

    numbers: Iterator[int] = iter(range(10**9))

    def produce_and_copy() -> None:
        for partition in range(PARTITIONS):
            rig.send([next(numbers) for _ in range(5)], partition=partition)
        copy.run()
        copy.delete(keep=2)

    compacted = ManifestTable(copy.table.location)
    produce_and_copy()
    threads = [threading.Thread(target=repeat, args=(each,)) for each in (produce_and_copy, lambda: compact(compacted))]
    for thread in threads:
        thread.start()
    try:
        last = 0
        for _ in range(READS):
            found = offsets(copy.reader())
            ends = Counter(partition for partition, _ in found)
            assert found == Counter((partition, at) for partition, end in ends.items() for at in range(end))
            assert len(found) >= last > -1 and set(ends) == set(range(PARTITIONS))
            last = len(found)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []
    starts = rig.admin.partitions.offsets({TopicPartition(rig.topic, 0): -2})
    assert next(iter(starts.values())).offset > 0, "retention has deleted nothing"
    assert any(each.removed for each in copy.table.commits()), "nothing was compacted"


def test_batch_and_stream_begin_in_the_table(rig: Rig, copy: Copy, collected: Collected) -> None:
    rig.send(range(20), headers=[("a", b"b")])
    copy.run()
    copy.delete(keep=0)
    rig.send(range(20, 30))
    location = copy.table.location
    frame = rig.read(history=location, includeHeaders="true")
    assert values(frame) == list(range(30))
    first = frame.where("offset = 0").collect()[0]
    assert (first.topic, first.partition, first.timestampType) == (rig.topic, 0, 0)
    assert [(each.key, bytes(each.value)) for each in first.headers] == [("a", b"b")]
    assert frame.where("offset = 0").schema == frame.where("offset = 29").schema
    stream = rig.stream(history=location, startingOffsets="earliest", maxOffsetsPerTrigger="12")
    collected.run(stream)
    assert collected.rows == [(0, number, number) for number in range(30)]
    copy.run()
    copy.delete(keep=0)
    rig.send(range(30, 35))
    collected.run(stream)
    assert collected.rows == [(0, number, number) for number in range(35)]


def test_offsets_in_neither_are_named(rig: Rig, copy: Copy) -> None:
    rig.send(range(10))
    copy.run()
    rig.send(range(10, 30))
    rig.admin.partitions.delete_records({TopicPartition(rig.topic, 0): 15}).check()
    with pytest.raises(DataLossError, match=r"ends at offset 10, but the log begins at 15: offsets 10 to 14 are"):
        copy.reader().partitions()
    copy.options["failOnDataLoss"] = "false"
    assert offsets(copy.reader()) == Counter((0, at) for at in (*range(10), *range(15, 30)))


def test_offsets_that_retention_deletes_after_the_plan_are_read_from_the_table(rig: Rig, copy: Copy) -> None:
    rig.send(range(10))
    copy.run()
    rig.send(range(10, 30))
    reader = copy.reader()
    planned = reader.partitions()
    copy.run()
    rig.admin.partitions.delete_records({TopicPartition(rig.topic, 0): 25}).check()
    found = [at for each in planned for batch in reader.read(each) for at in batch.column("offset").to_pylist()]
    assert sorted(found) == list(range(30))
    rig.send(range(30, 40))
    planned = copy.reader().partitions()
    rig.admin.partitions.delete_records({TopicPartition(rig.topic, 0): 35}).check()
    with pytest.raises(DataLossError, match="cannot be read at 30"):
        [batch for each in planned for batch in reader.read(each)]


def test_wrong_histories_are_named(rig: Rig, copy: Copy, tmp_path: Path) -> None:
    with pytest.raises((AnalysisException, PySparkException), match="not a table of kafkalite"):
        rig.read(history=str(tmp_path / "other")).collect()
    with pytest.raises(OptionError, match="startingTimestamp: it is not possible with history"):
        source_options({**copy.options, "startingTimestamp": "1"}, streaming=True)
