"""Topics are copied to Parquet exactly once, through crashes of workers and of the driver's commits."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from kafkalite_sdk.blocking import Admin
from pyspark.errors import StreamingQueryException
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.ingest import query
from pyspark_kafkalite.ingest.worker import SCHEMA
from pyspark_kafkalite.tables import Gap, ManifestTable, TableError
from pyspark_kafkalite.tables.delta import DeltaOffsetTable
from pyspark_kafkalite.tables.reading import read

from kafkalite.model import TopicPartition
from tests.kit.brokers import wait_until
from tests.kit.flights import flights
from tests.spark.crashing_workers import PHASES, crashing
from tests.spark.ingest_job import IngestJob

COUNT = 5_000


def test_options_that_a_table_cannot_have_are_rejected_by_name(job: IngestJob) -> None:
    for name, value in (("columns", "value"), ("failOnDataLoss", "false"), ("subscribePattern", "x")):
        with pytest.raises(OptionError, match=name):
            job.run(options={name: value})
    with pytest.raises(ValueError, match="compression is 'gzip', expected one of none, snappy, lz4, zstd"):
        job.run(compression="gzip")
    for name, value in (("continuous", "1 second"), ("realTime", "1 minute")):
        with pytest.raises(ValueError, match=rf"trigger {name} is not supported: .*use {{'processingTime'"):
            job.run(trigger={name: value})
    assert not job.checkpoint.exists()


def test_offsets_that_retention_has_removed_are_named_and_recorded(job: IngestJob, tmp_path: Path) -> None:
    job.run()
    ends = ManifestTable(job.root).end_offsets()
    lost = TopicPartition(job.topic, 0)
    job.send(200)
    with Admin(job.options["kafka.bootstrap.servers"]) as admin:
        admin.partitions.delete_records({lost: ends[lost] + 7}).check()
    resumed: dict[str, Any] = {"checkpoint": str(tmp_path / "resumed"), "resume_from_table": True}
    with pytest.raises(StreamingQueryException, match=r"allow_gaps=True"):
        job.run(**resumed)
    job.run(**resumed, allow_gaps=True)
    commits = ManifestTable(job.root).commits()
    assert commits[-1].gaps == (Gap(job.topic, 0, ends[lost], ends[lost] + 7),)
    assert read(job.root).count_rows() == job.sent - 7


def orphans(job: IngestJob) -> list[Path]:
    return list((job.root / "_attempts").iterdir())


def test_flights_are_copied_with_keys_values_times_and_headers(job: IngestJob) -> None:
    job.sent = 0
    sent = flights(COUNT)
    table = pyarrow.table(
        {
            "key": pyarrow.array([each.key for each in sent], pyarrow.binary()),
            "value": [each.value for each in sent],
            "timestamp": [each.timestamp_ms for each in sent],
        }
    )
    job.send_table(table)
    job.run(options={"maxOffsetsPerTrigger": "3000"})
    written = pyarrow.dataset.dataset(job.root, format="parquet").to_table()
    assert written.schema.equals(SCHEMA)
    columns = ("key", "value", "_timestamp")
    milliseconds = written["_timestamp"].cast(pyarrow.int64()).to_numpy() // 1000
    found = Counter(zip(written["key"].to_pylist(), written["value"].to_pylist(), milliseconds, strict=True))
    expected = Counter((each.key, each.value, each.timestamp_ms) for each in sent)
    assert expected - found == Counter() and (found - expected).total() == 100
    in_spark = job.spark.read.parquet(str(job.root)).select(*columns).toArrow()
    assert Counter(in_spark["value"].to_pylist()) == Counter(written["value"].to_pylist())
    commits = ManifestTable(job.root).commits()
    assert len(commits) == 2 and sum(each.rows for one in commits for each in one.ranges) == COUNT + 100
    assert Counter(zip(written["_partition"].to_pylist(), written["_offset"].to_pylist(), strict=True)) == Counter(
        (partition, at) for (_, partition), end in commits[-1].ends.items() for at in range(end)
    )


def test_flights_are_partitioned_by_date_with_one_file_per_task_and_date(job: IngestJob) -> None:
    sent = flights(COUNT)
    job.sent = 0
    table = {"value": [each.value for each in sent], "timestamp": [each.timestamp_ms for each in sent]}
    job.send_table(pyarrow.table(table))
    job.run(partition="date", options={"maxOffsetsPerTrigger": "3000"})
    written = pyarrow.dataset.dataset(job.root, format="parquet", partitioning="hive").to_table()
    days = Counter(str(each.date()) for each in written["_timestamp"].to_pylist())
    assert Counter(written["date"].to_pylist()) == days and len(days) > 5
    assert written.num_rows == COUNT + 100
    assert Counter(written["value"].to_pylist()) >= Counter(each.value for each in sent)
    commits = ManifestTable(job.root).commits()
    assert (
        max(Counter(each.name.split("/")[0] for each in commit.files).most_common(1)[0][1] for commit in commits) <= 2
    )
    rows = job.spark.read.parquet(str(job.root)).groupBy("date").count().collect()
    assert {str(row["date"]): row["count"] for row in rows} == days
    job.send(3)
    with pytest.raises(TableError, match='partition to "date", or use another directory'):
        job.run()
    with pytest.raises(ValueError, match="partition is 'hour', expected one of date, none"):
        job.run(partition="hour")
    job.run(partition="date")
    assert read(job.root).count_rows() == COUNT + 103


def test_query_continues_where_it_has_stopped(job: IngestJob) -> None:
    for _ in range(2):
        job.run()
        job.verify()
        job.send(50)
    job.run()
    job.verify()


def wait_for_tasks(job: IngestJob) -> None:
    """Wait until the other tasks of a failed job have ended: Spark reports the failure while they still write files."""
    tracker = job.spark.sparkContext._jsc.sc().statusTracker()

    def ended() -> bool:
        return all(each.numRunningTasks() == 0 for each in tracker.getExecutorInfos())

    wait_until(ended, "all tasks end")


@pytest.mark.parametrize("phase", PHASES)
def test_crash_of_a_worker_loses_and_duplicates_nothing(
    job: IngestJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    marker = tmp_path / "marker"
    monkeypatch.setattr(query, "write_splits", crashing(marker, phase))
    with pytest.raises(StreamingQueryException):
        job.run()
    assert marker.read_text() == phase
    assert phase == PHASES[0] or orphans(job) != []
    assert ManifestTable(job.root).commits() == []
    wait_for_tasks(job)
    job.run()
    job.verify()
    assert orphans(job) == []


@pytest.mark.parametrize("after", [False, True])
def test_crash_beside_the_commit_loses_and_duplicates_nothing(
    job: IngestJob, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    commit = query.Committer.commit

    def failing(self: query.Committer, query_id: str, batch_id: int, written: list[Any]) -> None:
        if after or not written:
            commit(self, query_id, batch_id, written)
        if written:
            raise OSError("the driver ends here")

    with monkeypatch.context() as patch, pytest.raises(StreamingQueryException, match="the driver ends here"):
        patch.setattr(query.Committer, "commit", failing)
        job.run()
    commits = len(ManifestTable(job.root).commits())
    assert (commits, bool(orphans(job))) == (int(after), not after)
    job.run()
    job.verify()
    assert len(ManifestTable(job.root).commits()) == 1
    assert orphans(job) == []


def test_topic_is_copied_to_delta_exactly_once(job: IngestJob, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaOffsetTable(job.root, SCHEMA)
    commit = query.Committer.commit

    def failing(self: query.Committer, query_id: str, batch_id: int, written: list[Any]) -> None:
        commit(self, query_id, batch_id, written)
        raise OSError("the driver ends here")

    with monkeypatch.context() as patch, pytest.raises(StreamingQueryException, match="the driver ends here"):
        patch.setattr(query.Committer, "commit", failing)
        job.run(table=table)
    job.send(20)
    for _ in range(2):
        job.run(table=table)
    assert read(table).count_rows() == job.sent
    columns = DeltaTable(job.root).to_pyarrow_table().to_pydict()
    assert Counter(columns["value"]) == Counter(b"%d" % number for number in range(job.sent))
    assert sum(table.end_offsets().values()) == job.sent


def test_second_job_and_lost_checkpoint_are_refused_until_it_resumes(job: IngestJob, tmp_path: Path) -> None:
    job.run()
    job.send(20)
    other = str(tmp_path / "other")
    with pytest.raises(StreamingQueryException, match="resume_from_table=True"):
        job.run(checkpoint=other)
    job.run(checkpoint=str(tmp_path / "third"), resume_from_table=True)
    job.verify()
    job.send(20)
    with pytest.raises(StreamingQueryException, match="writes to it"):
        job.run()
    job.run(checkpoint=str(tmp_path / "third"))
    job.verify()
