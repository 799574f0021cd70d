"""Jobs from their files, in the session of the tests."""

import json
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from kafkalite_sdk.blocking import Admin, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark_kafkalite.jobs import JobError, JobFile, checkpoint, read_job
from pyspark_kafkalite.jobs.checks import check_before_run, executor_findings_in
from pyspark_kafkalite.jobs.errors import explain_error
from pyspark_kafkalite.jobs.plan import plan_job
from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.runner import run_in
from pyspark_kafkalite.jobs.verify import verify_job
from pyspark_kafkalite.tables import ManifestTable
from pyspark_kafkalite.tables.reading import read

from kafkalite.model import TopicPartition
from tests.kit.loop_disk import LoopDisk
from tests.spark.delta_log import remove_earlier_versions

HOUR_MS = 3_600_000
NO_OPTIONS = RunOptions()


class Jobs:
    """A topic with two partitions and the jobs of a test.

    Arguments:
        spark: the session.
        directory: of files and tables.
        address: of the broker.
        topic: that the jobs read.
        producer: for the topic.
    """

    def __init__(self, spark: SparkSession, directory: Path, address: str, topic: str, producer: Any) -> None:
        self.spark, self.directory, self.address, self.topic = spark, directory, address, topic
        self.producer = producer
        self.lines: list[str] = []

    def send(self, *values: bytes | None, partition: int = 0, **others: Any) -> None:
        """Append records."""
        for value in values:
            self.producer.send(self.topic, value, partition=partition, **others)
        self.producer.flush()

    def job(self, kind: str, *sections: str, source: str = "", options: str = "") -> JobFile:
        """Write and read a job file."""
        path = self.directory / f"{kind}.toml"
        lines = [f'[job]\ntype = "{kind}"\n{options}', *sections]
        if kind != "replay":
            lines += [f'[source]\nkafka.bootstrap.servers = "{self.address}"\nsubscribe = "{self.topic}"']
            lines += [f'startingOffsets = "earliest"\n{source}']
        path.write_text("\n".join(lines))
        return read_job(path)

    def run(self, job: JobFile, options: RunOptions = NO_OPTIONS) -> int:
        """Check and run a job."""
        check_before_run(job, options)
        return run_in(self.spark, job, options, self.lines.append)


@pytest.fixture
def jobs(
    spark: SparkSession,
    tmp_path: Path,
    kafkalite_broker: Any,
    kafkalite_topic_factory: Callable[..., str],
    kafkalite_producer: Producer[Any, Any],
) -> Iterator[Jobs]:
    """A new topic."""
    topic = kafkalite_topic_factory(partitions=2)
    yield Jobs(spark, tmp_path, kafkalite_broker.address, topic, kafkalite_producer)


def test_lake_is_planned_run_and_verified(jobs: Jobs) -> None:
    jobs.send(*(b"%d" % number for number in range(100)), timestamp_ms=0)
    jobs.send(b"100", partition=1, timestamp_ms=24 * HOUR_MS)
    job = jobs.job("lake", '[table]\npath = "orders"', source="maxOffsetsPerTrigger = 60")
    plan = plan_job(job)
    assert (plan.offsets, plan.batches, len(plan.splits)) == (101, 2, 1)
    assert [each[:3] for each in plan.partitions] == [((jobs.topic, 0), 0, 100), ((jobs.topic, 1), 0, 1)]
    assert not Path(job.required_table.path).exists()
    jobs.run(job)
    path = job.required_table.path
    assert jobs.lines == [f"lake lake: 101 new records in 2 commits; {path}: 101 records in 2 commits, 3 files"]
    assert {Path(path).parent.name for path in ManifestTable(job.required_table.path).files()} == {
        "date=1970-01-01",
        "date=1970-01-02",
    }
    jobs.send(b"101")
    plan = plan_job(job)
    assert [each[:3] for each in plan.partitions] == [((jobs.topic, 0), 100, 101)]
    found = verify_job(job, full=True)
    assert found.problems == ()
    assert [(each.rows, each.lag) for each in found.partitions] == [(100, 1), (1, 0)]
    jobs.run(job)
    jobs.run(job)
    whole = f"{path}: 102 records in 3 commits, 4 files"
    assert jobs.lines[1:] == [f"lake lake: 1 new record in 1 commit; {whole}", f"lake lake: 0 new records; {whole}"]


def test_run_of_a_delta_table_says_what_it_has_added(jobs: Jobs) -> None:
    jobs.send(*(b"%d" % number for number in range(30)))
    job = jobs.job("lake", '[table]\npath = "orders"\nformat = "delta"')
    assert jobs.run(job) == jobs.run(job) == 0
    jobs.send(b"1")
    assert jobs.run(job) == 0
    path = jobs.directory / "orders"
    assert jobs.lines == [
        f"lake lake: 30 new records in 1 commit; {path}: 30 records in 1 commit, 1 file",
        f"lake lake: 0 new records; {path}: 30 records in 1 commit, 1 file",
        f"lake lake: 1 new record in 1 commit; {path}: 31 records in 2 commits, 2 files",
    ]


def test_run_of_a_delta_table_says_what_it_has_added_after_its_log_has_expired(jobs: Jobs) -> None:
    jobs.send(*(b"%d" % number for number in range(30)))
    job = jobs.job("lake", '[table]\npath = "orders"\nformat = "delta"', source="maxOffsetsPerTrigger = 10")
    assert jobs.run(job) == 0
    path = jobs.directory / "orders"
    remove_earlier_versions(str(path))
    jobs.send(b"1")
    assert jobs.run(job) == 0
    assert jobs.lines[1:] == [f"lake lake: 1 new record in 1 commit; {path}: 31 records in 4 commits, 4 files"]


def test_deleted_checkpoint_is_found_before_the_run_and_resumed(jobs: Jobs) -> None:
    jobs.send(b"1", b"2")
    job = jobs.job("lake", '[table]\npath = "orders"')
    jobs.run(job)
    shutil.rmtree(job.checkpoint)
    jobs.send(b"3")
    with pytest.raises(JobError, match=r"has commits of query .*; start with --resume-from-table"):
        jobs.run(job)
    jobs.run(job, RunOptions(resume_from_table=True))
    assert sorted(read(job.required_table.path).to_table()["value"].to_pylist()) == [b"1", b"2", b"3"]
    jobs.topic = "other"
    with pytest.raises(JobError, match=r"which reads .*, but this job reads other"):
        checkpoint.check_topics(job.checkpoint, jobs.job("lake", '[table]\npath = "empty"').source_options())


def test_verify_finds_rows_that_are_missing_changed_or_twice(jobs: Jobs) -> None:
    import pyarrow.parquet as parquet

    jobs.send(*(b"%d" % number for number in range(10)), timestamp_ms=0)
    job = jobs.job("lake", '[table]\npath = "orders"')
    jobs.run(job)
    (path,) = ManifestTable(job.required_table.path).files()
    whole = parquet.read_table(path, partitioning=None)
    parquet.write_table(pyarrow.concat_tables([whole.slice(0, 8), whole.slice(0, 1)]), path)
    problems = verify_job(job).problems
    name = TopicPartition(jobs.topic, 0)
    assert problems == (
        f"{name}: 1 rows of the table have the offset of another row",
        f"{name}: the commits have 10 rows, the files 9",
        f"{name}: 2 records of the log between offsets 0 and 9 are not in the table",
    )


def test_unknown_topics_and_executors_are_checked(jobs: Jobs) -> None:
    jobs.topic = "nowhere"
    job = jobs.job("lake", '[table]\npath = "orders"')
    with pytest.raises(JobError, match="topic nowhere: "):
        check_before_run(job, NO_OPTIONS)
    (executor,) = executor_findings_in(jobs.spark)
    assert executor.problem is None and sys.executable in executor.detail


def test_full_disk_is_one_line_and_nothing_is_committed(jobs: Jobs, tmp_path: Path) -> None:
    """A file system of 32 MiB, of which 24 are in use, and 12 MiB of records."""
    values = [random.Random(number).randbytes(768 << 10) for number in range(16)]
    jobs.send(*values)
    with LoopDisk(tmp_path, "ext4", 32) as disk:
        table = f'[table]\npath = "{disk.path}/orders"\n'
        job = jobs.job("lake", table, options=f'checkpoint = "{tmp_path}/checkpoint"')
        other = disk.path / "other"
        other.write_bytes(bytes(disk.free_bytes() - (8 << 20)))
        with pytest.raises(JobError, match=r"orders: \d+ MiB are free, expected at least 64; free space, or choose"):
            check_before_run(job, NO_OPTIONS)
        with pytest.raises(StreamingQueryException) as raised:
            run_in(jobs.spark, job, NO_OPTIONS, jobs.lines.append)
        line = explain_error(raised.value)
        assert line is not None and re.fullmatch(
            r"\S.*No space left on device.*; free space on the disk of the table, the checkpoint or spark.local.dir, "
            r"and run the job again",
            line,
        )
        assert ManifestTable(job.required_table.path).commits() == []
        other.unlink()
        run_in(jobs.spark, job, NO_OPTIONS, jobs.lines.append)
        assert sorted(read(job.required_table.path).to_table()["value"].to_pylist()) == sorted(values)


# latest


LATEST = '[table]\npath = "states"\nbuckets = 4\n'


def state(job: JobFile) -> dict[bytes, bytes]:
    rows = read(job.required_table.path).to_table(columns=["key", "value"]).to_pylist()
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_latest_state_of_each_key_follows_the_topic(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (b"a", b"b", b"c", b"d"):
        jobs.send(key + b"1", key + b"2", key=key)
    job = jobs.job("latest", LATEST)
    jobs.run(job)
    assert state(job) == {key: key + b"2" for key in (b"a", b"b", b"c", b"d")}
    jobs.send(b"a3", key=b"a", timestamp_ms=1)  # the offset decides, not the time
    jobs.send(None, key=b"b")
    jobs.send(None, b"c4", key=b"c")
    jobs.send(b"d5", partition=1, key=b"d")  # the key has moved to another partition
    commit = ManifestTable.commit

    def failing(self: ManifestTable, *arguments: Any) -> None:
        commit(self, *arguments)
        raise OSError("the driver ends here")

    with monkeypatch.context() as patch, pytest.raises(StreamingQueryException, match="the driver ends here"):
        patch.setattr(ManifestTable, "commit", failing)
        jobs.run(job)
    expected = {b"a": b"a3", b"c": b"c4", b"d": b"d5"}
    assert state(job) == expected
    jobs.run(job)
    table = ManifestTable(job.required_table.path)
    assert state(job) == expected and len(table.commits()) == 2
    assert {str(each) for each in Path(table.location).glob("*.parquet")} == set(table.files())
    rows = jobs.spark.read.parquet(table.location).collect()
    assert {bytes(row["key"]): bytes(row["value"]) for row in rows} == expected and len(rows) == 3


def test_deleted_key_stays_deleted_when_a_later_batch_has_an_older_record(jobs: Jobs) -> None:
    jobs.send(None, partition=1, key=b"a", timestamp_ms=200)
    jobs.send(b"kept", partition=1, key=b"b", timestamp_ms=200)
    job = jobs.job("latest", LATEST)
    jobs.run(job)
    jobs.send(b"older", partition=0, key=b"a", timestamp_ms=150)
    jobs.send(b"older", partition=0, key=b"b", timestamp_ms=150)
    jobs.run(job)
    assert state(job) == {b"b": b"kept"}
    table = ManifestTable(job.required_table.path)
    assert len(list(Path(table.location, "_hidden").iterdir())) == len(table.state().files) - len(table.files())
    rows = jobs.spark.read.parquet(table.location).collect()
    assert {bytes(row["key"]): bytes(row["value"]) for row in rows} == {b"b": b"kept"} and len(rows) == 1


def test_latest_rejects_records_without_a_key_and_another_number_of_buckets(jobs: Jobs) -> None:
    jobs.send(b"1")
    jobs.send(b"2", key=b"a")
    with pytest.raises(StreamingQueryException) as raised:
        jobs.run(jobs.job("latest", LATEST))
    assert explain_error(raised.value) == (
        f'{jobs.topic}-0: the record at offset 0 has no key; set null_keys to "skip" to leave such records out'
    )
    jobs.run(jobs.job("latest", LATEST + 'null_keys = "skip"'))
    jobs.send(b"3", key=b"b")
    with pytest.raises(StreamingQueryException) as raised:
        jobs.run(jobs.job("latest", '[table]\npath = "states"\nbuckets = 5'))
    assert explain_error(raised.value) == "the table has 4 buckets, but buckets is 5; set it to 4"
    assert state(jobs.job("latest", LATEST)) == {b"a": b"2"}


# window

WINDOW = """
[window]
size = "1 hour"
watermark = "1 hour"
event_time = "timestamp_millis(at)"
schema = "at BIGINT, origin STRING, delay INT"
by = {origin = "origin"}
aggregates = {flights = "count(*)", delay = "max(delay)"}
"""


def flight(hour: float, origin: str, delay: int) -> bytes:
    return json.dumps({"at": int(hour * HOUR_MS), "origin": origin, "delay": delay}).encode()


def test_windows_are_written_once_to_a_table(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.send(flight(0.1, "JFK", 1), flight(0.9, "JFK", 7), flight(0.5, "LGA", 2), flight(1.5, "JFK", 3))
    jobs.send(flight(3.0, "JFK", 0))
    job = jobs.job("window", WINDOW, '[table]\npath = "windows"')
    jobs.run(job)
    jobs.send(flight(0.2, "JFK", 99), flight(9.0, "JFK", 0))  # the first one is too late
    commit = ManifestTable.commit

    def failing(self: ManifestTable, *arguments: Any) -> None:
        commit(self, *arguments)
        raise OSError("the driver ends here")

    with monkeypatch.context() as patch, pytest.raises(StreamingQueryException, match="the driver ends here"):
        patch.setattr(ManifestTable, "commit", failing)
        jobs.run(job)
    jobs.run(job)
    rows = read(job.required_table.path).to_table().to_pylist()
    found = sorted((row["window_start"].hour, row["origin"], row["flights"], row["delay"]) for row in rows)
    assert found == [(0, "JFK", 2, 7), (0, "LGA", 1, 2), (1, "JFK", 1, 3), (3, "JFK", 1, 0)]


def test_windows_are_written_to_a_topic(jobs: Jobs, kafkalite_topic_factory: Callable[..., str]) -> None:
    jobs.send(flight(0.1, "JFK", 1), flight(5.0, "JFK", 7))
    target = kafkalite_topic_factory(partitions=1)
    sink = f'[sink]\nkafka.bootstrap.servers = "{jobs.address}"\ntopic = "{target}"'
    jobs.run(jobs.job("window", WINDOW, sink))
    with Admin(jobs.address) as admin:
        name = TopicPartition(target, 0)
        assert admin.partitions.offsets({name: -1})[name].offset == 1
    jobs.topic = target
    copy = jobs.job("lake", '[table]\npath = "copy"')
    jobs.run(copy)
    (value,) = read(copy.required_table.path).to_table()["value"].to_pylist()
    found = json.loads(value)
    assert (found["origin"], found["flights"], found["window_start"]) == ("JFK", 1, "1970-01-01T00:00:00.000Z")


# audit and replay


def test_audit_balances_topic_and_lake_by_time(jobs: Jobs, kafkalite_topic_factory: Callable[..., str]) -> None:
    import pyarrow.parquet as parquet

    for hour in range(3):
        jobs.send(b"1", b"2", timestamp_ms=hour * HOUR_MS)
    lake = jobs.job("lake", '[table]\npath = "orders"')
    jobs.run(lake)
    jobs.send(b"3", partition=1, timestamp_ms=2 * HOUR_MS)  # the lake does not have it yet
    target = kafkalite_topic_factory(partitions=1)
    sink = f'[sink]\nkafka.bootstrap.servers = "{jobs.address}"\ntopic = "{target}"'
    job = jobs.job("audit", '[table]\npath = "orders"', sink)
    jobs.lines.clear()
    assert jobs.run(job) == 0
    assert jobs.lines == [
        f"{jobs.topic}  1970-01-01T00:00:00Z to 1970-01-01T01:00:00Z  topic 2  lake 2",
        f"{jobs.topic}  1970-01-01T01:00:00Z to 1970-01-01T02:00:00Z  topic 2  lake 2",
        f"{jobs.topic}  1970-01-01T02:00:00Z to 1970-01-01T03:00:00Z  topic 3  lake 2",
        f"{jobs.topic}: complete up to 1970-01-01T02:00:00Z",
    ]
    (path,) = ManifestTable(lake.required_table.path).files()
    parquet.write_table(parquet.read_table(path, partitioning=None).slice(1), path)
    jobs.lines.clear()
    assert jobs.run(job) == 1
    assert jobs.lines[-2:] == [
        f"{jobs.topic}: complete up to 1970-01-01T00:00:00Z",
        f"problem: {jobs.topic}: from 1970-01-01T00:00:00Z to 1970-01-01T01:00:00Z the topic has 2 records below the "
        "end of the table, the table has 1",
    ]
    rows = jobs.spark.read.format("kafkalite").options(**job.source | {"subscribe": target}).load().collect()
    messages = [json.loads(row.value) for row in rows]
    found = Counter((each["tier"], each["bucket_start"] // HOUR_MS, each["count"]) for each in messages)
    topic = {("topic", 0, 2): 2, ("topic", 1, 2): 2, ("topic", 2, 3): 2}  # of two audits
    assert found == topic | {("lake", 0, 2): 1, ("lake", 0, 1): 1, ("lake", 1, 2): 2, ("lake", 2, 2): 2}


def test_replay_keeps_time_key_headers_and_order(jobs: Jobs, kafkalite_topic_factory: Callable[..., str]) -> None:
    headers = [("trace", b"1"), ("empty", None)]
    jobs.send(b"1", None, b"3", key=b"a", timestamp_ms=1_000, headers=headers)
    jobs.send(b"4", partition=1, timestamp_ms=2_000)
    jobs.run(jobs.job("lake", '[table]\npath = "orders"'))
    targets = [kafkalite_topic_factory(partitions=2) for _ in range(2)]
    for target, replay in zip(targets, ("", '[replay]\nwhere = "_offset >= 1"\npartitions = "key"'), strict=True):
        sink = f'[sink]\nkafka.bootstrap.servers = "{jobs.address}"\ntopic = "{target}"'
        jobs.run(jobs.job("replay", '[table]\npath = "orders"', sink, replay))
    assert jobs.lines[-2:] == [
        f"replay replay: {count} records to topic {at}" for count, at in zip((4, 2), targets, strict=True)
    ]
    options = {"kafka.bootstrap.servers": jobs.address, "includeHeaders": "true"}

    def rows(topic: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = jobs.spark.read.format("kafkalite").options(**options, subscribe=topic).load()
        return sorted(tuple(row) for row in frame.selectExpr("partition", "offset", *columns).collect())

    columns = ("key", "value", "unix_millis(timestamp)", "headers")
    assert rows(targets[0], *columns) == rows(jobs.topic, *columns) and len(rows(jobs.topic)) == 4
    assert [row[2:] for row in rows(targets[1], "key", "value")] == [(b"a", None), (b"a", b"3")]


def test_replay_of_nothing_is_an_error(jobs: Jobs) -> None:
    sink = f'[sink]\nkafka.bootstrap.servers = "{jobs.address}"\ntopic = "{jobs.topic}"'
    with pytest.raises(JobError, match="orders has no rows"):
        jobs.run(jobs.job("replay", '[table]\npath = "orders"', sink))


# decoding and progress


def test_lake_decodes_values_and_shows_its_progress(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.send(b'{"id": 1}', b'{"id": 2}', b"no JSON")
    more = """
[decoding]
value = "json"
schema = "id bigint"
budget = 1

[progress]
group = "copy-of-orders"
json = "progress.jsonl"
metrics = "orders.prom"
"""
    job = jobs.job("lake", '[table]\npath = "orders"', more)
    jobs.run(job, RunOptions(report=str(jobs.directory / "report.html"), bar=True))
    assert sorted(read(job.required_table.path).to_table()["id"].to_pylist()) == [1, 2]
    assert "<h2>lake</h2>" in (jobs.directory / "report.html").read_text()
    assert "lake  ended" in capsys.readouterr().err
    assert verify_job(job, full=True).problems == ()
    lines = [json.loads(line) for line in (jobs.directory / "progress.jsonl").read_text().splitlines()]
    assert [each["event"] for each in lines] == ["batch", "ended"] and lines[0]["bad_rows"] == 1
    assert "kafkalite_pipeline_" in (jobs.directory / "orders.prom").read_text()
    with Admin(jobs.address) as admin:
        offsets = admin.group_offsets.list("copy-of-orders")["copy-of-orders"]
    assert offsets[TopicPartition(jobs.topic, 0)].offset == 3
    sink = f'[sink]\nkafka.bootstrap.servers = "{jobs.address}"\ntopic = "{jobs.topic}"'
    with pytest.raises(JobError, match=r"orders has no columns value"):
        jobs.run(jobs.job("replay", '[table]\npath = "orders"', sink))
    jobs.run(jobs.job("replay", '[table]\npath = "orders"', sink, '[replay]\nrows = "dead_letters"'))
    options = {name: value for name, value in job.source.items() if name != "progressGroup"}
    rows = jobs.spark.read.format("kafkalite").options(**options).load().collect()
    assert [bytes(row.value) for row in rows if row.offset >= 2] == [b"no JSON", b"no JSON"]
